#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode generate: what it reads, what it writes, and that a row's result is the row's alone."""
import json
import math
import os
import select
import subprocess
import unittest

from support import (MODEL, OK, PATIENCE, PROGRAM, SANITIZED, Case, good_json, main, meaning_representations, read,
                     rows, write, write_csv)

N_ROWS = 20 if SANITIZED else 45
MR = "name[The Eagle], eatType[pub], food[French], area[riverside]"


def texts(data):
    return [row["text"] for row in rows(data)]


def jsonl(objects):
    return "".join(json.dumps(o) + "\n" for o in objects)


class Formats(Case):
    """Text lines, JSON lines and CSV with the same prompts give the same rows."""

    def setUp(self):
        super().setUp()
        self.mrs = list(meaning_representations(6))
        self.csv = write_csv(self.path("in.csv"), 6)
        self.expected = self.good("generate", MODEL, "--input", self.csv, "--quiet").out

    def same(self, *args, **more):
        self.assertEqual(self.good("generate", MODEL, "--quiet", *args, **more).out, self.expected, args)

    def test_rows_are_complete(self):
        for i, row in enumerate(rows(self.expected)):
            self.assertEqual(row["index"], i)
            self.assertIn(row["finish_reason"], ("stop", "length"))
            self.assertGreater(row["prompt_tokens"], 3)
            self.assertGreater(row["completion_tokens"], 0)
            self.assertEqual(row["layers_run"], row["layers_full"])  # no budget was asked for
            self.assertNotIn("id", row)
            self.assertNotIn("logprobs", row)

    def test_csv(self):
        self.same("--input", self.csv, "--template", "{mr}\n")
        self.same("--input", "-", "--format", "csv", stdin=read(self.csv))
        renamed = write(self.path("table"), read(self.csv))
        self.same("--input", renamed, "--format", "csv")

    def test_csv_dialects(self):
        body = read(self.csv)
        self.same("--input", write(self.path("crlf.csv"), body.replace(b"\n", b"\r\n")))
        self.same("--input", write(self.path("mark.csv"), b"\xef\xbb\xbf" + body))
        self.same("--input", write(self.path("open.csv"), body.rstrip(b"\n")))
        self.same("--input", write(self.path("gaps.csv"), body.replace(b"\n", b"\n\n")))

    def test_csv_field_with_newline_and_quotes(self):
        cell = 'name[The "Plough"],\nfood[French]'
        table = write(self.path("q.csv"), 'x,mr\n1,"%s"\n' % cell.replace('"', '""'))
        lines = write(self.path("q.jsonl"), jsonl([{"prompt": cell + "\n"}]))
        a = self.good("generate", MODEL, "--quiet", "--input", table).out
        self.assertEqual(a, self.good("generate", MODEL, "--quiet", "--input", lines).out)

    def test_text(self):
        lines = "".join(mr + "\n" for mr in self.mrs)
        self.same("--input", write(self.path("in.txt"), lines))
        self.same("--input", write(self.path("crlf.txt"), lines.replace("\n", "\r\n")))
        self.same("--input", write(self.path("mark.txt"), b"\xef\xbb\xbf" + lines.encode()))
        self.same("--input", "-", stdin=lines.encode())

    def test_jsonl(self):
        built = jsonl({"mr": mr, "other": 1} for mr in self.mrs)
        whole = jsonl({"prompt": mr + "\n"} for mr in self.mrs)
        self.same("--input", write(self.path("mr.jsonl"), built))
        self.same("--input", write(self.path("mr.ndjson"), "\n  \n" + built.replace("\n", "\r\n")))
        self.same("--input", write(self.path("prompt.jsonl"), whole))
        self.same("--input", write(self.path("mark.jsonl"), b"\xef\xbb\xbf" + whole.encode()))
        self.same("--input", "-", "--format", "jsonl", stdin=whole.encode())

    def test_limit(self):
        first = b"".join(self.expected.splitlines(keepends=True)[:2])
        limited = self.good("generate", MODEL, "--quiet", "--input", self.csv, "--limit", "2")
        self.assertEqual(limited.out, first)
        self.same("--input", self.csv, "--limit", "100")

    def test_limit_does_not_read_on(self):
        broken = write(self.path("broken.jsonl"), jsonl([{"prompt": self.mrs[0] + "\n"}]) + "{\n")
        limited = self.good("generate", MODEL, "--quiet", "--input", broken, "--limit", "1")
        self.assertEqual(limited.out, self.expected.splitlines(keepends=True)[0])

    def test_raw_and_braces(self):
        raw = self.good("generate", MODEL, "--prompt", MR + "\n", "--raw", "--json", "--quiet").out
        self.assertEqual(raw, self.good("generate", MODEL, "--prompt", MR, "--json", "--quiet").out)
        braces = self.good("generate", MODEL, "--prompt", "x", "--template", "{{{mr}}}", "--json", "--quiet").out
        self.assertEqual(braces, self.good("generate", MODEL, "--prompt", "{x}", "--raw", "--json", "--quiet").out)
        lines = write(self.path("raw.txt"), MR + "\n")
        template = self.good("generate", MODEL, "--input", lines, "--raw", "--quiet").out
        self.assertEqual(template, self.good("generate", MODEL, "--prompt", MR, "--raw", "--json", "--quiet").out)

    def test_pipes(self):
        fifo = self.path("fifo.csv")
        os.mkfifo(fifo)
        with subprocess.Popen(["cp", self.csv, fifo]) as feeder:
            self.same("--input", fifo)
            self.assertEqual(feeder.wait(), 0)
        self.same("--input", "/dev/stdin", "--format", "csv", stdin=read(self.csv))


