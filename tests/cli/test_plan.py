#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode plan: its numbers are those of docs/METHOD.md, worked out here once more from the formulas."""
import json
import math
import os
import re
import shutil
import struct
import unittest
from fractions import Fraction

from support import FAILURE, FIXTURES, MODEL, TINY, USAGE, Case, good_json, main, read, run, special_files

def half_up(x):
    return math.floor(Fraction(x) + Fraction(1, 2))


def budget(low, high, horizon, step):
    """k(j) of docs/METHOD.md."""
    if horizon == 1:
        return high
    return half_up(Fraction(high) - Fraction((high - low) * min(step, horizon - 1), horizon - 1))


def preset(n_layers, speedup, warmup):
    """(k_max, k_min); speedup as a string, so that 1.6 is exactly that."""
    mean = Fraction(n_layers) / Fraction(speedup)
    high, low = half_up(Fraction(4, 3) * mean), half_up(Fraction(2, 3) * mean)
    if high > n_layers:
        high, low = n_layers, half_up(2 * mean - n_layers)
    high = min(max(high, warmup + 1), n_layers)
    return high, min(max(low, warmup + 1), high)


def settings(text):
    return dict(item.split("=") for item in text.split(",") if "=" in item)


class Numbers(Case):
    def check(self, model, plan, warmup, budgets, prompt_budget):
        """All that follows from the budgets."""
        info = good_json("info", model, "--json")
        n, p, steps = info["n_layers"], plan["prompt_tokens"], plan["max_tokens"] - 1
        rank = [layer if layer < warmup else warmup + n - 1 - layer for layer in range(n)]
        runs = [[rank[layer] < k for k in budgets] for layer in range(n)]
        self.assertEqual(plan["n_layers"], n)
        self.assertEqual(plan["budgets"], budgets)
        self.assertEqual(len(budgets), steps)
        self.assertEqual(plan["prompt_budget"], prompt_budget)
        self.assertEqual(plan["layer_steps"], [sum(row) for row in runs])
        self.assertAlmostEqual(plan["mean_budget"], sum(budgets) / steps)
        self.assertAlmostEqual(plan["layer_speedup"], n * steps / sum(budgets))
        self.assertAlmostEqual(plan["request_layer_speedup"], n * (p + steps) / (p * prompt_budget + sum(budgets)))
        position = 2 * info["n_heads"] * info["head_dim"] * 4  # keys and values in f32
        kept = [(p if rank[layer] < prompt_budget else 0) + sum(runs[layer]) for layer in range(n)]
        self.assertEqual(plan["kv_bytes_per_row"], position * sum(kept))
        self.assertEqual(plan["kv_bytes_full"], position * n * (p + steps))

    def test_presets(self):
        warmup = 1
        for folder in ("opt-tiny-prenorm", "opt-tiny-350m", "opt-tiny-hd80"):
            model = os.path.join(FIXTURES, folder)
            n = good_json("info", model, "--json")["n_layers"]
            for speedup in ("1", "1.1", "1.3333", "1.5", "1.6", "1.75", "2", "2.5", "3", "3.5", "4", "5", "7", "50"):
                for tokens in (2, 9, 36):
                    plan = good_json("plan", model, "--speedup", speedup, "--max-tokens", str(tokens),
                                     "--prompt-tokens", "5", "--json")
                    high, low = preset(n, speedup, warmup)
                    self.check(model, plan, warmup, [budget(low, high, tokens, j) for j in range(tokens - 1)], n)

    @unittest.skipUnless(MODEL, "models/e2e-24l has no weights")
    def test_presets_of_the_model(self):
        """The model's own horizon and warm-up, 24 layers."""
        recipe = json.loads(read(os.path.join(MODEL, "skipdecode.json")))["schedule"]
        for speedup in ("1", "2", "2.5", "3", "4", "5"):
            plan = good_json("plan", MODEL, "--speedup", speedup, "--max-tokens", "64", "--json")
            high, low = preset(24, speedup, recipe["warmup"])
            self.check(MODEL, plan, recipe["warmup"], [budget(low, high, recipe["horizon"], j) for j in range(63)], 24)
            if speedup == "3":
                self.assertEqual(plan["schedule"], "warmup=%d,max=11,min=5,horizon=%d,prompt=full"
                                 % (recipe["warmup"], recipe["horizon"]))

    def test_schedules(self):
        for spec, warmup, budgets, prompt in (
                ("warmup=2,max=6,min=3,horizon=7,prompt=max", 2, [budget(3, 6, 7, j) for j in range(11)], 6),
                ("max=5,min=2,horizon=1", 1, [5] * 11, 7),
                ("max=5,min=2,horizon=2,prompt=6", 1, [5] + [2] * 10, 6),
                ("warmup=0,max=1,prompt=max", 0, [1] * 11, 1),
                ("max=4", 1, [4] * 11, 7),
                ("budgets=7:6:6:3:2", 1, [7, 6, 6, 3] + [2] * 7, 7),
                ("budgets=3,prompt=max", 1, [3] * 11, 3),
                ("full", 1, [7] * 11, 7)):
            plan = good_json("plan", TINY, "--schedule", spec, "--max-tokens", "12", "--prompt-tokens", "9", "--json")
            self.check(TINY, plan, warmup, budgets, prompt)
            again = good_json("plan", TINY, "--schedule", plan["schedule"], "--max-tokens", "12", "--prompt-tokens",
                              "9", "--json")
            self.assertEqual(again, plan)

    def test_ranking(self):
        plan = good_json("plan", TINY, "--schedule", "budgets=4:2,ranking=3:1:0:2:4:5:6", "--max-tokens", "4", "--json")
        self.assertEqual(plan["layer_steps"], [1, 3, 1, 3, 0, 0, 0])

    def test_one_token(self):
        plan = good_json("plan", TINY, "--speedup", "3", "--max-tokens", "1", "--prompt-tokens", "10", "--json")
        self.assertEqual((plan["budgets"], plan["layer_speedup"], plan["request_layer_speedup"]), ([], 1.0, 1.0))
        self.assertEqual(plan["kv_bytes_per_row"], plan["kv_bytes_full"])
        self.good("plan", TINY, "--speedup", "3", "--max-tokens", "1")


