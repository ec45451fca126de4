#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode logits: the reference's logits, step by step, in a directory that has no tokenizer."""
import json
import os
import struct

from support import FIXTURES, TINY, Case, good_json, main, read, read_safetensors

MODELS = ("opt-tiny-prenorm", "opt-tiny-350m", "opt-tiny-gelu-nobias", "opt-tiny-hd80", "opt-tiny-nofinalnorm")


def listed(ids):
    return ",".join(map(str, ids))


class Expected(Case):
    def test_reference(self):
        for folder in MODELS:
            model = os.path.join(FIXTURES, folder)
            self.assertFalse(os.path.exists(os.path.join(model, "vocab.json")))
            stored = read_safetensors(os.path.join(model, "expected.safetensors"))
            for case in json.loads(read(os.path.join(model, "cases.json"))):
                fed = good_json("logits", model, "--ids", listed(case["ids"]), "--forced", listed(case["forced"]),
                                "--schedule", case["schedule"], "--json")
                self.compare(stored, case, fed)

    def compare(self, stored, case, fed):
        dtype, shape, data = stored[case["name"]]
        self.assertEqual(dtype, "F32")
        self.assertEqual(shape, [len(case["forced"]) + 1, fed["vocab_size"]])
        expected = struct.unpack("<%df" % (shape[0] * shape[1]), data)
        self.assertEqual((fed["ids"], fed["forced"]), (case["ids"], case["forced"]))
        self.assertEqual(len(fed["rows"]), shape[0])
        for i, row in enumerate(fed["rows"]):
            self.assertEqual(row["step"], i - 1 if i else None)
            self.assertEqual(row["position"], len(case["ids"]) + i - 1)
            self.assertEqual(row["layers"], sorted(set(row["layers"])))
            want = expected[i * shape[1]:(i + 1) * shape[1]]
            self.assertEqual(len(row["logits"]), shape[1])
            scale = max(1.0, max(map(abs, want)))
            worst = max(abs(a - b) for a, b in zip(row["logits"], want))
            self.assertLess(worst, 2e-5 * scale, (case["name"], i))

    def test_layers_are_the_plan(self):
        for spec in ("max=6,min=2,horizon=5", "warmup=2,max=5,min=3,horizon=5,prompt=max",
                     "budgets=6:4:3:2,ranking=0:1:2:3:4:5:6"):
            fed = good_json("logits", TINY, "--ids", "2,7", "--forced", listed(range(5, 14)), "--schedule", spec,
                            "--json")
            plan = good_json("plan", TINY, "--schedule", spec, "--max-tokens", "10", "--json")
            self.assertEqual(len(fed["rows"][0]["layers"]), plan["prompt_budget"])
            self.assertEqual([len(row["layers"]) for row in fed["rows"][1:]], plan["budgets"])
            steps = [sum(layer in row["layers"] for row in fed["rows"][1:]) for layer in range(7)]
            self.assertEqual(steps, plan["layer_steps"])
            self.assertEqual(fed["schedule"], plan["schedule"])

    def test_text(self):
        fed = good_json("logits", TINY, "--ids", "2,9", "--forced", "4,50", "--schedule", "max=5,min=2,horizon=3",
                        "--json")
        lines = self.good("logits", TINY, "--ids", "2,9", "--forced", "4,50", "--schedule",
                          "max=5,min=2,horizon=3").out.decode()
        self.assertEqual(lines.count("\n"), 3)
        for line, row in zip(lines.splitlines(), fed["rows"]):
            words = line.split()
            self.assertEqual(words[0], "prompt" if row["step"] is None else str(row["step"]))
            self.assertEqual(int(words[2]), row["position"])
            self.assertEqual(int(words[4]), len(row["layers"]))
            self.assertEqual(int(words[7]), row["logits"].index(max(row["logits"])))
            self.assertAlmostEqual(float(words[9]), max(row["logits"]), places=4)

    def test_threads_and_reading_make_no_difference(self):
        args = ["logits", TINY, "--ids", "2,9,40", "--forced", "4,50,7", "--speedup", "2", "--json"]
        first = self.good(*args, "--threads", "1").out
        for more in (["--threads", "3"], ["--no-mmap"], ["--threads", "2", "--weights", "f32"]):
            self.assertEqual(self.good(*args, *more).out, first)
        half = json.loads(self.good(*args, "--weights", "bf16").out)
        full = json.loads(first)
        worst = max(abs(a - b) for x, y in zip(half["rows"], full["rows"]) for a, b in zip(x["logits"], y["logits"]))
        self.assertGreater(worst, 0)
        self.assertLess(worst, 0.5)


if __name__ == "__main__":
    main(needs_model=False)
