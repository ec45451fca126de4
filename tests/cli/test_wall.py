#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--measure wall: the schedule that is to meet a speedup in seconds, the cache of what steps cost, and runs that go on.

Timings are whatever the machine makes of them; a test that needs certain ones writes them into the cache."""
import json
import os
import signal
import time
import unittest

from support import (MODEL, OK, PATIENCE, SANITIZED, TIMES_TOO_LONG, TINY, USAGE, Case, good_json, main, read, rows,
                     run, started, write, write_csv)

N_ROWS = 9
LAYERS = [2, 4, 8, 14, 24]


class Wall(Case):
    """Each test has a cache of its own."""

    def setUp(self):
        super().setUp()
        self.cache = self.path("cache")
        before = os.environ["XDG_CACHE_HOME"]
        os.environ["XDG_CACHE_HOME"] = self.cache
        self.addCleanup(os.environ.__setitem__, "XDG_CACHE_HOME", before)
        self.table = write_csv(self.path("in.csv"), N_ROWS)
        self.out = self.path("out.jsonl")
        self.args = ["generate", MODEL, "--input", self.table, "--max-tokens", "12", "--speedup", "3"]

    def files(self):
        folder = os.path.join(self.cache, "skipdecode")
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []

    def summary(self, *more, **options):
        """A whole run with its JSON summary."""
        if os.path.exists(self.out):
            os.remove(self.out)
        return json.loads(self.good(*self.args, "--output", self.out, "--json", "--no-compare", *more, **options).out)

    def pretend(self, head, layer=1.0):
        """Steps from now on cost `head` + `layer` a layer milliseconds, in every file of the cache."""
        for path in self.files():
            cost = json.loads(read(path))
            self.assertEqual(cost["layers"], LAYERS)
            cost.update(seconds=[(head + layer * k) * 1e-3 for k in LAYERS], attention=0.0)
            write(path, json.dumps(cost))


class Generate(Wall):
    def test_is_the_default(self):
        summary = self.summary()
        self.assertEqual((summary["measure"], summary["target_speedup"]), ("wall", 3))
        self.assertGreater(summary["predicted_speedup"], 1)
        self.assertEqual({row["schedule"] for row in rows(read(self.out))}, {summary["schedule"]})
        again = self.summary("--measure", "wall")
        self.assertEqual((again["schedule"], again["predicted_speedup"]),
                         (summary["schedule"], summary["predicted_speedup"]))
        layers = self.summary("--measure", "layers")
        self.assertEqual((layers["measure"], layers["predicted_speedup"]), ("layers", None))
        plan = good_json("plan", MODEL, "--speedup", "3", "--json")
        self.assertEqual(layers["schedule"], plan["schedule"])

    def test_full_depth_is_not_timed(self):
        self.good("generate", MODEL, "--prompt", "a", "--speedup", "1", "--measure", "wall", "--max-tokens", "2")
        self.good("generate", MODEL, "--prompt", "a", "--max-tokens", "2")
        self.assertEqual(self.files(), [])

    def test_costs_decide(self):
        self.summary()
        means = []
        for head in (0, 4, 8):  # what does not shrink has to be made up for by layers
            self.pretend(head)
            summary = self.summary()
            self.assertGreaterEqual(summary["predicted_speedup"], 3)
            self.assertLess(summary["predicted_speedup"], 3.5)
            options = dict(item.split("=") for item in summary["schedule"].split(","))
            means.append(int(options["max"]) + int(options["min"]))
        self.assertGreater(means[0], means[1])
        self.assertGreater(means[1], means[2])

    def test_out_of_reach(self):
        self.summary()
        self.pretend(20)  # 44 ms at full depth, 22 ms with two layers
        done = self.good(*self.args)
        err = done.err.decode()
        self.assertEqual(err.count("warning"), 1)
        for part in ("speedup 3 is out of reach: at most 2.00x on this machine with 9 rows", "44 ms at full depth",
                     "22 ms with the fewest layers (2)", "20 ms (the output head",
                     "predicted decode speedup    2.00x  (target 3x by the clock; steps timed in an earlier run)"):
            self.assertIn(part, err)
        self.assertEqual({row["schedule"].split(",")[1:3] == ["max=2", "min=2"] for row in rows(done.out)}, {True})

    def test_summary_text(self):
        err = self.good(*self.args, "--compare").err.decode()
        self.assertIn("x  (target 3x by the clock; steps timed at the start)", err)
        self.assertIn("decode wall-clock speedup ", err)

    def test_bad_values(self):
        for value in ("", "Wall", "seconds", "wall "):
            self.refused(USAGE, "generate", MODEL, "--prompt", "a", "--speedup", "2", "--measure", value,
                         says=('--measure "%s"' % value, "wall or layers"))
        for measure in ("wall", "layers"):
            for more in ([], ["--schedule", "max=9"], ["--policy", "full"]):
                self.refused(USAGE, "generate", MODEL, "--prompt", "a", "--measure", measure, *more, says="--speedup")
        self.refused(USAGE, "logits", MODEL, "--ids", "2", "--speedup", "2", "--measure", "wall", says="--measure")

    def test_one_token(self):
        row = good_json("generate", MODEL, "--prompt", "a", "--json", "--quiet", "--max-tokens", "1", "--speedup", "2")
        self.assertEqual(row["layers_run"], 0)


class Resumed(Wall):
    """Started again, a run keeps its schedule, whatever the clock says by then."""

    def test_kill_9(self):
        self.args[self.args.index("12")] = "40"
        self.args += ["--ignore-eos", "--batch", "2"]
        nowhere = {"XDG_CACHE_HOME": write(self.path("file"), "")}  # timed anew at each start: only the rows can tell
        with started(*self.args, "--output", self.out, "--quiet", env=dict(os.environ, **nowhere)) as process:
            deadline = time.time() + PATIENCE
            partial = self.out + ".partial"
            while process.poll() is None and (not os.path.exists(partial) or b"\n" not in read(partial)):
                self.assertLess(time.time(), deadline)
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
        kept = rows(read(partial)[:read(partial).rfind(b"\n") + 1])
        schedule = kept[0]["schedule"]
        done = self.good(*self.args, "--output", self.out, env=nowhere)
        self.assertIn("target decode speedup       3x  (by the clock; on the schedule of the rows done before)",
                      done.err.decode())
        made = rows(read(self.out))
        self.assertEqual({row["schedule"] for row in made}, {schedule})
        for row in kept:
            self.assertEqual(made[row["index"]], row)
        # the same bytes as on that schedule from the start
        at = self.args.index("--speedup")
        alone = self.good(*self.args[:at], *self.args[at + 2:], "--schedule", schedule, "--quiet").out
        strip = lambda row: {name: row[name] for name in row if name != "key"}
        self.assertEqual([strip(row) for row in rows(alone)], [strip(row) for row in made])

    def test_same_bytes_though_the_costs_changed(self):
        first = self.summary()
        whole = read(self.out)
        for head in (0, 15):
            self.pretend(head)
            for keep in ([0], [5, 2], list(range(N_ROWS - 1))):
                lines = whole.splitlines(keepends=True)
                os.remove(self.out)
                write(self.out + ".partial", b"".join(lines[i] for i in keep))
                again = json.loads(self.good(*self.args, "--output", self.out, "--json", "--batch", "3").out)
                self.assertEqual(read(self.out), whole)
                self.assertEqual((again["schedule"], again["predicted_speedup"], again["rows_done_now"]),
                                 (first["schedule"], None, N_ROWS - len(keep)))
        before = os.stat(self.out).st_mtime_ns
        self.good(*self.args, "--output", self.out)
        self.assertEqual(os.stat(self.out).st_mtime_ns, before)

    def test_another_target_is_another_run(self):
        self.summary()
        base = [*self.args[:-2], "--output", self.out]
        for more in (["--speedup", "2"], ["--speedup", "3", "--measure", "layers"], []):
            self.refused(USAGE, *base, *more, says="another prompt, model, schedule")
        write(self.out + ".partial", read(self.out))
        os.remove(self.out)
        self.refused(USAGE, *base, "--speedup", "2", says="another prompt, model, schedule")
        self.good(*base, "--speedup", "2", "--overwrite")

    def test_a_schedule_that_is_none(self):
        self.summary()
        first = json.loads(read(self.out).split(b"\n")[0])
        os.remove(self.out)
        for schedule in (None, 7, "", "max=99", "warmup", "budgets=1:2", "warmup=1,max=9\0"):
            row = dict(first, schedule=schedule)
            if schedule is None:
                del row["schedule"]
            write(self.out + ".partial", json.dumps(row) + "\n")
            if schedule == "max=99":  # well written, but not for this model
                self.refused(USAGE, *self.args, "--output", self.out, says="99 layers is outside")
            elif schedule is None or schedule == 7:
                self.refused(USAGE, *self.args, "--output", self.out, says=("row 0", "schedule", "--overwrite"))
            else:
                self.assertIn(run(*self.args, "--output", self.out, "--quiet").code, (OK, USAGE))
                if os.path.exists(self.out):
                    os.remove(self.out)


class Cache(Wall):
    def test_second_time(self):
        start = time.time()
        self.summary()
        first = time.time() - start
        self.assertEqual(len(self.files()), 1)
        path = self.files()[0]
        before = os.stat(path)
        start = time.time()
        self.summary()
        self.assertLess(time.time() - start, first)
        self.assertEqual(os.stat(path), os.stat(path))
        self.assertEqual((before.st_ino, before.st_mtime_ns), (os.stat(path).st_ino, os.stat(path).st_mtime_ns))

    @unittest.skipIf(SANITIZED, TIMES_TOO_LONG)
    def test_what_a_file_is_for(self):
        self.summary()
        self.args[self.args.index("12")] = "11"  # lengths share a file up to the next power of two
        self.summary()
        self.assertEqual(len(self.files()), 1)
        for n, more in enumerate((["--batch", "2"], ["--threads", "1"], ["--weights", "q8"], ["--kv", "f16"])):
            self.summary(*more)
            self.assertEqual(len(self.files()), 2 + n, more)
        env = {"SKIPDECODE_CPU": "ref"}
        self.summary(env=env)
        self.assertEqual(len(self.files()), 6)
        for path in self.files():
            self.assertEqual(os.path.basename(path), json.loads(read(path))["key"] + ".json")

    def test_hostile_files(self):
        """A file that is not whole and its own is measured again and replaced."""
        args = ["plan", TINY, "--speedup", "1.5", "--measure", "wall", "--batch", "2", "--json"]
        self.good(*args)
        path, = self.files()
        good = json.loads(read(path))
        seconds = good["seconds"]
        self.assertEqual(good["layers"], [2, 4, 7])
        changes = {
            "format": (0, 2, "1", None),
            "key": ("", "0" * 16, 7, None),
            "rows": (0, 3, "2"),
            "position": (0, -1, 1e300, 1.5, "8", None),
            "attention": (-1, "0", None, 1e300),
            "layers": ([], [2, 7], [2, 4, 8], [0, 4, 7], [2, 2, 7], [2.5, 4, 7], [4, 2, 7], [2, 4, 4], ["2", 4, 7],
                       [1e300] * 3, [2, 3, 4, 5, 6, 7], {}, 7, None),
            "seconds": ([], seconds[:2], seconds + [9], [3, 2, 1], [0] * 3, [-1] * 3, [1e300] * 3, ["1"] * 3,
                        [1e-300] * 3, [1e-3, 1, 1e7], None, 7),
        }
        contents = [json.dumps(dict(good, **{name: value})) for name in changes for value in changes[name]]
        contents += ["", "{", "[]", "null", "7", "\0" * 100, b"\xff\xfe", "{}", read(path)[:-20], read(path) * 2,
                     json.dumps(good)[:-1] + " " * 5000 + "}", "[" * 4000, '{"format":1,"format":1}', "NaN",
                     json.dumps(good).replace(str(seconds[0]), "1e999")]
        for content in contents:
            write(path, content)
            self.assertGreater(good_json(*args)["predicted_speedup"], 0, content)
            cost = json.loads(read(path))
            self.assertEqual(set(cost), set(good))
            self.assertEqual([cost[name] for name in ("format", "key", "rows", "position", "layers")],
                             [good[name] for name in ("format", "key", "rows", "position", "layers")], content)

    @unittest.skipIf(SANITIZED, TIMES_TOO_LONG)
    def test_no_place_for_it(self):
        file = write(self.path("file"), "")
        home = self.path("home")
        os.mkdir(home)
        loop = self.path("loop")
        os.symlink("loop", loop)
        for env in ({"XDG_CACHE_HOME": file}, {"XDG_CACHE_HOME": "/proc/self/x"}, {"XDG_CACHE_HOME": loop},
                    {"XDG_CACHE_HOME": "", "HOME": ""}, {"XDG_CACHE_HOME": "relative", "HOME": "relative"},
                    {"XDG_CACHE_HOME": "/" + "x" * 5000}):
            self.assertGreater(self.summary(env=env)["predicted_speedup"], 1)
            self.assertEqual(self.good(*self.args, "--quiet", env=env).err, b"")
        self.assertEqual(sorted(os.listdir(self.dir)), ["file", "home", "in.csv", "loop", "out.jsonl"])
        self.summary(env={"XDG_CACHE_HOME": "relative", "HOME": home})  # a relative one does not count
        self.assertEqual(len(os.listdir(os.path.join(home, ".cache", "skipdecode"))), 1)

    @unittest.skipIf(SANITIZED, TIMES_TOO_LONG)
    def test_something_else_of_its_name(self):
        self.summary()
        path = self.files()[0]
        for make in (os.mkdir, os.mkfifo, lambda name: os.symlink("/dev/zero", name),
                     lambda name: os.symlink("x/y", name)):
            os.remove(path) if not os.path.isdir(path) or os.path.islink(path) else os.rmdir(path)
            make(path)
            self.assertGreater(self.summary()["predicted_speedup"], 1)
            if make == os.mkdir:
                self.assertTrue(os.path.isdir(path))


class Plan(Wall):
    def test_plan(self):
        plan = good_json("plan", MODEL, "--speedup", "3", "--measure", "wall", "--batch", "4", "--weights", "q8",
                         "--json")
        self.assertEqual((plan["measure"], plan["target_speedup"], plan["batch"]), ("wall", 3, 4))
        self.assertAlmostEqual(plan["predicted_speedup"], plan["full_step_seconds"] / plan["step_seconds"])
        self.pretend(4)
        plan = good_json("plan", MODEL, "--speedup", "3", "--measure", "wall", "--batch", "4", "--weights", "q8",
                         "--json")
        self.assertAlmostEqual(plan["full_step_seconds"], 28e-3)
        self.assertGreaterEqual(plan["predicted_speedup"], 3)
        text = self.good("plan", MODEL, "--speedup", "3", "--measure", "wall", "--batch", "4", "--weights",
                         "q8").out.decode()
        for part in ("28 ms at full depth, ", "4 rows (predicted from steps timed earlier)",
                     "%.2fx by the clock, predicted; the target is 3x" % plan["predicted_speedup"], "as f16",
                     "steps  layers", "layer  23 |"):
            self.assertIn(part, text)

    def test_layers_are_the_default(self):
        plan = good_json("plan", MODEL, "--speedup", "3", "--json")
        self.assertEqual(good_json("plan", MODEL, "--speedup", "3", "--json", "--measure", "layers"), plan)
        self.assertNotIn("predicted_speedup", plan)
        self.assertEqual(self.files(), [])

    def test_what_is_timed_needs_the_clock(self):
        for option in (["--batch", "2"], ["--weights", "q8"], ["--head", "q8"], ["--threads", "1"], ["--no-mmap"]):
            for measure in ([], ["--measure", "layers"]):
                self.refused(USAGE, "plan", MODEL, "--speedup", "2", *measure, *option, says="--measure wall")
        self.refused(USAGE, "plan", MODEL, "--speedup", "2", "--measure", "wall", "--batch", "4097", says="4096")
        self.refused(USAGE, "plan", MODEL, "--measure", "wall", says="--speedup")

    def test_small_models(self):
        plan = good_json("plan", TINY, "--speedup", "2", "--measure", "wall", "--json")
        self.assertGreater(plan["predicted_speedup"], 0)
        for prompt, tokens in ((64, 1), (1, 64), (1, 2)):
            plan = good_json("plan", TINY, "--speedup", "1.5", "--measure", "wall", "--json", "--prompt-tokens",
                             str(prompt), "--max-tokens", str(tokens), "--batch", "1")
            self.assertGreater(plan["predicted_speedup"], 0)


if __name__ == "__main__":
    main()