class Text(Case):
    def text_and_plan(self, *args):
        return self.good("plan", *args).out.decode(), good_json("plan", *args, "--json")

    def test_table_and_picture_agree_with_the_numbers(self):
        for args in ([TINY, "--speedup", "2", "--max-tokens", "30"],
                     [TINY, "--schedule", "max=6,min=2,horizon=9,ranking=0:6:2:4:1:3:5", "--max-tokens", "12"],
                     [TINY, "--speedup", "3", "--max-tokens", "64", "--prompt-tokens", "1"],
                     [TINY]):
            text, plan = self.text_and_plan(*args)
            budgets, n = plan["budgets"], plan["n_layers"]
            table = re.findall(r"^ *(\d+)(?:-(\d+))?  +(\d+)  ([\d,-]+)$", text, re.M)
            listed, sets = [], []
            for first, last, layers, which in table:
                steps = int(last or first) - int(first) + 1
                self.assertEqual(int(first), len(listed))
                layer_set = set()
                for part in which.split(","):
                    ends = [int(x) for x in part.split("-")]
                    layer_set.update(range(ends[0], ends[-1] + 1))
                self.assertEqual(len(layer_set), int(layers))
                listed += [int(layers)] * steps
                sets += [layer_set] * steps
            self.assertEqual(listed, budgets)
            for before, after in zip(sets, sets[1:]):
                self.assertLessEqual(after, before)
            self.assertEqual([sum(layer in s for s in sets) for layer in range(n)], plan["layer_steps"])
            picture = re.findall(r"^layer +(\d+) \|(.*)$", text, re.M)
            self.assertEqual([int(layer) for layer, _ in picture], list(range(n - 1, -1, -1)))
            columns = min(64, len(budgets))
            for layer, cells in picture:
                expected = [
                    "\u2588" if int(layer) in sets[c * len(budgets) // columns] else "\u00b7" for c in range(columns)
                ]
                self.assertEqual(list(cells), expected)
            self.assertIn("%d bytes; the full model's %d" % (plan["kv_bytes_per_row"], plan["kv_bytes_full"]), text)
            self.assertIn("%.2fx in decoding, %.2fx over the request" % (plan["layer_speedup"],
                                                                         plan["request_layer_speedup"]), text)
            self.assertIn(plan["schedule"], text)

    def test_defaults_fit(self):
        text, plan = self.text_and_plan(TINY)  # 64 positions
        self.assertEqual((plan["prompt_tokens"], plan["max_tokens"]), (32, 33))
        self.assertEqual(plan["schedule"], "full")


    def test_horizon(self):
        for tokens, says in (("15", "this row ends before it"), ("25", None), ("60", "run the smallest budget")):
            args = [TINY, "--schedule", "max=4,min=2,horizon=24", "--prompt-tokens", "4", "--max-tokens", tokens]
            text, plan = self.text_and_plan(*args)
            self.assertEqual(plan["horizon"], 24)
            budgets = [4 - int(2 * j / 23 + 0.5) if j < 23 else 2 for j in range(24)]
            self.assertAlmostEqual(plan["horizon_layer_speedup"], plan["n_layers"] * 24 / sum(budgets), delta=0.05)
            line = "%.2fx over the schedule's horizon of 24 steps" % plan["horizon_layer_speedup"]
            self.assertEqual(line in text, says is not None)
            self.assertIn(says or "", text)

    def test_out_of_reach(self):
        text = self.good("plan", TINY, "--speedup", "100").err.decode()
        self.assertIn("speedup 100 is out of reach", text)
        self.assertEqual(self.good("plan", TINY, "--speedup", "2").err, b"")


class Plot(Case):
    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_png(self):
        for name in ("p.png", "it's \"one\"\\.png", "|touch pwned", "\u00fc\n.png", "b\udcff.png"):
            self.good("plan", TINY, "--speedup", "2", "--plot", name, cwd=self.dir)
            self.assertEqual(os.listdir(self.dir), [os.fsencode(name).decode("utf-8", "surrogateescape")])
            picture = read(self.path(name))
            self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">II", picture[16:24]), (1000, 600))
            self.assertEqual(picture[-8:-4], b"IEND")
            os.remove(self.path(name))

    def test_without_gnuplot(self):
        os.mkdir(self.path("empty"))
        args = ["plan", TINY, "--speedup", "2", "--plot", self.path("p.png")]
        text = self.refused(FAILURE, *args, env={"PATH": self.path("empty")}, nothing_printed=False,
                            says=("--plot needs gnuplot", "apt-get install gnuplot-nox"))
        self.assertEqual(text.count("\n"), 1)

    def test_gnuplot_that_fails(self):
        os.mkdir(self.path("bin"))
        fake = self.path("bin", "gnuplot")
        for script in ("exit 1", "cat >/dev/null; exit 1", "cat >/dev/null", "kill -9 $$"):
            with open(fake, "w") as file:
                file.write("#!/bin/sh\n%s\n" % script)
            os.chmod(fake, 0o755)
            self.refused(FAILURE, "plan", TINY, "--plot", self.path("p.png"),
                         env={"PATH": self.path("bin") + ":/bin:/usr/bin"}, nothing_printed=False,
                         says=("gnuplot could not draw", "p.png"))

    def test_unwritable(self):
        cases = [(FAILURE, self.path("no", "p.png"), "No such file"), (USAGE, self.dir, "is a directory"),
                 (USAGE, "", "an empty file name")]
        cases += [(USAGE, path, "is a device or a pipe") for path in special_files(self.dir)]
        for code, path, says in cases:
            self.refused(code, "plan", TINY, "--plot", path, says=(path, says))

    def test_no_step_to_draw(self):
        self.refused(USAGE, "plan", TINY, "--max-tokens", "1", "--plot", self.path("p.png"), nothing_printed=False,
                     says=("--plot", "no decode step"))

    def test_json_is_printed_all_the_same(self):
        result = run("plan", TINY, "--json", "--plot", self.path("p.png"), env={"PATH": self.dir})
        self.assertEqual(result.code, FAILURE)
        json.loads(result.out)


if __name__ == "__main__":
    main(needs_model=False)
