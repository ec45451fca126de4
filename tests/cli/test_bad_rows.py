#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Inputs that are wrong somewhere: the file, the line and the fault are named before any row is computed, and nothing
is written. Status 1 for bytes that are not the format's, 2 for values that no run can have."""
import json
import os
import unittest

from support import (FAILURE, MODEL, SANITIZED, USAGE, Case, good_json, main, meaning_representations, rows, run, write,
                     write_csv)

GOOD = '{"prompt": "a"}\n'


class Rows(Case):
    def bad(self, name, content, code, *says, options=()):
        path = write(self.path(name), content)
        for output in ((), ("--output", self.path("out.jsonl"))):
            self.refused(code, "generate", MODEL, "--input", path, "--max-tokens", "2", *options, *output,
                         says=(path, *says))
        os.remove(path)


class Lines(Rows):
    def test_files(self):
        missing = self.path("missing.csv")
        self.refused(FAILURE, "generate", MODEL, "--input", missing, says=(missing, "No such file"))
        self.refused(FAILURE, "generate", MODEL, "--input", self.dir, says=(self.dir, "Is a directory"))
        self.refused(FAILURE, "tokenize", MODEL, "--input", missing, says=(missing, "No such file"))
        self.refused(FAILURE, "tokenize", MODEL, "--input", self.dir, says=(self.dir, "Is a directory"))
        self.refused(USAGE, "generate", MODEL, "--input", "/dev/null", says=("/dev/null", "no rows"))
        self.refused(USAGE, "generate", MODEL, "--input", "-", says=("standard input", "no rows"))
        self.assertEqual(self.good("tokenize", MODEL, "--input", "/dev/null").out, b"")

    def test_nothing_in_them(self):
        self.bad("in.txt", "", USAGE, "no rows")
        self.bad("in.jsonl", "\n \n\t\r\n", USAGE, "no rows")
        self.bad("in.csv", "", FAILURE, "the CSV is empty")
        self.bad("in.csv", "\n\r\n", FAILURE, "the CSV is empty")
        self.bad("in.csv", "mr,ref\n", USAGE, "no rows")
        self.bad("in.txt", "\xef\xbb\xbf".encode("latin-1"), USAGE, "no rows")

    def test_empty_prompts(self):
        self.bad("in.txt", "a\n\nb\n", USAGE, "line 2", "the prompt is empty")
        self.bad("in.jsonl", GOOD + '{"prompt": ""}', USAGE, "line 2", "the prompt is empty")
        self.bad("in.csv", "mr,ref\n,x\n", USAGE, "line 2", "the prompt is empty", options=["--template", "{mr}"])
        self.refused(USAGE, "generate", MODEL, "--prompt", "", says="the prompt is empty")

    def test_not_utf8(self):
        for content in (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"):
            self.bad("in.txt", b"ok\n" + content + b"\n", USAGE, "line 2", "not valid UTF-8")
            self.bad("in.csv", b"mr,ref\nok,x\n" + content + b",x\n", USAGE, "line 3", "not valid UTF-8")
            line = b'{"prompt": "' + content + b'"}\n'
            self.bad("in.jsonl", GOOD.encode() + line, FAILURE, "line 2", "not valid JSON")
            self.refused(USAGE, "generate", MODEL, "--prompt", content.decode("utf-8", "surrogateescape"),
                         says="not valid UTF-8")

    def test_past_the_positions(self):
        prompt = " ".join(meaning_representations(60))
        n = len(good_json("tokenize", MODEL, "--text", prompt, "--bos")["ids"])
        positions = good_json("info", MODEL, "--json")["max_positions"]
        self.assertGreater(n, positions)
        self.bad("in.txt", "a\n%s\n" % prompt, USAGE, "line 2", "%d positions" % positions, "shorten")
        self.refused(USAGE, "generate", MODEL, "--prompt", prompt, "--raw", says=(str(n), "%d positions" % positions))

    def test_a_line_of_ten_megabytes(self):
        size = (1 if SANITIZED else 10) << 20
        for unit in (b"a", b"ab ", "\u4f60".encode()):
            line = unit * (size // len(unit))
            self.bad("in.txt", line, USAGE, "line 1", "shorten")
        self.bad("in.jsonl", b'{"prompt": "' + b"x" * size + b'"}', USAGE, "line 1", "shorten")
        self.bad("in.jsonl", b"[" * size, FAILURE, "line 1", "depth")
        self.bad("in.csv", b'mr\n"' + b"x\n" * (size // 2), FAILURE, "line 2", "never closed")
        self.bad("in.csv", b"mr\n" + b"," * size, FAILURE, "line 2", "%d fields" % (size + 1))


class JsonLines(Rows):
    def test_not_json(self):
        for text in ("{", '{"prompt": "a"', "nonsense", "{'prompt': 'a'}", '{"prompt": "a"} {"prompt": "b"}',
                     '{"prompt": "a", "prompt": "b"}', '{"prompt": "a\\u0000b"}', '{"prompt": "\\ud800"}', "\0",
                     '{"prompt": "a\tb"}', '{"prompt": NaN}', '{"prompt": "a", "id": %s}' % ("9" * 30),
                     '{"prompt": "a", "temperature": 1e999}', "[" * 5000, '{"prompt": ' + '{"a":' * 5000):
            self.bad("in.jsonl", GOOD + text + "\n" + GOOD, FAILURE, "line 2", "not valid JSON")

    def test_not_an_object(self):
        for text, kind in (("[]", "an array"), ("7", "a number"), ('"a"', "a string"), ("null", "null"),
                           ("true", "a boolean"), ('["prompt"]', "an array")):
            self.bad("in.jsonl", GOOD + text, FAILURE, "line 2", "expected a JSON object, found " + kind)

    def test_prompt(self):
        for value, kind in ((7, "a number"), (None, "null"), ([], "an array"), ({}, "an object"), (True, "a boolean")):
            self.bad("in.jsonl", json.dumps({"prompt": value}), FAILURE, "line 1", 'key "prompt"', kind)
        self.bad("in.jsonl", '{"text": "a"}', USAGE, "line 1", 'field "mr"', 'only "text"')
        self.bad("in.jsonl", "{}", USAGE, "line 1", 'field "mr"', "none")
        self.bad("in.jsonl", '{"mr": 7}', USAGE, "line 1", 'field "mr"')
        self.bad("in.jsonl", '{"mr": "a"}', FAILURE, "line 1", 'key "prompt"', "found nothing", options=["--raw"])

    def test_settings(self):
        wrong = {
            "max_tokens": ["3", 0, -1, 2.5, 1e30, [], True],
            "seed": ["1", -1, 1.5, 1e300, {}],
            "top_k": ["1", -1, 0.5, 1 << 40],
            "temperature": ["0", [], True, -0.1, 101],
            "top_p": ["1", 0, -1, 1.01],
            "min_p": [[], -0.1, 1],
            "repetition_penalty": ["1", 0, -2, 1000],
            "stop": [7, {}, [7], ["a", None], "", [""], ["a"] * 17, "x" * 1025, True],
        }
        for key, values in wrong.items():
            for value in values:
                path = write(self.path("in.jsonl"), GOOD + json.dumps({"prompt": "a", key: value}) + "\n")
                before = os.listdir(self.dir)
                result = run("generate", MODEL, "--input", path, "--output", self.path("out.jsonl"))
                text = result.err.decode()
                self.assertIn(result.code, (FAILURE, USAGE), (key, value))
                self.one_sentence(text)
                for part in (path, "row 1 (line 2)", key):
                    self.assertIn(part, text)
                self.assertRegex(text, "expected|is outside")
                self.assertEqual(os.listdir(self.dir), before)

    def test_more_than_there_is_room_for(self):
        self.bad("in.jsonl", GOOD + '{"prompt": "a", "max_tokens": 100000}', USAGE, "row 1 (line 2)",
                 "max_tokens 100000", "positions")

    def test_schedule_of_a_row(self):
        """Budgets are checked against the model before the first row, not when a row's turn comes."""
        self.bad("in.jsonl", GOOD, USAGE, "row 0", "25 layers", options=["--schedule", "budgets=25:3"])


class Csv(Rows):
    def test_ragged(self):
        self.bad("in.csv", "mr,ref\na,b\nc\n", FAILURE, "line 3", "1 fields, the header has 2")
        self.bad("in.csv", "mr,ref\na,b\nc,d,e\n", FAILURE, "line 3", "3 fields, the header has 2")
        self.bad("in.csv", "mr,ref\n\n\n\na\n", FAILURE, "line 5", "1 fields, the header has 2")

    def test_quotes(self):
        self.bad("in.csv", 'mr,ref\na,b\n"c,d\ne,f\n', FAILURE, "line 3", "never closed")
        self.bad("in.csv", 'mr,"ref\n', FAILURE, "line 1", "never closed")

    def test_columns(self):
        self.bad("in.csv", "text,ref\na,b\n", USAGE, 'field "mr"', '"text", "ref"')
        self.bad("in.csv", "name[The Eagle],x\nname[Cocum],y\n", USAGE, 'field "mr"', "name[The Eagle]")  # no header
        self.bad("in.csv", "a,b\n1,2\n", USAGE, 'field "c"', options=["--template", "{a} {c}"])
        self.bad("in.csv", "mr,mr\n1,2\n", FAILURE, 'column "mr" twice')
        self.bad("in.csv", "a,a,mr\n1,2,3\n", FAILURE, 'column "a" twice', options=["--template", "{a}{mr}"])
        table = write(self.path("ok.csv"), "a,a,mr\n1,2,name[Cocum]\n")
        self.good("generate", MODEL, "--input", table, "--quiet")

    def test_needs_a_template(self):
        self.bad("in.csv", "mr\na\n", USAGE, "--template", options=["--raw"])

    def test_nul(self):
        for name, content, n in (("nul.csv", b"mr,ref\na\0b,c\n", 1), ("nul.txt", b"a\0b\n\0\n", 2)):
            path = write(self.path(name), content)
            done = self.good("generate", MODEL, "--input", path, "--quiet", "--max-tokens", "2")
            self.assertEqual(len(rows(done.out)), n)


class Templates(Rows):
    def test_malformed(self):
        table = write_csv(self.path("in.csv"), 2)
        for template, says in (("{mr", "a { without }"), ("mr}", "a } without {"), ("{}", "an empty field"),
                               ("{mr}}", "a } without {"), ("{{mr}", "a } without {")):
            for source in (["--input", table], ["--prompt", "a"]):
                self.refused(USAGE, "generate", MODEL, *source, "--template", template, says=(template, says))

    def test_text_fills_one_field(self):
        lines = write(self.path("in.txt"), "a\n")
        for template, n in (("none", 0), ("{a}{b}", 2), ("", 0)):
            for source in (["--input", lines], ["--prompt", "a"]):
                self.refused(USAGE, "generate", MODEL, *source, "--template", template, says="has %d fields" % n)


class Tokenize(Rows):
    def test_lines(self):
        for text in ("{", "[]", "7", '{"text": 7}', "{}", '{"text": "a"} x', '{"text": "a", "text": "b"}', "\0", "\xff",
                     "[" * 5000):
            path = write(self.path("in.jsonl"), ('{"text": "a"}\n\n' + text + "\n").encode("latin-1"))
            self.refused(FAILURE, "tokenize", MODEL, "--input", path, says=(path, "line 3", 'a string "text"'),
                         nothing_printed=False)  # lines are printed as they are read


if __name__ == "__main__":
    main()
