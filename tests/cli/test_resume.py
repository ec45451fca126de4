#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode generate --output: killed at any moment and started again, it ends with the bytes of an undisturbed run
and does no row twice; and it never mixes the rows of two different runs."""
import fcntl
import json
import os
import random
import shutil
import signal
import time
import unittest

from support import (E2E, MODEL, OK, PATIENCE, SANITIZED, USAGE, Case, copy_model, main, read, read_safetensors, rows,
                     started, write, write_csv, write_safetensors)

N_ROWS = 60 if SANITIZED else 300
N_E2E = 40 if SANITIZED else 1000


class Resumable(Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("out.jsonl")
        self.partial = self.out + ".partial"
        self.random = random.Random(self.id())

    def prepare(self, n, *options, table=None):
        """An input of n rows (the first n of `table`, if given), the command for it, and what an undisturbed run
        writes."""
        if table:
            shutil.copyfile(table, self.path("in.csv"))
            options += ("--limit", str(n))
        else:
            write_csv(self.path("in.csv"), n)
        self.args = ["generate", MODEL, "--input", self.path("in.csv"), *options]
        whole = self.path("whole.jsonl")
        self.good(*self.args, "--output", whole, "--quiet")
        self.expected = read(whole)
        os.remove(whole)
        self.n = n

    def finish(self, *options):
        """Runs to the end; returns how many rows that run made."""
        done = self.good(*self.args, "--output", self.out, "--json", "--no-compare", *options)
        self.assertEqual(read(self.out), self.expected)
        self.assertFalse(os.path.exists(self.partial))
        summary = json.loads(done.out)
        self.assertEqual(summary["rows"], self.n)
        return summary["rows_done_now"]

    def kept(self):
        """The rows that OUT.partial holds whole."""
        if not os.path.exists(self.partial):
            return []
        data = read(self.partial)
        return rows(data[:data.rfind(b"\n") + 1])

    def interrupt(self, how, at_least, *options):
        """Starts the run and ends it with a signal once it has made `at_least` more rows and a random moment has
        passed. False if it was done before that: OUT is there, whatever the signal then met."""
        want = len(self.kept()) + at_least
        with started(*self.args, "--output", self.out, "--quiet", *options) as process:
            deadline = time.time() + PATIENCE
            while process.poll() is None and len(self.kept()) < want:
                self.assertLess(time.time(), deadline)
                time.sleep(0.002)
            time.sleep(self.random.uniform(0, 0.05))
            if process.poll() is None:
                process.send_signal(how)
            return process.wait(PATIENCE) != OK and os.path.exists(self.partial)

    def rows_are_a_part(self):
        """What was kept is a subset of the undisturbed run's rows, none twice."""
        kept = self.kept()
        self.assertEqual(len({row["index"] for row in kept}), len(kept))
        expected = rows(self.expected)
        for row in kept:
            self.assertEqual(row, expected[row["index"]])
        return len(kept)


