#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode tokenize and info."""
import json
import os
import random

from support import FIXTURES, MODEL, Case, good_json, main, meaning_representations, read, read_safetensors, rows, write

TEXTS = [
    "a", " ", "  leading and  inner   spaces ", "\t\n\r\n", "name[The Eagle], eatType[pub]", "\u00a320-25 Caf\u00e9",
    "\u4f60\u597d \U0001F469\u200D\U0001F680", "e\u0301\u0323", "\u0000", "a\u0000b", "don't WE'LL 1234567", "\ufeff",
    "\ufffd", "</s>", "<pad>x", "\u2028\u0085", "x" * 3000, "\U0001F600" * 200
]


class RoundTrip(Case):
    def encode(self, texts, *options):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        out = self.good("tokenize", MODEL, "--input", write(self.path("in.jsonl"), lines), *options).out
        self.assertEqual(self.good("tokenize", MODEL, "--input", "-", *options, stdin=lines.encode()).out, out)
        return rows(out)

    def test_text_comes_back(self):
        pick = random.Random(5)
        planes = ((32, 127), (0xA0, 0xD800), (0x10000, 0x20000))
        noise = ["".join(chr(pick.randrange(*pick.choice(planes))) for _ in range(40)) for _ in range(50)]
        texts = TEXTS + noise + list(meaning_representations(20))
        for text, row in zip(texts, self.encode(texts)):
            self.assertEqual(row["text"], text)
            self.assertGreater(len(row["ids"]), 0)
            self.assertTrue(all(0 <= i < 1500 for i in row["ids"]))

    def test_text_option(self):
        for text in TEXTS:
            if "\0" not in text:
                one = json.loads(self.good("tokenize", MODEL, "--text", text).out)
                self.assertEqual(one, self.encode([text])[0])
        self.assertEqual(json.loads(self.good("tokenize", MODEL, "--text", "").out), {"ids": [], "text": ""})
        broken = json.loads(self.good("tokenize", MODEL, "--text", "a\udcff\udce4\udcbdb").out)
        self.assertEqual(broken["text"], "a\ufffd\ufffdb")

    def test_bos_and_specials(self):
        config = json.loads(read(os.path.join(MODEL, "config.json")))
        plain = self.encode(["hello", "</s>"])
        front = self.encode(["hello", "</s>"], "--bos")
        for a, b in zip(plain, front):
            self.assertEqual(b["ids"], [config["bos_token_id"]] + a["ids"])
            self.assertEqual(b["text"], a["text"])
        self.assertGreater(len(plain[1]["ids"]), 1)  # a user's text is text
        special = self.encode(["a</s>b"], "--specials")[0]
        self.assertEqual(special["ids"].count(config["eos_token_id"]), 1)
        self.assertEqual(special["text"], "ab")

    def test_golden(self):
        """The strings that the reference tokenizer was run on, of which tests/unit/tokenizer reads all."""
        golden = rows(read(os.path.join(FIXTURES, "tokenizer-golden", "e2e-24l.jsonl")))[::20]
        self.assertGreater(len(golden), 50)
        for want, row in zip(golden, self.encode([g["text"] for g in golden])):
            self.assertEqual(row["ids"], want["ids"], want["text"])


class Info(Case):
    def test_every_fixture(self):
        folders = [os.path.join(FIXTURES, name) for name in sorted(os.listdir(FIXTURES)) if name.startswith("opt-tiny")]
        for model in folders + [MODEL]:
            config = json.loads(read(os.path.join(model, "config.json")))
            tensors = read_safetensors(os.path.join(model, "model.safetensors"))
            info = good_json("info", model, "--json")
            for ours, theirs in (("n_layers", "num_hidden_layers"), ("hidden_size", "hidden_size"),
                                 ("ffn_size", "ffn_dim"), ("n_heads", "num_attention_heads"),
                                 ("vocab_size", "vocab_size"), ("arch", "model_type"),
                                 ("max_positions", "max_position_embeddings"), ("pre_norm", "do_layer_norm_before"),
                                 ("tied_head", "tie_word_embeddings")):
                self.assertEqual(info[ours], config[theirs], (model, ours))
            self.assertEqual(info["head_dim"] * info["n_heads"], info["hidden_size"])
            self.assertEqual(info["model"], model)
            self.assertEqual(info["format"], "safetensors")
            self.assertEqual(info["tensors"], len(tensors))
            self.assertEqual(info["file_bytes"], sum(len(data) for _, _, data in tensors.values()))
            size = {"F32": 4, "F16": 2, "BF16": 2}[info["dtype"]]
            head = sum(len(t[2]) for name, t in tensors.items() if "lm_head" in name and info["tied_head"])
            self.assertEqual(info["n_params"] * size, info["file_bytes"] - head)

    def test_text(self):
        info = good_json("info", MODEL, "--json")
        text = self.good("info", MODEL).out.decode()
        self.assertTrue(text.startswith(MODEL + "\n"))
        for part in ("%d, hidden %d, %d heads of %d, feed-forward %d" % tuple(
                info[k] for k in ("n_layers", "hidden_size", "n_heads", "head_dim", "ffn_size")),
                     "%d, tied head; bos 2, eos 2, pad 1" % info["vocab_size"], "%d tensors" % info["tensors"],
                     "trained for    1x, 2x, 3x, 4x, 5x", "built from {mr}\\n", info["dtype"]):
            self.assertIn(part, text)


if __name__ == "__main__":
    main()
