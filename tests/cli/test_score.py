#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""score: what it reads and groups, that its scores are those of tests/fixtures/metrics, and what it refuses. The scores
themselves are checked in tests/unit/eval."""
import json
import math
import os

from support import FAILURE, FIXTURES, SANITIZED, USAGE, Case, good_json, main, read, rows, write

METRICS = os.path.join(FIXTURES, "metrics")
TEXTS, REFERENCES = os.path.join(METRICS, "texts.jsonl"), os.path.join(METRICS, "references.jsonl")


class Files(Case):
    def score(self, hyp, *args):
        return good_json("score", "--hyp", hyp, *args, "--json")

    def test_fixture(self):
        with open(os.path.join(METRICS, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)["scores"]
        references = sum(len(row["references"]) for row in rows(read(REFERENCES)))
        for case in expected:
            names = list(case["corpus"])
            got = self.score(TEXTS, "--ref", REFERENCES, "--metrics", ",".join(names), *case["options"])
            self.assertEqual((got["segments"], got["references"]), (1000, references))
            for name in names:
                self.assertAlmostEqual(got[name], case["corpus"][name], delta=1e-6)
            single = rows(self.good("score", "--hyp", TEXTS, "--ref", REFERENCES, "--metrics", ",".join(names),
                                    "--segments", *case["options"]).out)
            self.assertEqual([row["index"] for row in single], list(range(1000)))
            for name, values in case["segments"].items():
                for row, value in zip(single, values):
                    self.assertAlmostEqual(row[name], value, delta=1e-6)

    def test_lines(self):
        hyp = write(self.path("hyp.txt"), "a b c d e\n\nx y z w\r\n")
        one = write(self.path("one.txt"), "a b c d e\nq\nx y z w v\n")
        two = write(self.path("two.txt"), "\n\nx y z w\n")
        got = self.score(hyp, "--ref", one, "--ref", two, "--metrics", "bleu")
        self.assertEqual((got["segments"], got["references"]), (3, 6))  # an empty line is an empty reference
        # lengths 5, 0, 4; the closest of 5 or 0, of 1 or 0 and of 5 or 4
        self.assertEqual((got["bleu_hyp_len"], got["bleu_ref_len"], got["bleu"]), (9, 9, 100))
        self.assertEqual(got["bleu_signature"].split("|version")[0], "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp")
        blocks = write(self.path("blocks.txt"), "a b c d e\n\nq\nr\n\n\nx y z w v\nx y z w\n")
        got = self.score(hyp, "--ref", blocks, "--blocks", "--metrics", "bleu")
        self.assertEqual(got["references"], 5)
        self.assertAlmostEqual(got["bleu"], 100 * math.exp(1 - 10 / 9))
        self.assertTrue(got["bleu_signature"].startswith("nrefs:var|"))

    def test_standard_input(self):
        one = write(self.path("one.txt"), "a b c d\n")
        for text in (b"a b c d\n", b"a b c d", b"\xef\xbb\xbfa b c d\n"):
            result = self.good("score", "--hyp", "-", "--ref", one, "--json", stdin=text)
            self.assertEqual(json.loads(result.out)["bleu"], 100)

    def test_csv_groups(self):
        table = write(self.path("test.csv"), 'mr,ref\n"name[A], area[b]",A is at b.\n"name[C]",C it is\n'
                      '"name[A], area[b]","Two\nlines"\n')
        hyp = write(self.path("hyp.jsonl"), '{"text": "A is at b.", "more": 1}\n\n{"text": "It is D"}\n')
        got = self.score(hyp, "--ref", table, "--metrics", "bleu,slots,slots_copy")
        self.assertEqual((got["segments"], got["references"]), (2, 3))
        self.assertAlmostEqual(got["slots"], 2 / 3)
        got = self.score(hyp, "--ref", table, "--metrics", "all")
        self.assertEqual(sum(key.endswith("_signature") for key in got), 14)
        # another column; and none: every row by itself
        names = write(self.path("names.csv"), "id,x,reference\n1,u,a\n2,u,b\n2,v,c\n")
        self.assertEqual(self.score(hyp, "--ref", names, "--group", "id")["references"], 3)
        self.refused(USAGE, "score", "--hyp", hyp, "--ref", names, says="2 texts, %s 3 segments" % names)
        other = write(self.path("source.txt"), "name[D]\nname[D]\n")
        self.assertAlmostEqual(self.score(hyp, "--ref", names, "--group", "x", "--ref-field", "reference", "--source",
                                          other, "--metrics", "slots")["slots"], 0.5)

    def test_fields(self):
        hyp = write(self.path("hyp.csv"), "answer,n\na b c d,1\n")
        ref = write(self.path("ref.jsonl"), '{"gold": ["x", "a b c d"]}\n')
        got = self.score(hyp, "--hyp-field", "answer", "--ref", ref, "--ref-field", "gold")
        self.assertEqual((got["bleu"], got["references"]), (100, 2))
        self.refused(USAGE, "score", "--hyp", hyp, "--ref", ref, says='no column "text"; there is "answer", "n"')
        self.refused(USAGE, "score", "--hyp", hyp, "--hyp-field", "answer", "--ref", ref,
                     says='line 1: no key "references"; there is "gold"')

    def test_outputs_of_generate(self):
        """A NUL in a text is a character like others."""
        hyp = write(self.path("hyp.jsonl"), '{"text": "a\\u0000b c d e"}\n')
        ref = write(self.path("ref.jsonl"), '{"ref": "a\\u0000b c d e"}\n')
        self.assertEqual(self.score(hyp, "--ref", ref)["bleu"], 100)


class Significance(Case):
    def test_against(self):
        lines = ["w%d x%d y%d z%d" % (i, i, i, i) for i in range(60)]
        ref = write(self.path("ref.txt"), "\n".join(lines) + "\n")
        good = write(self.path("good.txt"), "\n".join(lines[:50] + ["bad"] * 10) + "\n")
        poor = write(self.path("poor.txt"), "\n".join(lines[:20] + ["bad"] * 40) + "\n")
        args = ("--ref", ref, "--metrics", "bleu,rouge1")
        got = good_json("score", "--hyp", good, "--against", poor, *args, "--json")
        self.assertEqual(got["bootstrap"], 1000)
        for name in ("bleu", "rouge1"):
            self.assertLess(got[name + "_p"], 0.01)
            self.assertGreater(got[name], got["against"][name])
            self.assertGreater(got[name + "_ci"], 0)
        self.assertAlmostEqual(got["rouge1"], 50 / 60)
        self.assertAlmostEqual(got["rouge1_mean"], 50 / 60, delta=0.01)
        same = good_json("score", "--hyp", good, "--against", good, *args, "--json", "--bootstrap", "50")
        self.assertEqual((same["bleu_p"], same["bootstrap"]), (1, 50))
        # seeds: the same one gives the same, another one another
        one, two, three = [good_json("score", "--hyp", good, *args, "--json", "--bootstrap", "200", "--bootstrap-seed",
                                     seed) for seed in ("1", "1", "2")]
        self.assertEqual(one, two)
        self.assertNotEqual(one["rouge1_mean"], three["rouge1_mean"])

    def test_text(self):
        ref = write(self.path("ref.txt"), "a b c d\ne f g h\n")
        text = self.good("score", "--hyp", ref, "--ref", ref, "--against", ref).out.decode()
        self.assertIn("2 texts, 2 references\n", text)
        self.assertRegex(text, r"bleu +100\.00 \+- 0\.00   against 100\.00, p = 1\.0000   nrefs:1\|case:mixed\|")
        self.assertIn("precisions 100.0/100.0/100.0/100.0, brevity penalty 1.000, 8 words against 8", text)


class Refusals(Case):
    def setUp(self):
        super().setUp()
        self.hyp = write(self.path("hyp.txt"), "a\nb\n")

    def bad(self, says, *args, code=USAGE, **more):
        self.refused(code, "score", *args, says=says, **more)

    def test_arguments(self):
        pair = ("--hyp", self.hyp, "--ref", self.hyp)
        self.bad("expected --hyp FILE and --ref FILE", "--hyp", self.hyp)
        self.bad("expected --hyp FILE and --ref FILE", "--ref", self.hyp)
        self.bad('unexpected argument "x"', "x", *pair)
        self.bad('--metrics: "blue"; expected some of bleu, chrf, ', *pair, "--metrics", "bleu,blue")
        self.bad('--metrics: ""; expected some of', *pair, "--metrics", "bleu,")
        self.bad("--metrics: bleu comes twice", *pair, "--metrics", "bleu,chrf,bleu")
        self.bad('--tokenize "zh"; expected 13a, intl or none', *pair, "--tokenize", "zh")
        self.bad("--bootstrap -3", *pair, "--bootstrap", "-3")
        self.bad("--bootstrap 1000001; expected 0 .. 1000000", *pair, "--bootstrap", "1000001")
        self.bad("--against tells", *pair, "--against", self.hyp, "--bootstrap", "0")
        self.bad("--segments prints single texts", *pair, "--segments", "--bootstrap", "10")
        self.bad("slots compares texts with what they were to say", *pair, "--metrics", "slots")

    def test_counts(self):
        more = write(self.path("more.txt"), "a\nb\nc\n")
        self.bad("%s has 2 texts, %s 3 segments; expected as many" % (self.hyp, more), "--hyp", self.hyp, "--ref", more)
        self.bad("has 2 texts, %s 3 segments" % more, "--hyp", self.hyp, "--ref", self.hyp, "--ref", more)
        self.bad("has 2 texts, %s 3 segments" % more, "--hyp", self.hyp, "--ref", self.hyp, "--against", more)
        self.bad("has 2 texts, %s 3 segments" % more, "--hyp", self.hyp, "--ref", self.hyp, "--source", more)

    def test_files(self):
        for name, content, code, says in (
                ("empty.txt", "", USAGE, "empty.txt: is empty; expected texts"),
                ("empty.jsonl", "\n \n", USAGE, "empty.jsonl: is empty"),
                ("header.csv", "text\n", USAGE, "header.csv: is empty"),
                ("bad.txt", b"a\n\xff\n", FAILURE, "bad.txt: line 2: the text is not valid UTF-8"),
                ("bad.csv", b"text\na\n\xc3\x28\n", FAILURE, 'bad.csv: line 3: "text": the text is not valid UTF-8'),
                ("bad.jsonl", '{"text": "a"}\n{"text": \n', FAILURE, "bad.jsonl: line 2: not valid JSON"),
                ("list.jsonl", '["a"]\n', FAILURE, "list.jsonl: line 1: expected a JSON object, found an array"),
                ("number.jsonl", '{"text": 3}\n', FAILURE, 'line 1: key "text": expected a string, found a number'),
                ("twice.csv", "text,text\na,b\n", FAILURE, 'the header has column "text" twice'),
                ("ragged.csv", "text,x\na,b\nc\n", FAILURE, "ragged.csv: line 3: 1 fields, the header has 2"),
                ("open.csv", 'text\n"a\n', FAILURE, "line 2: a quoted field is never closed")):
            path = write(self.path(name), content)
            self.bad(says, "--hyp", path, "--ref", self.hyp, code=code)
        self.bad("cannot open", "--hyp", self.path("none.txt"), "--ref", self.hyp, code=FAILURE)
        for content, says in (('{"ref": []}\n', 'key "ref": an empty list'),
                              ('{"ref": ["a", null]}\n', 'key "ref": item 2 is null; expected a string')):
            path = write(self.path("ref.jsonl"), content)
            self.bad(says, "--hyp", self.hyp, "--ref", path, code=FAILURE)

    def test_huge_line(self):
        text = "".join("word%d " % (i % 5000) for i in range(60000 if SANITIZED else 300000))
        path = write(self.path("huge.txt"), text + "\n")
        got = good_json("score", "--hyp", path, "--ref", path, "--json", "--metrics", "bleu,chrf,rougeL,cider")
        self.assertAlmostEqual(got["bleu"], 100)
        self.assertAlmostEqual(got["rougeL"], 1)
        self.bad("rougeLsum of sentences with", "--hyp", path, "--ref", path, "--metrics", "rougeLsum")

    def test_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            self.refused(FAILURE, "score", "--hyp", self.hyp, "--ref", self.hyp, says="cannot write to standard output",
                         stdout=full)


if __name__ == "__main__":
    main(needs_model=False)