class Killed(Resumable):
    def survive(self, signals, share, *options):
        kept = 0
        for how in signals:
            if not self.interrupt(how, self.random.randint(1, int(share * self.n)), *options):
                break
            now = self.rows_are_a_part()
            self.assertGreaterEqual(now, kept)
            kept = now
        self.assertGreater(kept, 0)
        if os.path.exists(self.partial):
            self.assertFalse(os.path.exists(self.out))
            self.assertEqual(self.finish(), self.n - kept)
        self.assertEqual(read(self.out), self.expected)
        self.assertEqual(sorted(os.listdir(self.dir)), ["in.csv", "out.jsonl"])

    def test_kill_9(self):
        self.prepare(N_ROWS, "--speedup", "3", "--batch", "16", "--max-tokens", "32")
        self.survive([signal.SIGKILL] * 6, 0.12)

    def test_kill_9_while_sampling_in_other_batches(self):
        """Each start with another batch size and number of threads: rows that sample are the same all the same."""
        self.prepare(N_ROWS // 3, "--temperature", "1", "--seed", "17", "--max-tokens", "24", "--logprobs")
        kept = 0
        for batch, threads in ((1, 2), (9, 1), (32, 3)):
            if not self.interrupt(signal.SIGKILL, 5, "--batch", str(batch), "--threads", str(threads)):
                break
            kept = self.rows_are_a_part()
        self.assertGreater(kept, 0)
        self.finish("--batch", "3")

    def test_terminated_and_interrupted(self):
        self.prepare(N_ROWS // 3, "--speedup", "4", "--batch", "8")
        self.survive([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], 0.15)

    def test_e2e(self):
        if not os.path.exists(E2E):
            self.skipTest("the E2E development set is not there")
        self.prepare(N_E2E, "--speedup", "3", "--batch", "32", table=E2E)
        self.assertEqual(len(rows(self.expected)), N_E2E)
        self.survive([signal.SIGKILL] * 3, 0.25)

    def test_overwrite_can_be_killed_too(self):
        self.prepare(N_ROWS // 3, "--speedup", "4", "--batch", "8")
        self.good("generate", MODEL, "--input", self.path("in.csv"), "--limit", "3", "--output", self.out, "--quiet")
        old = read(self.out)
        self.assertTrue(self.interrupt(signal.SIGKILL, 10, "--overwrite"))
        self.assertEqual(read(self.out), old)  # not replaced before the new rows are complete
        kept = self.rows_are_a_part()
        self.assertEqual(self.finish("--overwrite"), self.n - kept)


class Continued(Resumable):
    """States that an interruption can leave behind, made by hand."""

    def setUp(self):
        super().setUp()
        self.prepare(12, "--speedup", "3", "--max-tokens", "8")
        self.lines = self.expected.splitlines(keepends=True)

    def test_rows_in_any_order(self):
        write(self.partial, b"".join([self.lines[7], self.lines[2], self.lines[11]]))
        self.assertEqual(self.finish(), 9)

    def test_torn_last_line(self):
        tail = self.lines[5]
        for cut in (tail[:1], tail[:20], tail[:-1], b"\0" * 30, b"\xff\xfe", b"{}"):
            write(self.partial, self.lines[3] + cut)
            self.assertEqual(self.finish(), 11, cut)
            os.remove(self.out)

    def test_empty_partial(self):
        write(self.partial, b"")
        self.assertEqual(self.finish(), 12)

    def test_only_a_torn_line(self):
        write(self.partial, self.lines[0][:-3])
        self.assertEqual(self.finish(), 12)

    def test_a_row_twice(self):
        write(self.partial, self.lines[1] * 2 + self.lines[0])
        self.assertEqual(self.finish(), 10)

    def test_everything_is_done(self):
        write(self.out, self.expected)
        before = os.stat(self.out)
        done = self.good(*self.args, "--output", self.out)
        self.assertEqual(done.err.decode(), "12 of 12 rows were done before\n")
        self.assertEqual(self.finish(), 0)
        after = os.stat(self.out)
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))
        self.assertEqual(self.good(*self.args, "--output", self.out, "--quiet").err, b"")

    def test_crash_after_the_rename(self):
        write(self.out, self.expected)
        write(self.partial, b"".join(reversed(self.lines)))
        self.assertEqual(self.finish(), 0)

    def test_crash_before_the_rename(self):
        write(self.partial, b"".join(reversed(self.lines)))
        write(self.out + ".tmp", self.lines[0][:7])
        self.assertEqual(self.finish(), 0)
        self.assertEqual(sorted(os.listdir(self.dir)), ["in.csv", "out.jsonl"])

    def test_input_that_grew(self):
        more = write_csv(self.path("more.csv"), 12)
        with open(more, "a") as file:
            file.write('"name[Zizzi], food[Thai]",x\n')
        write(self.out, self.expected)
        grown = ["generate", MODEL, "--input", more, "--speedup", "3", "--max-tokens", "8", "--output", self.out]
        self.assertEqual(json.loads(self.good(*grown, "--json").out)["rows_done_now"], 1)
        self.assertTrue(read(self.out).startswith(self.expected))
        self.assertEqual(len(rows(read(self.out))), 13)

    def test_other_batch_threads_and_seed_are_the_same_run(self):
        write(self.out, self.expected)
        self.assertEqual(
            self.finish("--batch", "2", "--threads", "3", "--prefill-tokens", "3", "--seed", "8", "--no-mmap"), 0)


class Refused(Resumable):
    """An output of another run stays as it is, and is not mixed with this one's rows."""

    def setUp(self):
        super().setUp()
        self.prepare(5, "--speedup", "3", "--max-tokens", "8")
        write(self.out, self.expected)

    def test_other_options(self):
        base = ["generate", MODEL, "--input", self.path("in.csv"), "--output", self.out]
        for options in (["--speedup", "2", "--max-tokens", "8"],
                        ["--max-tokens", "8"],
                        ["--speedup", "3", "--max-tokens", "9"],
                        ["--speedup", "3", "--max-tokens", "8", "--temperature", "1"],
                        ["--speedup", "3", "--max-tokens", "8", "--stop", "x"],
                        ["--speedup", "3", "--max-tokens", "8", "--logprobs"],
                        ["--speedup", "3", "--max-tokens", "8", "--ignore-eos"],
                        ["--speedup", "3", "--max-tokens", "8", "--repetition-penalty", "1.1"],
                        ["--speedup", "3", "--max-tokens", "8", "--template", "{mr}"],
                        ["--speedup", "3", "--max-tokens", "8", "--weights", "bf16"],
                        ["--schedule", "max=11,min=5,horizon=24,prompt=max", "--max-tokens", "8"]):
            self.refused(USAGE, *base, *options, says=(self.out, "row 0", "another prompt, model, schedule or sampling",
                                                       "--overwrite"))

    def test_seed_counts_when_it_samples(self):
        base = ["generate", MODEL, "--input", self.path("in.csv"), "--output", self.path("hot.jsonl"), "--quiet",
                "--temperature", "1", "--max-tokens", "4"]
        self.good(*base, "--seed", "1")
        self.good(*base, "--seed", "1")
        self.refused(USAGE, *base, "--seed", "2", says="another prompt, model, schedule or sampling")

    def test_other_input(self):
        other = write_csv(self.path("other.csv"), 5, seed=2)
        self.refused(USAGE, "generate", MODEL, "--input", other, "--output", self.out, "--speedup", "3",
                     "--max-tokens", "8", says="another prompt, model, schedule or sampling")

    def test_fewer_rows(self):
        self.refused(USAGE, *self.args, "--limit", "3", "--output", self.out, says=("line 4", "the input's 3 rows"))

    def test_other_model(self):
        other = copy_model(MODEL, self.path("model"))
        weights = os.path.join(other, "model.safetensors")
        tensors = read_safetensors(weights)
        name = next(n for n in tensors if n.endswith("layers.3.fc1.weight"))
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, shape, data[len(data) // 2:] + data[:len(data) // 2])
        write_safetensors(weights, tensors)
        self.refused(USAGE, "generate", other, *self.args[2:], "--output", self.out,
                     says="another prompt, model, schedule or sampling")

    def test_partial_of_another_run(self):
        os.rename(self.out, self.partial)
        self.refused(USAGE, *self.args[:-2], "--max-tokens", "9", "--output", self.out, says=(self.partial, "row 0"))

    def test_not_ours(self):
        lines = self.expected.splitlines(keepends=True)
        for content in (b"hello\n", b"\n", b"{}\n", b"[1]\n", b'{"index":0}\n', b'{"index":0,"key":"00"}\n',
                        b'{"index":-1,"key":"0123456789abcdef"}\n', b'{"index":1e99,"key":"0123456789abcdef"}\n',
                        b'{"index":"0","key":"0123456789abcdef"}\n', lines[0] + b"\xff\n" + lines[1]):
            write(self.out, content)
            self.refused(USAGE, *self.args, "--output", self.out, says=(self.out, "no row of this run"))
            write(self.partial, content)
            self.refused(USAGE, *self.args, "--output", self.out, says=(self.partial, "no row of this run"))
            os.remove(self.partial)

    def test_input_as_output(self):
        prompts = write(self.path("p.jsonl"), '{"prompt": "a"}\n')
        self.refused(USAGE, "generate", MODEL, "--input", prompts, "--output", prompts, says="no row of this run")

    def test_overwrite(self):
        write(self.partial, b'{"index":0}\n')
        self.args = self.args[:-2] + ["--max-tokens", "6"]
        fresh = self.path("fresh.jsonl")
        self.good(*self.args, "--output", fresh, "--quiet")
        self.expected = read(fresh)
        self.assertEqual(self.finish("--overwrite"), 5)
        self.assertEqual(self.finish("--overwrite"), 5)  # afresh, though OUT holds the same rows
        self.assertEqual(self.finish(), 0)


class TwoAtOnce(Resumable):
    def test_second_process_is_refused(self):
        self.prepare(16, "--max-tokens", "16", "--batch", "2")
        with started(*self.args, "--output", self.out, "--quiet") as first:
            deadline = time.time() + PATIENCE
            while first.poll() is None and not self.kept() and time.time() < deadline:
                time.sleep(0.002)
            first.send_signal(signal.SIGSTOP)
            self.assertIsNone(first.poll())
            self.refused(USAGE, *self.args, "--output", self.out, says=(self.partial, "another process"))
            self.refused(USAGE, *self.args, "--output", self.out, "--overwrite", says="another process")
            first.send_signal(signal.SIGCONT)
            self.assertEqual(first.wait(PATIENCE), OK)
        self.assertEqual(read(self.out), self.expected)
        self.assertFalse(os.path.exists(self.partial))

    def test_an_empty_file_that_another_process_holds_stays(self):
        """It has not written its first row yet; who comes second must not remove its file."""
        self.prepare(3, "--max-tokens", "4")
        with open(self.partial, "wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refused(USAGE, *self.args, "--output", self.out, "--quiet", says="another process is writing it")
            self.assertTrue(os.path.samestat(os.fstat(held.fileno()), os.stat(self.partial)))
        self.finish()

    def test_many_at_once(self):
        """Whatever the order, one of them writes the file, and nobody writes anything else."""
        self.prepare(6, "--max-tokens", "4")
        with started(*self.args, "--output", self.out, "--quiet") as a, \
                started(*self.args, "--output", self.out, "--quiet") as b, \
                started(*self.args, "--output", self.out, "--quiet") as c:
            codes = sorted(process.wait(PATIENCE) for process in (a, b, c))
        self.assertEqual(codes[0], OK)
        self.assertLessEqual(set(codes), {OK, USAGE})
        self.assertEqual(read(self.out), self.expected)
        self.assertEqual(sorted(os.listdir(self.dir)), ["in.csv", "out.jsonl"])


class Names(Resumable):
    def test_link(self):
        self.prepare(3, "--max-tokens", "3")
        target = self.path("target.jsonl")
        write(target, b"")
        os.symlink("target.jsonl", self.out)
        self.finish()
        self.assertTrue(os.path.islink(self.out))
        self.assertEqual(read(target), self.expected)
        self.assertEqual(self.finish(), 0)

    def test_odd_names(self):
        self.prepare(3, "--max-tokens", "3")
        for name in ("with space", "with\nnewline", "'quotes\"", "-dash", "\u00fc\U0001F600", "b\udcffad", "a" * 200,
                     "%s%n"):
            folder = self.path("d" + name)
            os.mkdir(folder)
            out = os.path.join(folder, name)
            table = shutil.copy(self.path("in.csv"), os.path.join(folder, name + ".csv"))
            self.good("generate", MODEL, "--input", table, "--max-tokens", "3", "--output", out, "--quiet")
            self.assertEqual(read(out), self.expected, repr(name))
            self.assertEqual(len(os.listdir(folder)), 2)


if __name__ == "__main__":
    main()