class JsonRows(Case):
    """What a JSON line may ask for itself."""

    def one(self, row, *args):
        path = write(self.path("one.jsonl"), jsonl([row]))
        return rows(self.good("generate", MODEL, "--quiet", "--input", path, *args).out)[0]

    def test_id_comes_back_as_it_was(self):
        ids = [7, "a", "7", 0, -3, 1.5, True, None, [1, 2.0, "x"], {"a": {"b": []}}, 9007199254740993,
               "\u00fc\U0001F600"]
        path = write(self.path("ids.jsonl"), jsonl({"prompt": "a", "max_tokens": 1, "id": i} for i in ids))
        out = self.good("generate", MODEL, "--quiet", "--input", path).out
        back = [row["id"] for row in rows(out)]
        self.assertEqual([repr(i) for i in back], [repr(i) for i in ids])

    def test_max_tokens(self):
        self.assertEqual(self.one({"prompt": MR, "max_tokens": 3}, "--ignore-eos")["completion_tokens"], 3)
        self.assertEqual(self.one({"prompt": MR, "max_tokens": 3.0}, "--ignore-eos", "--max-tokens", "9")
                         ["completion_tokens"], 3)
        self.assertEqual(self.one({"prompt": MR, "max_tokens": None}, "--ignore-eos", "--max-tokens", "5")
                         ["completion_tokens"], 5)

    def test_stop(self):
        whole = self.one({"prompt": MR + "\n"})["text"]
        stop = whole[5:8]
        for value in (stop, [stop], ["never", stop]):
            row = self.one({"prompt": MR + "\n", "stop": value})
            self.assertEqual(row["text"], whole.split(stop)[0])
            self.assertEqual(row["finish_reason"], "stop")
        self.assertEqual(self.one({"prompt": MR + "\n", "stop": []}, "--stop", stop)["text"], whole)

    def test_seed_and_temperature(self):
        hot = {"prompt": MR + "\n", "temperature": 1.5, "max_tokens": 24, "seed": 11}
        first = self.one(hot)
        self.assertEqual(self.one(hot, "--seed", "5")["text"], first["text"])
        greedy = self.one({"prompt": MR + "\n", "max_tokens": 24})
        self.assertEqual(self.one(dict(hot, temperature=0))["text"], greedy["text"])
        others = {self.one(dict(hot, seed=seed))["text"] for seed in range(12, 16)}
        self.assertGreater(len(others | {first["text"]}), 3)

    def test_sampling_keys(self):
        greedy = self.one({"prompt": MR + "\n", "max_tokens": 20})["text"]
        narrow = [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 0.999999}]
        for filters in narrow:
            row = self.one(dict({"prompt": MR + "\n", "max_tokens": 20, "temperature": 3, "seed": 2}, **filters))
            self.assertEqual(row["text"], greedy, filters)
        row = self.one({"prompt": MR + "\n", "max_tokens": 20, "repetition_penalty": 50})
        self.assertNotEqual(row["text"], greedy)


