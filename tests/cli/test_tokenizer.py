#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode tokenizer: what it learns, writes and refuses."""
import json
import os

from support import FAILURE, USAGE, Case, listing, main, read, write_pairs


class Tokenizer(Case):
    def setUp(self):
        super().setUp()
        self.data = write_pairs(self.path("data.csv"), 60, 1)
        self.dev = write_pairs(self.path("dev.csv"), 10, 2)
        self.tokenizer = self.path("tok")
        self.texts = ["--data", self.data, "--template", "{mr}\n", "--response", "ref"]
        self.good("tokenizer", "train", *self.texts, "--vocab-size", "400", "-o", self.tokenizer, "--quiet")

    def test_learns(self):
        self.assertEqual(sorted(os.listdir(self.tokenizer)),
                         ["merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"])
        vocab = json.loads(read(os.path.join(self.tokenizer, "vocab.json")))
        self.assertEqual(len(vocab), 400)
        self.assertEqual([vocab[t] for t in ("<s>", "<pad>", "</s>", "<unk>")], [0, 1, 2, 3])
        line = json.loads(self.good("tokenize", self.tokenizer, "--bos", "--text", "The Eagle \u00a320").out)
        self.assertEqual(line["text"], "The Eagle \u00a320")
        self.assertEqual(line["ids"][0], 2)

    def test_said_again(self):
        again = self.path("again")
        out = self.good("tokenizer", "train", *self.texts, "--vocab-size", "400", "-o", again, "--json").out
        self.assertEqual(json.loads(out)["vocab_size"], 400)
        self.assertEqual(listing(again), listing(self.tokenizer))

    def test_refusals(self):
        base = ["tokenizer", "train", "--data", self.data, "--template", "{mr}", "--response", "ref"]
        new = ["-o", self.path("new")]
        for code, args, says in (
                (USAGE, ["tokenizer"], "expected: skipdecode tokenizer train"),
                (USAGE, ["tokenizer", "learn"], '"learn"; expected: skipdecode tokenizer train'),
                (USAGE, ["tokenizer", "train", *new], "no --data"),
                (USAGE, [*base, *new], "--vocab-size"),
                (USAGE, [*base, "--vocab-size", "400"], "-o DIR"),
                (USAGE, [*base, "--vocab-size", "259", *new], "expected 260"),
                (USAGE, [*base, "--vocab-size", "400", "-o", self.tokenizer], "holds vocab.json already; --overwrite"),
                (USAGE, [*base, "--vocab-size", "400", "-o", self.data], "is a file"),
                (USAGE, [*base, "--vocab-size", "400", "-o", ""], "empty name"),
                (USAGE, [*base, "--data-responses", self.dev, "--data", self.dev, "--vocab-size", "400", *new],
                 "2 files as --data and 1 as --data-responses"),
                (FAILURE, ["tokenizer", "train", "--data", self.path("none.csv"), "--vocab-size", "400", *new],
                 "none.csv")):
            self.refused(code, *args, says=says)


if __name__ == "__main__":
    main(needs_model=False)
