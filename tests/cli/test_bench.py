#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench: what it prints, as JSON and as text, holds together; what it refuses. Speeds are not judged here: the machine
may be busy with anything."""
import os
import re
import shutil
import statistics
import struct
import unittest

from support import (FAILURE, FIXTURES, OK, SANITIZED, TIMES_TOO_LONG, TINY, USAGE, Case, good_json, main, read, rows,
                     run)

SHORT = ("--prompt", "9", "--gen", "8", "--repeat", "2", "--threads", "1")
KEYS = {"shape", "weights", "batch", "target", "measure", "layer_speedup", "wall_speedup", "request_speedup",
        "decode_tps", "prefill_tps", "weight_gbps", "probe_gbps", "peak_rss", "planned_bytes"}
SPREADS = ("wall_speedup", "request_speedup", "decode_tps", "prefill_tps", "weight_gbps", "probe_gbps", "read_share",
           "decode_gops", "prefill_gops")


class Numbers(Case):
    def bench(self, *args):
        result = self.good("bench", *args, "--json")
        self.assertEqual(result.err, b"")
        return rows(result.out)

    def check(self, line, repeat):
        self.assertLessEqual(KEYS, set(line))
        self.assertIsNone(line["predicted_speedup"])
        for name in SPREADS:
            self.assertGreater(line[name + "_min"], 0)
            self.assertLessEqual(line[name + "_min"], line[name])
            self.assertLessEqual(line[name], line[name + "_max"])
        for name in ("decode_tps", "prefill_tps", "probe_gbps", "read_share"):
            values = line[name + "_by_repetition"]
            self.assertEqual(len(values), repeat)
            self.assertAlmostEqual(statistics.median(values), line[name], delta=1e-6 * line[name])
        self.assertGreater(line["peak_rss"], line["weight_bytes"])
        self.assertGreater(line["planned_bytes"], line["weight_bytes"])
        if line["target"] == 1:
            self.assertEqual((line["layer_speedup"], line["wall_speedup"], line["request_speedup"]), (1, 1, 1))

    def test_a_model(self):
        lines = self.bench(TINY, *SHORT, "--batch", "1,3", "--speedups", "2,1,1.5")
        self.assertEqual([(x["batch"], x["target"]) for x in lines],
                         [(b, t) for b in (1, 3) for t in (1, 2, 1.5)])  # full depth comes first
        for line in lines:
            self.check(line, 2)
            self.assertEqual((line["shape"], line["random_weights"], line["weights"]), (TINY, False, "f32"))
            self.assertEqual((line["prompt_tokens"], line["gen_tokens"], line["repeat"]), (9, 8, 2))
            plan = good_json("plan", TINY, "--schedule", line["schedule"], "--prompt-tokens", "9", "--max-tokens", "8",
                             "--json")
            self.assertAlmostEqual(line["layer_speedup"], plan["layer_speedup"])
            more = plan["kv_bytes_full"] - plan["kv_bytes_per_row"]
            full = next(x for x in lines if x["batch"] == line["batch"] and x["target"] == 1)
            self.assertEqual(line["planned_bytes"], full["planned_bytes"] - line["batch"] * more)
            # tokens a second times the weights of a token, the batch sharing each reading of them
            info = good_json("info", TINY, "--json")
            panels = lambda n: -(-n // 64) * 64
            h, f = info["hidden_size"], info["ffn_size"]
            layer = 4 * (panels(3 * h) * h + panels(h) * h + panels(f) * h + panels(h) * f)
            step = plan["mean_budget"] * layer + 4 * panels(info["vocab_size"]) * h
            rate = line["decode_tps_by_repetition"][0] / line["batch"] * step * 1e-9
            share = rate / line["probe_gbps_by_repetition"][0]
            self.assertAlmostEqual(line["read_share_by_repetition"][0], share, delta=1e-6 * share)

    @unittest.skipIf(SANITIZED, TIMES_TOO_LONG)
    def test_shapes(self):
        for args in (["--shape", "e2e"], ["--shape=e2e", "--weights", "bf16", "--seed", "3"],
                     ["--shape", "e2e", "--weights", "q4", "--kv", "f32"], ["--shape", "e2e", "--head", "q8"]):
            lines = self.bench(*args, *SHORT, "--batch", "2", "--speedups", "5")
            self.assertEqual([x["target"] for x in lines], [1, 5])  # full depth is measured, asked for or not
            for line in lines:
                self.check(line, 2)
                self.assertEqual((line["shape"], line["random_weights"], line["n_layers"]), ("e2e", True, 24))
        self.assertEqual((lines[0]["weights"], lines[0]["head"], lines[0]["kv"]), ("f32", "q8", "f32"))

    def test_defaults_fit(self):
        lines = self.bench(TINY, "--quick", "--batch", "1", "--speedups", "1", "--repeat", "1")  # 64 positions
        self.assertEqual(len(lines), 1)
        self.check(lines[0], 1)
        self.assertEqual((lines[0]["prompt_tokens"], lines[0]["gen_tokens"]), (32, 32))
        lines = self.bench(TINY, "--batch", "1", "--speedups", "1", "--repeat", "1")
        self.assertLessEqual(lines[0]["prompt_tokens"] + lines[0]["gen_tokens"], 65)

    @unittest.skipIf(SANITIZED, TIMES_TOO_LONG)
    def test_prompts_in_pieces(self):
        for tokens in ("1", "7", "100"):
            for folder in ("opt-tiny-350m", "opt-tiny-hd80"):
                lines = self.bench(os.path.join(FIXTURES, folder), *SHORT, "--batch", "3", "--speedups", "1.2",
                                   "--prefill-tokens", tokens)
                self.assertEqual(len(lines), 2)


class Text(Case):
    def test_table(self):
        text = self.good("bench", TINY, *SHORT, "--batch", "1,4", "--speedups", "1,2").out.decode()
        self.assertTrue(text.startswith(TINY + "\n"))
        self.assertNotIn("random weights", text)
        table = re.findall(r"^ +(\d+) +([\d.]+)x +\S+ \(\S+-\S+\) .* ([\d.]+)x +([\d.]+)x +([\d.]+)x +\d+ +\d+$", text,
                           re.M)
        self.assertEqual([line[:2] for line in table], [("1", "1"), ("1", "2"), ("4", "1"), ("4", "2")])
        self.assertEqual([line[2] for line in table], ["1.00", table[1][2], "1.00", table[1][2]])
        self.assertEqual(len(re.findall(r"read probe by repetition, GB/s: [\d.]+ [\d.]+; fastest", text)), 2)
        for line in text.splitlines()[1:]:
            self.assertLessEqual(len(line), 130)

    def test_random_weights_are_said(self):
        text = self.good("bench", "--shape", "e2e", *SHORT, "--batch", "1", "--speedups", "1").out.decode()
        self.assertTrue(text.startswith("e2e, random weights: speed only"))

    def test_fast_and_slow_memory(self):
        """Repetitions are sorted into the two kinds whenever the probe says so, and only then."""
        text = self.good("bench", TINY, "--quick", "--batch", "1", "--speedups", "1", "--repeat", "9").out.decode()
        apart = float(re.search(r"fastest to slowest ([\d.]+)", text).group(1))
        kinds = re.findall(r"^  (fast|slow) memory, repetitions((?: \d)+): share", text, re.M)
        if apart > 1.26:
            self.assertEqual([kind for kind, _ in kinds], ["fast", "slow"])
            self.assertEqual(sorted("".join(numbers for _, numbers in kinds).split()), list("123456789"))
        elif apart < 1.24:
            self.assertEqual(kinds, [])


class Plot(Case):
    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_png(self):
        self.good("bench", TINY, *SHORT, "--batch", "1,2", "--speedups", "1,2,3", "--plot", "it's.png", cwd=self.dir)
        self.assertEqual(os.listdir(self.dir), ["it's.png"])
        picture = read(self.path("it's.png"))
        self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", picture[16:24]), (1200, 600))

    def test_refused_before_any_work(self):
        self.refused(FAILURE, "bench", "--shape", "opt-6.7b", "--plot", self.path("no", "p.png"), says="p.png")
        self.refused(USAGE, "bench", "--shape", "opt-6.7b", "--plot", self.dir, says="is a directory")
        self.refused(FAILURE, "bench", "--shape", "opt-6.7b", "--plot", self.path("p.png"), env={"PATH": self.dir},
                     says=("--plot needs gnuplot", "apt-get install gnuplot-nox"))


class Refused(Case):
    def usage(self, *args, says=()):
        return self.refused(USAGE, "bench", *args, says=says)

    def test_what_is_measured(self):
        self.usage(says=("expected a model directory or --shape NAME",))
        self.usage(TINY, "--shape", "e2e", says=(TINY, "--shape", "exclude"))
        self.usage("--shape", "opt-13b", says=('--shape "opt-13b"', "opt-125m, opt-350m, opt-1.3b", "opt-6.7b", "e2e"))
        self.usage(self.path("nowhere"), says=("nowhere", "no such directory"))

    def test_lists(self):
        for option, low in (("--batch", "0"), ("--speedups", "0.99")):
            for bad in ("", ",", "1,", ",1", "x", "1,x", "1;2", low, "-1", "nan", "inf", "1,,2", "1e9", "0x", " "):
                self.usage("--shape", "opt-6.7b", option, bad, says=(option, "expected"))
            self.usage("--shape", "opt-6.7b", option, "1,2,2", says=(option, "2 comes twice"))
            self.usage("--shape", "opt-6.7b", option, ",".join(str(i + 2) for i in range(17)), says=(option, "16"))
        self.usage("--shape", "opt-6.7b", "--batch", "1.5", says=("--batch", "whole numbers"))
        self.usage("--shape", "opt-6.7b", "--batch", "4097", says=("--batch", "4096"))
        self.usage("--shape", "opt-6.7b", "--speedups", ",".join(str(i + 2) for i in range(16)), says="besides 1")

    def test_lengths(self):
        for prompt, gen in (("60", "6"), ("64", "2"), ("65", "1"), ("2147483647", "2147483647"), ("1", "2147483647"),
                            ("10", "1")):
            ok = int(prompt) + int(gen) - 1 <= 64 and int(gen) >= 2
            args = ("bench", TINY, "--prompt", prompt, "--gen", gen, "--batch", "1", "--speedups", "1", "--repeat", "1")
            if ok:
                self.good(*args)
            else:
                self.refused(USAGE, *args, says=("--prompt " + prompt, "--gen " + gen, "64 positions"))
        self.refused(USAGE, "bench", TINY, "--prompt", "70", says=("--prompt 70", "64 positions"))

    def test_others(self):
        self.usage("--shape", "opt-6.7b", "--repeat", "1001", says=("--repeat 1001", "1 .. 1000"))
        self.usage("--shape", "opt-6.7b", "--measure", "seconds", says=('--measure "seconds"', "wall or layers"))
        self.usage("--shape", "opt-6.7b", "--weights", "q5", says=('--weights "q5"', "q8"))

    @unittest.skipIf(SANITIZED, TIMES_TOO_LONG)
    def test_by_the_clock(self):
        args = ("bench", "--shape", "e2e", *SHORT, "--batch", "1,3", "--speedups", "1.5,3", "--measure", "wall")
        lines = rows(self.good(*args, "--json").out)
        self.assertEqual([(line["batch"], line["target"]) for line in lines],
                         [(b, t) for b in (1, 3) for t in (1, 1.5, 3)])
        for line in lines:
            self.assertEqual(line["measure"], "wall")
            if line["target"] == 1:
                self.assertIsNone(line["predicted_speedup"])
                self.assertEqual(line["layer_speedup"], 1)
            else:
                self.assertGreater(line["predicted_speedup"], 1)
                self.assertGreater(line["layer_speedup"], 1)
        self.assertEqual(self.good(*args).out.count(b"  predicted "), 4)

    def test_out_of_reach(self):
        result = run("bench", TINY, *SHORT, "--batch", "1", "--speedups", "100")
        self.assertEqual(result.code, OK)
        self.assertIn("speedup 100 is out of reach", result.err.decode())


if __name__ == "__main__":
    main(needs_model=False)
