#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""eval: its texts are those of generate, its scores those of score, its layers those of plan; grouping, resuming, and
what it refuses. Speeds are not judged here: the machine may be busy with anything."""
import csv
import json
import math
import os
import shutil
import struct
import unittest

from support import FAILURE, MODEL, TINY, USAGE, Case, good_json, main, read, rows, write

KEYS = {"model", "data", "policy", "speedup", "measure", "schedule", "segments", "references", "tokens",
        "layer_speedup", "wall_speedup", "request_speedup", "decode_tps", "loss", "perplexity", "accuracy", "bleu",
        "bleu_ci", "chrf", "rougeL", "slots", "repetition", "bleu_signature", "bleu_bp"}
TABLE = [("name[The Eagle], eatType[pub], area[riverside]", ["The Eagle is a pub by the riverside.",
                                                            "A pub called The Eagle is in the riverside area."]),
         ("name[Cocum], food[Indian], priceRange[cheap]", ["Cocum serves cheap Indian food."]),
         ("name[Zizzi], eatType[coffee shop], near[Burger King]", ["Zizzi is a coffee shop near Burger King.",
                                                                   "Near Burger King there is Zizzi."])]
SHORT = ("--max-tokens", "24", "--batch", "2", "--threads", "1", "--repeat", "1", "--bootstrap", "100")


class WithData(Case):
    def setUp(self):
        super().setUp()
        self.csv = self.path("test.csv")
        with open(self.csv, "w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(["ref", "mr"])
            for i in range(2):  # rows of one prompt need not stand together
                out.writerows([refs[i], mr] for mr, refs in TABLE if i < len(refs))

    def eval(self, *args, data=None):
        result = self.good("eval", MODEL, "--data", data or self.csv, *args, "--json")
        return rows(result.out)


class Lines(WithData):
    def test_texts_scores_and_layers(self):
        out = self.path("out")
        lines = self.eval("--response", "ref", "--speedups", "3,1,1.5", "-o", out, *SHORT)
        self.assertEqual([(x["policy"], x["speedup"]) for x in lines],
                         [("full", 1), ("skipdecode", 3), ("skipdecode", 1.5)])  # full depth comes first
        prompts = write(self.path("prompts.csv"), "mr\n" + "".join('"%s"\n' % mr for mr, _ in TABLE))
        for line in lines:
            self.assertLessEqual(KEYS, set(line))
            self.assertEqual((line["segments"], line["references"], line["measure"]), (3, 5, "layers"))
            self.assertTrue(line["bleu_signature"].startswith("nrefs:var|"))
            name = os.path.join(out, "%s-%gx.jsonl" % (line["policy"], line["speedup"]))
            texts = rows(read(name))
            # the very rows that generate writes, keys included
            args = [] if line["speedup"] == 1 else ["--speedup", "%g" % line["speedup"], "--measure", "layers"]
            self.good("generate", MODEL, "--input", prompts, "--output", self.path("texts.jsonl"), "--max-tokens", "24",
                      "--overwrite", "--quiet", *args)
            self.assertEqual(texts, rows(read(self.path("texts.jsonl"))))
            # the scores that score gives
            scores = good_json("score", "--hyp", name, "--ref", self.csv, "--json", "--bootstrap", "100", "--metrics",
                               "bleu,chrf,rougeL,slots,repetition")
            for key in ("bleu", "bleu_ci", "chrf", "rougeL", "slots", "repetition", "slots_ci"):
                self.assertAlmostEqual(line[key], scores[key], msg=key)
            run = sum(row["layers_run"] for row in texts)
            full = sum(row["layers_full"] for row in texts)
            self.assertAlmostEqual(line["layer_speedup"], full / run)
            self.assertAlmostEqual(line["tokens"], sum(row["completion_tokens"] for row in texts) / 3)
            self.assertAlmostEqual(line["perplexity"], math.exp(line["loss"]))
            self.assertTrue(0 < line["accuracy"] < 1)
            for key in ("wall_speedup", "request_speedup", "decode_tps"):
                self.assertGreater(line[key], 0)
            self.assertEqual("bleu_p" in line, line["speedup"] != 1)
        self.assertEqual(rows(read(os.path.join(out, "scores.jsonl"))), lines)

    def test_grouping(self):
        args = ("--speedups", "1", "--repeat", "0", "--loss", "none", "--threads", "1", "--max-tokens", "8")
        apart, = self.eval("--response", "ref", "--no-group", *args)
        self.assertEqual((apart["segments"], apart["references"], apart["wall_speedup"], apart["loss"]),
                         (5, 5, None, None))
        grouped, = self.eval("--response", "ref", *args)
        few, = self.eval("--response", "ref", "--limit", "3", *args)
        self.assertEqual((few["segments"], few["references"]), (3, 3))
        lists = write(self.path("test.jsonl"), "".join(json.dumps({"mr": mr, "answers": refs}) + "\n"
                                                       for mr, refs in TABLE))
        listed, = self.eval("--response", "answers", *args, data=lists)
        own = write(self.path("own.jsonl"), "".join(json.dumps({"prompt": mr + "\n", "response": refs}) + "\n"
                                                    for mr, refs in TABLE))
        prompted, = self.eval(*args, data=own)
        source = write(self.path("source.txt"), "".join(mr + "\n" for mr, _ in TABLE))
        target = write(self.path("target.txt"), "".join(refs[0] + "\n" for _, refs in TABLE))
        paired, = self.eval("--data-responses", target, *args, data=source)
        self.assertEqual((paired["segments"], paired["references"]), (3, 3))
        for line in (listed, prompted):
            for key in ("bleu", "chrf", "rougeL", "slots", "tokens", "references"):
                self.assertEqual(line[key], grouped[key], key)
        self.assertEqual((paired["slots"], paired["tokens"]), (grouped["slots"], grouped["tokens"]))

    def test_loss(self):
        """The loss of the first responses, and of all, from logits of the same schedule."""
        args = ("--response", "ref", "--speedups", "2", "--repeat", "0", "--threads", "1", "--max-tokens", "40")
        for which, count in (("first", 3), ("all", 5)):
            line = self.eval("--loss", which, *args)[1]
            loss = tokens = correct = n = 0
            for mr, refs in TABLE:
                for ref in refs[:1] if which == "first" else refs:
                    n += 1
                    asked = [json.dumps({"text": mr + "\n"}), json.dumps({"text": ref})]
                    path = write(self.path("t.jsonl"), "\n".join(asked) + "\n")
                    prompt, response = [row["ids"] for row in rows(self.good("tokenize", MODEL, "--input", path).out)]
                    response = response + [2]
                    got = good_json("logits", MODEL, "--ids", ",".join(map(str, [2] + prompt)), "--forced",
                                    ",".join(map(str, response)), "--schedule", line["schedule"], "--json", "--threads",
                                    "1")
                    for row, wanted in zip(got["rows"], response):
                        logits = row["logits"]
                        most = max(logits)
                        loss -= logits[wanted] - most - math.log(sum(math.exp(x - most) for x in logits))
                        correct += logits.index(most) == wanted
                        tokens += 1
            self.assertEqual((n, line["loss_tokens"]), (count, tokens))
            self.assertAlmostEqual(line["loss"], loss / tokens, places=5)
            self.assertAlmostEqual(line["accuracy"], correct / tokens)

    def test_by_the_clock(self):
        line = self.eval("--response", "ref", "--speedups", "2", "--measure", "wall", *SHORT)[1]
        self.assertEqual(line["measure"], "wall")
        self.assertGreater(line["predicted_speedup"], 0)

    def test_text_and_plot(self):
        plot = self.path("plot.png")
        drawn = shutil.which("gnuplot") is not None
        result = self.good("eval", MODEL, "--data", self.csv, "--response", "ref", "--speedups", "2", *SHORT,
                           *(["--plot", plot] if drawn else []))
        text = result.out.decode()
        self.assertIn("3 prompts, 5 responses; 1 thread, batch 2", text)
        self.assertRegex(text, r"\nfull +1x  [0-9.]+ \+- [0-9.]+ ")
        self.assertRegex(text, r"\nskipdecode +2x  [0-9.]+ \+- [0-9.]+\*? ")
        self.assertIn("nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp", text)
        if drawn:
            self.assertEqual(struct.unpack(">II", read(plot)[16:24]), (800, 600))
            self.assertIn("plot.png", result.err.decode())
        else:
            self.assertEqual(result.err, b"")


class Resuming(WithData):
    def test_goes_on(self):
        out = self.path("out")
        args = ("--response", "ref", "--speedups", "2", "--repeat", "0", "--loss", "none", "--threads", "1",
                "--max-tokens", "12", "-o", out)
        first = self.eval(*args)
        self.assertEqual([x["rows_done_now"] for x in first], [3, 3])
        name = os.path.join(out, "skipdecode-2x.jsonl")
        lines = read(name).split(b"\n")
        os.remove(name)
        write(name + ".partial", lines[1] + b"\n" + lines[0][:20])  # as after a crash: a row, and half of another
        again = self.eval(*args)
        self.assertEqual([x["rows_done_now"] for x in again], [0, 2])
        self.assertEqual(read(name).split(b"\n"), lines)
        for key in ("bleu", "layer_speedup", "tokens", "slots"):
            self.assertEqual([x[key] for x in again], [x[key] for x in first])
        # rows of another run
        self.refused(USAGE, "eval", MODEL, "--data", self.csv, *args[:-4], "--max-tokens", "13", "-o", out,
                     says="--overwrite", nothing_printed=False)
        other = self.eval(*args[:-4], "--max-tokens", "13", "-o", out, "--overwrite")
        self.assertEqual([x["rows_done_now"] for x in other], [3, 3])


class Refusals(WithData):
    def bad(self, says, *args, code=USAGE, model=None, **more):
        self.refused(code, "eval", model or MODEL, *args, says=says, **more)

    def test_arguments(self):
        data = ("--data", self.csv, "--response", "ref")
        self.bad("expected --data FILE")
        self.bad("lines of text; give their responses by --data-responses FILE", "--data", "x.txt")
        self.bad('--speedups: value 2, "0.5"', *data, "--speedups", "2,0.5")
        self.bad("--speedups: 2 comes twice", *data, "--speedups", "2,2")
        self.bad("nosuch", *data, "--policies", "skipdecode,nosuch")
        self.bad("full runs all layers, and is always the first line", *data, "--policies", "full")
        self.bad("--policies: skipdecode comes twice", *data, "--policies", "skipdecode,skipdecode")
        self.bad('--policies: ""', *data, "--policies", "skipdecode,")
        self.bad('--measure "time"; expected wall or layers', *data, "--measure", "time")
        self.bad('--loss "last"; expected first, all or none', *data, "--loss", "last")
        self.bad("--batch 5000", *data, "--batch", "5000")
        self.bad("--repeat -1", *data, "--repeat", "-1")
        self.bad("--plot draws against the clock", *data, "--plot", self.path("x.png"), "--repeat", "0")
        self.bad("comes twice", *data, "--metrics", "bleu,bleu")

    def test_data(self):
        self.bad('line 2: no column "response"; there is "ref", "mr"', "--data", self.csv)
        self.bad('the template asks for field "x"', "--data", self.csv, "--response", "ref", "--template", "{x}")
        self.bad("cannot open", "--data", self.path("none.csv"), code=FAILURE)
        empty = write(self.path("empty.csv"), "mr,ref\n")
        self.bad("empty.csv: is empty", "--data", empty, "--response", "ref")
        broken = write(self.path("broken.csv"), b"mr,ref\nname[A],\xff\n")
        self.bad('broken.csv: line 2: "ref": the text is not valid UTF-8', "--data", broken, "--response", "ref",
                 code=FAILURE)
        three, two = write(self.path("3.txt"), "a\nb\nc\n"), write(self.path("2.txt"), "a\nb\n")
        self.bad("3.txt has 3 prompts, %s 2 responses; expected as many" % two, "--data", three, "--data-responses",
                 two)
        self.bad("fills exactly one", "--data", three, "--data-responses", three, "--template", "{a}{b}")
        self.bad("slots: no source holds a slot", "--data", three, "--data-responses", three, "--metrics", "slots",
                 "--speedups", "1", "--max-tokens", "2", "--loss", "none", "--repeat", "0", nothing_printed=False)
        long = write(self.path("long.csv"), "mr,ref\n" + "x " * 5000 + ",y\n")
        self.bad("positions; shorten it", "--data", long, "--response", "ref", nothing_printed=False)

    def test_output(self):
        data = ("--data", self.csv, "--response", "ref", "--limit", "1", "--max-tokens", "2")
        taken = write(self.path("taken"), "a file")
        self.bad("taken: cannot make the directory", *data, "-o", taken, code=FAILURE)
        self.bad("cannot make the directory", *data, "-o", self.path("no", "such"), code=FAILURE)

    def test_model(self):
        self.bad("no such directory", "--data", self.csv, model=self.path("none"))
        self.refused(FAILURE, "eval", TINY, "--data", self.csv, "--response", "ref", "--template", "{mr}",
                     says="tokenizer")


if __name__ == "__main__":
    main()