class RowsAreIndependent(Case):
    """Batch, threads and the size of a prefill pass leave every byte of the output as it is."""

    def input(self):
        def settings(i):
            mixed = [{}, {"temperature": 1.0}, {"max_tokens": 5}, {"stop": ["The"]}, {"temperature": 0.7, "top_p": 0.9},
                     {"seed": 9, "temperature": 1.2, "top_k": 20}, {"repetition_penalty": 1.3}]
            return mixed[i % len(mixed)]

        prompts = [mr + "\n" for mr in meaning_representations(N_ROWS)]
        prompts[0] = "a"
        prompts[N_ROWS // 2] = ", ".join(meaning_representations(8))  # about 200 tokens
        return write(self.path("in.jsonl"), jsonl(dict(settings(i), prompt=p, id=i) for i, p in enumerate(prompts)))

    def test_all_settings_one_file(self):
        path = self.input()
        base = ["generate", MODEL, "--input", path, "--quiet", "--max-tokens", "20", "--logprobs", "--seed", "3"]
        for budget in (["--speedup", "3", "--measure", "layers"], ["--schedule", "max=12,min=3,horizon=9,prompt=max"]):
            alone = self.good(*base, *budget, "--batch", "1", "--threads", "1").out
            self.assertEqual([row["id"] for row in rows(alone)], list(range(N_ROWS)))
            self.assertEqual([row["index"] for row in rows(alone)], list(range(N_ROWS)))
            for batch, threads, prefill in ((7, 2, 512), (32, 3, 512), (32, 1, 1), (7, 3, 13)):
                other = self.good(*base, *budget, "--batch", str(batch), "--threads", str(threads), "--prefill-tokens",
                                  str(prefill))
                self.assertEqual(other.out, alone, (batch, threads, prefill))

    def test_output_file_has_the_same_bytes(self):
        path = self.input()
        args = ["generate", MODEL, "--input", path, "--quiet", "--max-tokens", "6", "--speedup", "4", "--measure",
                "layers"]
        self.assertEqual(self.good(*args, "--output", self.path("out.jsonl")).out, b"")
        self.assertEqual(read(self.path("out.jsonl")), self.good(*args, "--batch", "5").out)
        self.assertEqual(sorted(os.listdir(self.dir)), ["in.jsonl", "out.jsonl"])

    def test_mapped_or_read(self):
        args = ["generate", MODEL, "--prompt", MR, "--json", "--quiet", "--logprobs", "--max-tokens", "5"]
        self.assertEqual(self.good(*args).out, self.good(*args, "--no-mmap").out)

    def test_seed(self):
        lines = write(self.path("in.txt"), (MR + "\n") * 5)
        hot = ["--temperature", "1.3", "--max-tokens", "16", "--quiet"]
        out = self.good("generate", MODEL, "--input", lines, "--seed", "40", *hot).out
        self.assertEqual(out, self.good("generate", MODEL, "--input", lines, "--seed", "40", *hot, "--batch", "2").out)
        self.assertNotEqual(out, self.good("generate", MODEL, "--input", lines, "--seed", "41", *hot).out)
        self.assertGreater(len(set(texts(out))), 2)
        for i, text in enumerate(texts(out)):  # row i alone, with its own seed
            alone = self.good("generate", MODEL, "--prompt", MR, "--seed", str(40 + i), *hot)
            self.assertEqual(alone.out.decode(), text + "\n")

    def test_tiny_temperature_is_greedy(self):
        greedy = self.good("generate", MODEL, "--prompt", MR, "--quiet", "--max-tokens", "12").out
        for temperature in ("1e-3", "1e-20", "1e-39", "1e-44"):
            for more in ([], ["--top-p", "0.9"], ["--top-k", "4", "--min-p", "0.1"]):
                cold = self.good("generate", MODEL, "--prompt", MR, "--quiet", "--max-tokens", "12", "--temperature",
                                 temperature, *more)
                self.assertEqual(cold.out, greedy, (temperature, more))


class Ends(Case):
    """Where a row ends, and what it says about that."""

    def row(self, *args, prompt=MR):
        return rows(self.good("generate", MODEL, "--prompt", prompt, "--json", "--quiet", *args).out)[0]

    def test_stop_strings(self):
        whole = self.row("--max-tokens", "24")
        text = whole["text"]
        self.assertGreater(len(text), 12)
        for start, size in ((0, 1), (1, 4), (6, 6), (len(text) - 3, 3)):
            stop = text[start:start + size]
            row = self.row("--max-tokens", "24", "--stop", stop)
            self.assertEqual(row["text"], text[:text.index(stop)], stop)
            self.assertEqual(row["finish_reason"], "stop")
            plain = self.good("generate", MODEL, "--prompt", MR, "--quiet", "--max-tokens", "24", "--stop", stop)
            self.assertEqual(plain.out.decode(), row["text"] + "\n")

    def test_first_of_several_stops(self):
        text = self.row("--max-tokens", "24")["text"]
        stops = [text[9:12], text[4:7], "not in there"]
        row = self.row("--max-tokens", "24", *[a for stop in stops for a in ("--stop", stop)])
        self.assertEqual(row["text"], text[:min(text.index(stop) for stop in stops[:2])])

    def test_no_stop_is_missed_at_the_end(self):
        """The end of the text may be the beginning of a stop string: it is held back, and given out in the end."""
        whole = self.row("--max-tokens", "24")
        row = self.row("--max-tokens", "24", "--stop", whole["text"][-4:] + "!?")
        self.assertEqual(row["text"], whole["text"])
        self.assertEqual(row["finish_reason"], whole["finish_reason"])

    def test_finish_reasons(self):
        whole = self.row()
        if whole["finish_reason"] != "stop":
            self.skipTest("this model does not end the text by itself")
        n = whole["completion_tokens"]
        self.assertEqual(self.row("--max-tokens", str(n))["finish_reason"], "stop")
        cut = self.row("--max-tokens", str(n - 1))
        self.assertEqual((cut["finish_reason"], cut["completion_tokens"]), ("length", n - 1))
        self.assertEqual(cut["text"], whole["text"])  # the end token is no text
        further = self.row("--max-tokens", str(n + 3), "--ignore-eos")
        self.assertEqual((further["finish_reason"], further["completion_tokens"]), ("length", n + 3))
        self.assertTrue(further["text"].startswith(whole["text"]))

    def test_one_token(self):
        for speedup in ("1", "5"):
            row = self.row("--max-tokens", "1", "--ignore-eos", "--speedup", speedup)
            self.assertEqual((row["completion_tokens"], row["layers_run"], row["layers_full"]), (1, 0, 0))

    def test_last_position(self):
        info = good_json("info", MODEL, "--json")
        prompt = "".join(mr + "\n" for mr in meaning_representations(40))
        ids = good_json("tokenize", MODEL, "--text", prompt, "--bos")["ids"]
        prompt = good_json("tokenize", MODEL, "--input", "-", stdin=json.dumps({"text": prompt}).encode())["text"]
        self.assertGreater(len(ids), info["max_positions"])
        while len(ids) > info["max_positions"] - 6:  # cut to almost the limit
            prompt = prompt[:-8]
            ids = good_json("tokenize", MODEL, "--text", prompt, "--bos")["ids"]
        room = info["max_positions"] - len(ids) + 1  # the last token needs no position
        args = ["--raw", "--ignore-eos", "--speedup", "3", "--max-tokens"]
        row = self.row(*args, str(room), prompt=prompt)
        self.assertEqual((row["prompt_tokens"], row["completion_tokens"], row["finish_reason"]),
                         (len(ids), room, "length"))
        self.refused(2, "generate", MODEL, "--prompt", prompt, *args, str(room + 1),
                     says=(str(len(ids)), str(room + 1), str(info["max_positions"]), "positions"))
        default = self.row("--raw", "--ignore-eos", prompt=prompt)  # nobody asked for a number: what there is room for
        self.assertEqual(default["completion_tokens"], room)


class Logprobs(Case):
    def test_against_logits(self):
        args = ["--speedup", "3"]
        row = good_json("generate", MODEL, "--prompt", MR, "--json", "--quiet", "--logprobs", "--max-tokens", "8",
                        "--measure", "layers", *args)
        self.assertEqual(len(row["ids"]), row["completion_tokens"])
        self.assertEqual(len(row["logprobs"]), row["completion_tokens"])
        prompt = good_json("tokenize", MODEL, "--text", MR + "\n", "--bos")["ids"]
        self.assertEqual(len(prompt), row["prompt_tokens"])
        fed = good_json("logits", MODEL, "--ids", ",".join(map(str, prompt)), "--forced",
                        ",".join(map(str, row["ids"][:-1])), *args, "--json")
        self.assertEqual(row["layers_run"], sum(len(r["layers"]) for r in fed["rows"][1:]))
        for token, logprob, step in zip(row["ids"], row["logprobs"], fed["rows"]):
            logits = step["logits"]
            top = max(logits)
            expected = logits[token] - top - math.log(sum(math.exp(x - top) for x in logits))
            self.assertAlmostEqual(logprob, expected, places=4)
            self.assertEqual(token, logits.index(top))

    def test_temperature_does_not_touch_them(self):
        args = ["generate", MODEL, "--prompt", MR, "--json", "--quiet", "--logprobs", "--max-tokens", "1"]
        cold = good_json(*args)
        hot = good_json(*args, "--temperature", "9", "--top-k", "1")
        self.assertEqual((cold["ids"], cold["logprobs"]), (hot["ids"], hot["logprobs"]))


class Reports(Case):
    """What goes where: rows on standard output and nothing else; the summary on standard error."""

    def test_summary(self):
        path = write_csv(self.path("in.csv"), 8)
        done = self.good("generate", MODEL, "--input", path, "--speedup", "3", "--measure", "layers", "--compare",
                         "--max-tokens", "12")
        self.assertEqual(len(rows(done.out)), 8)
        text = done.err.decode()
        for part in ("8 rows", "prompt and", "generated tokens", "layer speedup ", "decode wall-clock speedup ",
                     "request wall-clock speedup ", "KV cache at most", "schedule ", "warmup=1,max=11,min=5"):
            self.assertIn(part, text)
        for character in "\r\033":
            self.assertNotIn(character, text)
        without = self.good("generate", MODEL, "--input", path, "--speedup", "3", "--no-compare").err.decode()
        self.assertIn("layer speedup ", without)
        self.assertNotIn("wall-clock", without)
        full = self.good("generate", MODEL, "--input", path).err.decode()
        self.assertIn("schedule                    full", full)
        self.assertNotIn("speedup", full)

    def test_compare_at_full_depth_is_about_one(self):
        err = self.good("generate", MODEL, "--prompt", MR, "--speedup", "1", "--compare").err.decode()
        self.assertIn("layer speedup               1.00x", err)
        self.assertIn("decode wall-clock speedup ", err)
        err = self.good("generate", MODEL, "--prompt", MR, "--speedup", "2", "--compare", "--max-tokens",
                        "1").err.decode()
        self.assertIn("there was no decode step", err)

    def test_json_summary(self):
        path = write_csv(self.path("in.csv"), 9)
        out = self.path("out.jsonl")
        done = self.good("generate", MODEL, "--input", path, "--output", out, "--speedup", "4", "--measure", "layers",
                         "--compare", "--json", "--quiet", "--max-tokens", "10")
        self.assertEqual(done.err, b"")
        summary = json.loads(done.out)
        made = rows(read(out))
        n_layers = good_json("info", MODEL, "--json")["n_layers"]
        self.assertEqual((summary["rows"], summary["rows_done_now"]), (9, 9))
        self.assertEqual(summary["prompt_tokens"], sum(row["prompt_tokens"] for row in made))
        self.assertEqual(summary["generated_tokens"], sum(row["completion_tokens"] for row in made))
        self.assertEqual(summary["decode_steps"], sum(row["completion_tokens"] - 1 for row in made))
        self.assertEqual(summary["layers_run"], sum(row["layers_run"] for row in made))
        self.assertEqual(n_layers * summary["decode_steps"], sum(row["layers_full"] for row in made))
        self.assertAlmostEqual(summary["layer_speedup"], n_layers * summary["decode_steps"] / summary["layers_run"])
        self.assertEqual((summary["measure"], summary["target_speedup"], summary["predicted_speedup"]),
                         ("layers", 4, None))
        self.assertEqual({row["schedule"] for row in made}, {summary["schedule"]})
        for key in ("decode_wall_speedup", "request_wall_speedup", "prefill_seconds", "decode_seconds",
                    "kv_peak_bytes"):
            self.assertGreater(summary[key], 0, key)

    def test_layers_run_is_the_plan(self):
        row = good_json("generate", MODEL, "--prompt", MR, "--json", "--quiet", "--max-tokens", "20", "--ignore-eos",
                        "--speedup", "2", "--measure", "layers")
        plan = good_json("plan", MODEL, "--max-tokens", "20", "--speedup", "2", "--json")
        self.assertEqual(row["layers_run"], sum(plan["budgets"]))

    def test_plain_text(self):
        done = self.good("generate", MODEL, "--prompt", MR, "--max-tokens", "9")
        row = rows(self.good("generate", MODEL, "--prompt", MR, "--max-tokens", "9", "--json", "--quiet").out)[0]
        self.assertEqual(done.out.decode(), row["text"] + "\n")
        self.assertEqual(self.good("generate", MODEL, "--prompt", MR, "--max-tokens", "9", "--quiet").err, b"")

    def on_terminal(self, *args):
        """Runs with standard error on a terminal; returns standard output and what the terminal showed."""
        ours, theirs = self.terminal()
        try:
            with subprocess.Popen([PROGRAM, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=theirs) as p:
                os.close(theirs)
                theirs = -1
                shown, out = b"", b""
                streams = {ours, p.stdout.fileno()}
                while streams:
                    ready = select.select(list(streams), [], [], PATIENCE)[0]
                    self.assertTrue(ready, "nothing more comes")
                    for fd in ready:
                        try:
                            data = os.read(fd, 65536)
                        except OSError:  # the terminal's other side is closed
                            data = b""
                        if not data:
                            streams.discard(fd)
                        elif fd == ours:
                            shown += data
                        else:
                            out += data
                self.assertEqual(p.wait(PATIENCE), OK, shown)
        finally:
            os.close(ours)
            if theirs >= 0:
                os.close(theirs)
        return out, shown.decode()

    def test_progress_on_a_terminal(self):
        path = write_csv(self.path("in.csv"), 60)
        args = ["generate", MODEL, "--input", path, "--batch", "8", "--threads", "1", "--no-mmap"]
        out, shown = self.on_terminal(*args)
        self.assertEqual(len(rows(out)), 60)
        bars = [part for part in shown.split("\r") if part.startswith("[")]
        self.assertGreater(len(bars), 1)
        self.assertRegex(bars[-1], r"^\[[#.]{24}\] \d+/60 rows  \d+ tokens/s  \d+:\d\d left ")
        self.assertIn("\r\033[K60 rows: ", shown)  # the bar is wiped before the summary
        self.assertEqual(self.on_terminal(*args, "--quiet"), (out, ""))

    def test_one_prompt_shows_no_bar(self):
        out, shown = self.on_terminal("generate", MODEL, "--prompt", MR)
        self.assertNotIn("[#", shown)
        self.assertNotIn("[.", shown)
        self.assertGreater(len(out), 2)


class Weights(Case):
    def test_types(self):
        prompt = ["generate", MODEL, "--prompt", MR, "--json", "--quiet", "--max-tokens", "4", "--logprobs"]
        exact = rows(self.good(*prompt, "--weights", "f32").out)[0]
        half = rows(self.good(*prompt, "--weights", "bf16").out)[0]
        self.assertEqual(len(half["logprobs"]), len(exact["logprobs"]))
        self.assertNotEqual(half["logprobs"], exact["logprobs"])
        self.assertAlmostEqual(half["logprobs"][0], exact["logprobs"][0], delta=0.5)

    def test_any_text(self):
        for prompt in ("\u00fc", "\U0001F469\u200D\U0001F680 \u4F60\u597D", "\t", " ", "</s>", "a\u0301" * 20,
                       "\r\n"):
            row = good_json("generate", MODEL, "--prompt", prompt, "--raw", "--json", "--quiet", "--max-tokens", "3",
                            "--temperature", "5")
            ids = good_json("tokenize", MODEL, "--text", prompt, "--bos")["ids"]
            self.assertEqual(row["prompt_tokens"], len(ids), repr(prompt))


if __name__ == "__main__":
    main()
