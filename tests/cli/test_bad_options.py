#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Command lines that are wrong: status 2, a sentence that names the option, what was found and what was expected. And
the other way round: the help of every verb, and that every option it lists is accepted."""
import json
import os
import re
import unittest

from support import FAILURE, MODEL, OK, TINY, USAGE, Case, main, run, special_files, write, write_csv

LEVELS = ("ref", "avx2", "avx512", "avx512vnni", "avx512bf16")
VERBS = ("generate", "plan", "logits", "tokenize", "quantize", "info", "bench")
HUGE = ("2147483648", "9999999999", "99999999999999999999", "-99999999999999999999")


def options_of(verb):
    """{"--batch": "N", "--json": None, ...} as the help says."""
    text = run("help", verb).out.decode()
    return {
        name: argument or None
        for name, argument in re.findall(r"^  (--[a-z-]+)(?: ([A-Z][A-Za-z.]*))?  ", text, re.M)
    }


class Usage(Case):
    def usage(self, *args, says=(), **more):
        return self.refused(USAGE, *args, says=says, **more)


class Verbs(Usage):
    def test_none(self):
        result = run()
        self.assertEqual((result.code, result.out), (USAGE, b""))
        for verb in VERBS:
            self.assertIn("\n  %s " % verb, result.err.decode())

    def test_unknown(self):
        for verb in ("generat", "Generate", "", "-x", "--help-me", "\xff", "generate ", "--", "-"):
            for command in ([verb], [verb, MODEL or TINY], ["help", verb]):
                self.usage(*command, says=("unknown verb", "expected generate, plan"))

    def test_help(self):
        overview = self.good("help").out
        self.assertEqual(self.good("--help").out, overview)
        self.assertEqual(self.good("help", "help").out, overview)
        for verb in VERBS:
            text = self.good("help", verb)
            self.assertEqual(text.err, b"")
            self.assertTrue(text.out.startswith(b"usage: skipdecode %s " % verb.encode()))
            self.assertEqual(self.good(verb, "--help").out, text.out)
            self.assertEqual(self.good(verb, "x", "--help").out, text.out)
            self.assertIn(verb.encode(), overview)
            for line in text.out.decode().splitlines():
                self.assertLessEqual(len(line), 125)

    def test_version(self):
        pattern = r"^skipdecode \d+\.\d+\.\d+ \((%s)\)\n$" % "|".join(LEVELS)
        self.assertRegex(self.good("--version").out.decode(), pattern)


class AnyVerb(Usage):
    """What holds for the options of every verb, by its own help."""

    def commands(self, verb):
        base = {"generate": ["--prompt", "a"], "logits": ["--ids", "2"], "tokenize": ["--text", "a"],
                "quantize": ["-o", self.path("packed")]}
        return [verb, TINY if verb != "tokenize" or not MODEL else MODEL] + base.get(verb, [])

    def test_unknown_options(self):
        for verb in VERBS:
            for option in ("--no-such", "--no-such=3", "-x", "-0", "-.", "-W", "--x" * 50, "--\xff", "---json",
                           "-json"):
                self.usage(*self.commands(verb), option, says=("unknown option " + option[:10]))

    def test_a_slip_is_recognised(self):
        for given, meant in (("--spedup", "--speedup"), ("--shedule=full", "--schedule"), ("--polciy", "--policy")):
            self.usage("plan", TINY, given, says=("unknown option " + given, "is " + meant + " meant?"))
        self.assertNotIn("meant", self.usage("plan", TINY, "--zzz", says=("unknown option --zzz",)))

    def test_missing_values(self):
        for verb in VERBS:
            for option, argument in options_of(verb).items():
                if argument:
                    self.usage(verb, TINY, option, says="%s needs a value" % option)
                else:
                    self.usage(verb, TINY, option + "=1", says="%s takes no value" % option)

    def test_twice(self):
        for verb in VERBS:
            for option, argument in options_of(verb).items():
                if argument and option != "--stop":
                    value = "1" if argument in ("N", "T", "K", "P", "R", "S") else "x"
                    self.usage(verb, TINY, option, value, option, value, says="%s is given twice" % option)

    def test_flags_twice_are_fine(self):
        self.good("plan", TINY, "--json", "--json")

    def test_positional(self):
        for verb in VERBS:
            command = self.commands(verb)
            self.usage(verb, *command[2:], says="expected a model directory")
            self.usage(*command, "more", says='unexpected argument "more"')
            self.usage(*command, "--", "--json", says='unexpected argument "--json"')

    def test_numbers(self):
        integers = {"--batch": 1, "--max-tokens": 1, "--limit": 1, "--prefill-tokens": 1, "--prompt-tokens": 1,
                    "--threads": None, "--top-k": None, "--seed": 0}
        for verb in VERBS:
            for option, argument in options_of(verb).items():
                command = self.commands(verb)
                if option in integers and argument != "LIST":
                    bad = ["", "x", "1x", "1.5", "1e3", "0x10", "1,5", "--json", " ", "nan", HUGE[2], HUGE[3]]
                    bad += [] if option == "--seed" else list(HUGE)
                    bad += ["0", "-1"] if integers[option] == 1 else ["-1"]
                elif argument in ("T", "P", "R", "S"):
                    bad = ["", "x", "1x", "nan", "-nan", "inf", "-inf", "1e999", "1,5", "--json", "infinity", "-1"]
                else:
                    continue
                for value in bad:
                    text = self.usage(*command, option, value)
                    self.assertIn(option.strip("-"), text.replace("_", "-"))
                    self.assertIn("expected", text)

    def test_equals_sign_and_order(self):
        plain = self.good("plan", TINY, "--speedup", "2", "--json").out
        self.assertEqual(self.good("plan", "--speedup=2", "--json", TINY).out, plain)
        self.assertEqual(self.good("plan", "--speedup=2", "--json", "--", TINY).out, plain)
        self.assertEqual(self.good("plan", TINY, "--speedup=2", "--json", env={"POSIXLY_CORRECT": "1"}).out, plain)


class Generate(Usage):
    def generate(self, *args, says=(), source=("--prompt", "a")):
        return self.usage("generate", MODEL or TINY, *source, *args, says=says)

    def test_source(self):
        self.usage("generate", TINY, says="either --prompt TEXT or --input FILE")
        self.usage("generate", TINY, "--prompt", "a", "--input", "b", says="either --prompt TEXT or --input FILE")

    def test_batch(self):
        for value in ("4097", "2147483647"):
            self.generate("--batch", value, says=("--batch", value, "1 .. 4096"))

    def test_exclusive(self):
        self.generate("--compare", "--no-compare", says="exclude each other")
        self.generate("--raw", "--template", "{a}", says="exclude each other")

    def test_format(self):
        for value in ("yaml", "", "CSV"):
            self.usage("generate", TINY, "--input", "x", "--format", value,
                       says=("--format", '"%s"' % value, "jsonl or csv"))

    def test_sampling(self):
        for option, value, says in (("--temperature", "-0.1", "temperature -0.1"),
                                    ("--temperature", "100.5", "temperature"),
                                    ("--temperature", "1e300", "temperature inf"), ("--top-k", "-1", "top_k -1"),
                                    ("--top-p", "0", "top_p 0"), ("--top-p", "1.5", "top_p 1.5"),
                                    ("--min-p", "1", "min_p 1"), ("--min-p", "-0.5", "min_p -0.5"),
                                    ("--repetition-penalty", "0", "repetition_penalty 0"),
                                    ("--repetition-penalty", "101", "repetition_penalty 101")):
            self.generate(option, value, says=(says, "expected"))

    def test_stop(self):
        self.generate(*["--stop", "x"] * 17, says=("--stop", "at most 16 times"))
        self.generate("--stop", "", says="stop string 1: empty")
        self.generate("--stop", "ok", "--stop", "b\udcff", says="stop string 2: not valid UTF-8")
        self.generate("--stop", "x" * 1025, says="stop string 1: too long")
        self.good("generate", MODEL, "--prompt", "a", "--max-tokens", "1", "--quiet", *["--stop", "x" * 1024] * 16)

    def test_positions(self):
        self.generate("--max-tokens", "512", says=("max_tokens 512", "512 positions"))
        self.generate("--max-tokens", "2147483647", says=("max_tokens 2147483647", "512 positions"))

    def test_output(self):
        self.generate("--output", self.dir, says=(self.dir, "is a directory"))
        self.generate("--output", "", says="an empty file name")
        for path in special_files(self.dir):
            self.generate("--output", path, says=(path, "is a device or a pipe"))
        os.mkdir(self.path("b.partial"))
        self.generate("--output", self.path("b"), says=(self.path("b.partial"), "is a directory"))
        for path in (self.path("no", "such", "out.jsonl"), self.path("a" * 300)):
            self.refused(FAILURE, "generate", MODEL, "--prompt", "a", "--output", path, says=(path, "cannot "))
        blocked = write(self.path("file"), "x") + "/out.jsonl"
        self.refused(FAILURE, "generate", MODEL, "--prompt", "a", "--output", blocked, says="Not a directory")

    def test_threads(self):
        for value in ("-1", "257", "10000"):
            for verb in (["generate", "--prompt", "a"], ["logits", "--ids", "2"]):
                self.usage(verb[0], TINY, *verb[1:], "--threads", value, says=("--threads " + value, "1 .. 256"))
        self.assertEqual(self.good("logits", TINY, "--ids", "2,3", "--threads", "256").out,
                         self.good("logits", TINY, "--ids", "2,3", "--threads", "0").out)

    def test_weights(self):
        for value in ("", "F16", "F32", "int8"):
            self.usage("logits", TINY, "--ids", "2", "--weights", value, says=('--weights "%s"' % value,
                                                                                "f32, bf16, q8 or q4"))
            self.usage("logits", TINY, "--ids", "2", "--head", value, says=('--head "%s"' % value, "q8 or q4"))
            self.usage("logits", TINY, "--ids", "2", "--kv", value, says=('--kv "%s"' % value, "f32 or f16"))


class Budgets(Usage):
    def budget(self, *args, says=()):
        self.usage("plan", TINY, *args, says=says)
        self.usage("logits", TINY, "--ids", "2", *args, says=says)
        if MODEL:
            self.usage("generate", MODEL, "--prompt", "a", *args, says=says)

    def test_speedup(self):
        for value in ("0", "0.5", "-1", "0.999999", "-0", "nan", "inf"):
            self.budget("--speedup", value, says=("--speedup", '"%s"' % value, "at least 1"))
        for value in ("1e9", "1.7e308"):  # as few layers as there can be: the warm-up and one more
            plan = json.loads(self.good("plan", TINY, "--speedup", value, "--max-tokens", "9", "--json").out)
            self.assertEqual(set(plan["budgets"]), {2})

    def test_policy(self):
        self.budget("--policy", "fast", says=('--policy "fast"', "full, skipdecode, early-exit"))
        self.budget("--policy", "spread", says="needs a budget")
        self.budget("--policy", "spread", "--schedule", "max=3", says="write its ranking out")
        self.usage("plan", TINY, "--policy", "unified", "--speedup", "2", "--measure", "wall",
                   says="add --measure layers")
        self.budget("--policy", "full", "--speedup", "2", says="cannot be combined")
        self.budget("--policy", "skipdecode", says="needs a budget")
        self.budget("--speedup", "2", "--schedule", "max=3", says="give one of them")
        full = self.good("plan", TINY, "--json").out
        self.assertEqual(self.good("plan", TINY, "--json", "--policy", "full").out, full)
        self.assertEqual(self.good("plan", TINY, "--json", "--schedule", "full").out, full)
        self.assertEqual(self.good("plan", TINY, "--json", "--speedup", "1").out, full)

    def test_range(self):
        """w+1 .. L, and never rising."""
        for spec, says in (("max=8", "8 layers is outside 2 .. 7"), ("max=1", "1 layers is outside 2 .. 7"),
                           ("max=3,min=1", "1 layers is outside 2 .. 7"),
                           ("warmup=3,max=3", "3 layers is outside 4 .. 7"), ("budgets=7:8", "8 layers is outside"),
                           ("budgets=7:1", "1 layers is outside"), ("budgets=3:4", "may only fall"),
                           ("budgets=7:6:5:6", "step 3 runs 6 layers after 5"),
                           ("max=3,min=4", "min=4 is larger than max=3"), ("warmup=7", "warmup=7"),
                           ("max=6,prompt=5", "prompt=5"), ("max=6,prompt=8", "prompt=8"),
                           ("ranking=0:1:2", "3 layers, expected every one of the model's 7"),
                           ("ranking=0:1:2:3:4:5:5", "layer 5 at place 6 comes twice"),
                           ("ranking=0:1:2:3:4:5:7", "layer 7 at place 6 does not exist"),
                           ("max=5,horizon=2000000", "horizon 2000000")):
            self.usage("plan", TINY, "--schedule", spec, says=says)
            self.usage("logits", TINY, "--ids", "2", "--schedule", spec, says=says)

    def test_text(self):
        for spec, says in (("", "is not key=value"), ("max", "is not key=value"), ("max=", "expected an integer"),
                           ("max=x", '"x"'), ("max=5,", "is not key=value"), (",max=5", "is not key=value"),
                           ("max=5,max=6", '"max" comes twice'), ("speed=3", 'unknown key "speed"'),
                           ("MAX=5", "unknown key"), ("max=5 ,min=3", '"5 "'), ("max=-3", '"-3"'),
                           ("max=99999999999999", '"99999999999999"'), ("max=5.5", '"5.5"'),
                           ("prompt=half", '"half"'), ("budgets=", "value 1"), ("budgets=7:", "value 2"),
                           ("budgets=7::6", "value 2"), ("budgets=7,6", "is not key=value"),
                           ("budgets=7:6,max=7", "have no place beside"), ("ranking=a", "value 1"),
                           ("full,max=3", "full"), ("warmup=-1", '"-1"'), ("horizon=0", '"0"'),
                           ("budgets=" + "8:" * 50000 + "7", "8 layers")):
            self.usage("plan", TINY, "--schedule", spec, says=says)


class Logits(Usage):
    def test_ids(self):
        self.usage("logits", TINY, says="--ids is missing")
        for ids, says in (("", 'value 1, ""'), ("x", 'value 1, "x"'), ("2,", 'value 2, ""'), (",2", 'value 1, ""'),
                          ("2,,3", 'value 2, ""'), ("2;3", '"2;3"'), ("2,-1", 'value 2, "-1"'),
                          ("2, x", 'value 2, " x"'), ("1.5", '"1.5"'), ("99999999999999999999", "value 1"),
                          ("2147483648", "value 1"), ("106", "value 1 is 106; the model's token ids are 0 .. 105"),
                          ("2,5,2147483647", "value 3 is 2147483647")):
            self.usage("logits", TINY, "--ids", ids, says=("--ids", says))
            if ids:
                self.usage("logits", TINY, "--ids", "2", "--forced", ids, "--json", says=("--forced", says))

    def test_positions(self):
        self.good("logits", TINY, "--ids", ",".join(["2"] * 64))
        self.good("logits", TINY, "--ids", ",".join(["2"] * 60), "--forced", "3,4,5,6")
        for ids, forced in ((65, 0), (64, 1), (1, 64), (10000, 0)):
            self.usage("logits", TINY, "--ids", ",".join(["2"] * ids), "--forced", ",".join(["3"] * forced), "--json",
                       says="64 positions")


class Plan(Usage):
    def test_sizes(self):
        for options in (["--max-tokens", "66"], ["--prompt-tokens", "65"],
                        ["--prompt-tokens", "33", "--max-tokens", "33"],
                        ["--prompt-tokens", "2147483647", "--max-tokens", "2147483647"]):
            self.usage("plan", TINY, *options, says=("--prompt-tokens", "--max-tokens", "64 positions"))
        self.good("plan", TINY, "--prompt-tokens", "64", "--max-tokens", "1")
        self.good("plan", TINY, "--prompt-tokens", "1", "--max-tokens", "64")


class Cpu(Usage):
    def test_level(self):
        for value in ("avx9", "AVX2", "ref ", "avx"):
            for command in (["logits", TINY, "--ids", "2"], ["--version"]):
                self.refused(USAGE, *command, env={"SKIPDECODE_CPU": value},
                             says=("SKIPDECODE_CPU=" + value, "expected ref, avx2, avx512, avx512vnni or avx512bf16"))

    def test_level_that_is_missing(self):
        missing = [level for level in LEVELS
                   if run("--version", env={"SKIPDECODE_CPU": level}).code != OK]
        if not missing:
            self.skipTest("this machine has every level")
        for level in missing:
            self.refused(FAILURE, "logits", TINY, "--ids", "2", env={"SKIPDECODE_CPU": level},
                         says=("SKIPDECODE_CPU", level))

    def test_levels_agree(self):
        best = json.loads(self.good("logits", TINY, "--ids", "2,9,30", "--forced", "4,5", "--json").out)
        ref = json.loads(self.good("logits", TINY, "--ids", "2,9,30", "--forced", "4,5", "--json",
                                   env={"SKIPDECODE_CPU": "ref"}).out)
        for a, b in zip(best["rows"], ref["rows"]):
            self.assertLess(max(abs(x - y) for x, y in zip(a["logits"], b["logits"])), 1e-3)


@unittest.skipUnless(MODEL, "models/e2e-24l has no weights and SD_TEST_MODEL names no other model")
class EveryOption(Case):
    """Each option that a help lists is used once, and accepted."""

    def test_all(self):
        table = write_csv(self.path("in.csv"), 2)
        texts = write(self.path("in.jsonl"), '{"text": "a"}\n')
        values = {
            "generate": {
                "--prompt": "a", "--input": table, "--format": "csv", "--template": "{mr}\n",
                "--output": self.path("out.jsonl"), "--limit": "1", "--batch": "2", "--max-tokens": "2",
                "--speedup": "2", "--measure": "wall", "--schedule": "max=9", "--policy": "skipdecode",
                "--temperature": "1",
                "--top-k": "3", "--top-p": "0.9", "--min-p": "0.1", "--repetition-penalty": "1.1",
                "--seed": "18446744073709551615", "--stop": "x", "--weights": "bf16", "--head": "q8",
                "--kv": "f16", "--threads": "1", "--prefill-tokens": "2"
            },
            "plan": {
                "--speedup": "2", "--schedule": "max=9", "--policy": "full", "--max-tokens": "9",
                "--prompt-tokens": "5", "--measure": "wall", "--batch": "3", "--weights": "q8", "--head": "q4",
                "--kv": "f16", "--threads": "2", "--plot": self.path("p.png")
            },
            "logits": {
                "--ids": "2", "--forced": "3", "--speedup": "2", "--schedule": "max=9", "--policy": "full",
                "--weights": "f32", "--head": "auto", "--kv": "f32", "--threads": "2"
            },
            "tokenize": {"--text": "a", "--input": texts},
            "quantize": {
                "--output": self.path("packed"), "--weights": "q4", "--head": "bf16", "--threads": "2"
            },
            "info": {},
            "bench": {
                "--shape": "e2e", "--weights": "q8", "--head": "f32", "--kv": "f16", "--threads": "1", "--batch": "1",
                "--speedups": "3", "--measure": "layers", "--prompt": "3", "--gen": "3", "--repeat": "1",
                "--prefill-tokens": "3", "--seed": "3", "--plot": self.path("p.png")
            },
        }
        needs = {"generate": ["--prompt", "a"], "logits": ["--ids", "2"], "tokenize": ["--text", "a"],
                 "quantize": ["-o", self.path("packed"), "--overwrite"]}
        instead = {"--input": [], "--prompt": [], "--text": [], "--ids": [], "--format": ["--input", table],
                   "--template": ["--input", table], "--limit": ["--input", table],
                   "--policy": ["--prompt", "a", "--speedup", "2"],
                   "--measure": ["--prompt", "a", "--speedup", "2"]}
        timed = ("--batch", "--weights", "--head", "--threads", "--no-mmap", "--measure")
        for verb in VERBS:
            for option, argument in options_of(verb).items():
                self.assertEqual(bool(argument), option in values[verb], (verb, option))
                rest = instead.get(option, needs.get(verb, [])) if verb == "generate" or not instead.get(option) else []
                if verb == "logits" and option != "--ids":
                    rest = needs[verb]
                if verb == "plan" and option in timed:
                    rest = ["--speedup", "2"] + ([] if option == "--measure" else ["--measure", "wall"])
                if verb == "quantize" and option == "--output":
                    rest = []
                if verb == "bench":
                    short = {"--batch": "1", "--speedups": "1", "--prompt": "2", "--gen": "2", "--repeat": "1"}
                    rest = [x for name, value in short.items() if name != option for x in (name, value)]
                model = [] if option == "--shape" else [MODEL]
                result = run(verb, *model, option, *([values[verb][option]] if argument else []), *rest)
                if option == "--plot" and b"gnuplot, which is not installed" in result.err:
                    continue
                self.assertEqual(result.code, OK, (verb, option, result.err))


if __name__ == "__main__":
    main(needs_model=False)
