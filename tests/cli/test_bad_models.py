#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Model directories that are not what they should be: exit status 1 (2 where the argument itself is wrong), one
sentence that names the file and what is wrong with it, never a crash."""
import json
import os
import random
import shutil
import struct
import unittest

from support import (FAILURE, FIXTURES, MODEL, OK, SANITIZED, TINY, USAGE, Case, copy_model, main, read,
                     read_safetensors, run, write, write_safetensors)

MUTATIONS = 60 if SANITIZED else 150
READERS = (["info"], ["logits", "--ids", "2"])


class Tiny(Case):
    """A copy of a tiny fixture in self.model, to be damaged."""

    def setUp(self):
        super().setUp()
        self.model = copy_model(TINY, self.path("model"))
        self.weights = os.path.join(self.model, "model.safetensors")
        self.config = os.path.join(self.model, "config.json")

    def fails(self, *says, code=FAILURE, verbs=READERS):
        for verb in verbs:
            self.refused(code, verb[0], self.model, *verb[1:], says=says)

    def set_config(self, **changes):
        config = json.loads(read(os.path.join(TINY, "config.json")))
        config.update(changes)
        write(self.config, json.dumps({k: v for k, v in config.items() if v != "absent"}))


class Directories(Tiny):
    def test_not_there(self):
        for verb in (["info"], ["plan"], ["logits", "--ids", "2"], ["generate", "--prompt", "a"],
                     ["generate", "--input", self.path("in.csv")]):
            self.refused(USAGE, verb[0], self.path("nowhere"), *verb[1:],
                         says=(self.path("nowhere"), "no such directory"))
            self.refused(USAGE, verb[0], self.weights, *verb[1:], says=(self.weights, "is a file"))

    def test_empty(self):
        os.mkdir(self.path("empty"))
        for verb in (["info"], ["plan"], ["logits", "--ids", "2"], ["generate", "--prompt", "a"]):
            self.refused(FAILURE, verb[0], self.path("empty"), *verb[1:], says=("config.json", "No such file"))

    def test_no_weights(self):
        os.remove(self.weights)
        self.fails(self.model, "holds no checkpoint", "model.safetensors", "pytorch_model.bin")
        self.assertEqual(run("plan", self.model, "--json").code, OK)  # needs none

    def test_weights_are_a_directory(self):
        os.remove(self.weights)
        os.mkdir(self.weights)
        self.fails("holds no checkpoint")

    def test_lfs_pointer(self):
        write(self.weights, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        self.fails("model.safetensors", "git lfs pull")

    def test_links_and_odd_names(self):
        os.symlink(self.model, self.path("link"))
        odd = copy_model(TINY, self.path("it's a \"model\"\nof\udcffbytes"))
        plain = run("logits", self.model, "--ids", "2,5,9", "--json").out
        for folder in (self.path("link"), self.path("link/"), self.path("link/../model/."), odd):
            self.good("info", folder)
            for verb in (["info"], ["logits", "--ids", "2,5,9"], ["plan"]):
                value = json.loads(self.good(verb[0], folder, *verb[1:], "--json").out)
                self.assertEqual(value["model"], folder.replace("\udcff", "\ufffd"))
            self.assertEqual(value["n_layers"], 7)
            other = run("logits", folder, "--ids", "2,5,9", "--json").out
            self.assertEqual(json.loads(other)["rows"], json.loads(plain)["rows"])


class Safetensors(Tiny):
    def test_truncated(self):
        data = read(self.weights)
        header = 8 + struct.unpack("<Q", data[:8])[0]
        for size in (0, 1, 7, 8, 9, 100, header - 1, header, header + 1, len(data) // 2, len(data) - 1):
            write(self.weights, data[:size])
            self.fails(self.weights)

    def test_longer(self):
        write(self.weights, read(self.weights) + b"\0")
        self.fails(self.weights)

    def test_header_lengths(self):
        data = read(self.weights)
        for length in (0, 1, 2 ** 31, 2 ** 32 + 2, 2 ** 63 - 1, 2 ** 64 - 1, len(data), len(data) - 8):
            write(self.weights, struct.pack("<Q", length) + data[8:])
            self.fails(self.weights)

    def test_damaged_header(self):
        """Any byte of the header changed: either the file is still right, or one sentence; never a crash."""
        data = read(self.weights)
        header = 8 + struct.unpack("<Q", data[:8])[0]
        pick = random.Random(3)
        refused = 0
        for _ in range(MUTATIONS):
            at = pick.randrange(header)
            new = pick.choice([0, 34, 44, 48, 57, 91, 93, 123, 125, 255, data[at] ^ 1])
            write(self.weights, data[:at] + bytes([new]) + data[at + 1:])
            result = run("logits", self.model, "--ids", "2")
            self.assertIn(result.code, (OK, FAILURE))
            if result.code == FAILURE:
                self.one_sentence(result.err.decode(errors="replace"))
                refused += 1
        self.assertGreater(refused, MUTATIONS // 3)

    def rewrite(self, change):
        tensors = read_safetensors(os.path.join(TINY, "model.safetensors"))
        change(tensors)
        write_safetensors(self.weights, tensors)

    def name(self, end):
        return next(n for n in read_safetensors(os.path.join(TINY, "model.safetensors")) if n.endswith(end))

    def test_wrong_type(self):
        name = self.name("layers.0.fc1.weight")
        self.rewrite(lambda t: t.update({name: ("I32", t[name][1], t[name][2])}))
        self.fails(self.weights, name, "I32", "expected F32, F16, BF16 or F64")
        self.rewrite(lambda t: t.update({name: ("F8_E4M3", t[name][1], t[name][2])}))
        self.fails(self.weights, "F8_E4M3")

    def test_wrong_shape(self):
        name = self.name("layers.0.fc1.weight")
        self.rewrite(lambda t: t.update({name: (t[name][0], t[name][1][::-1], t[name][2])}))
        self.fails(self.weights, name, "[32, 88]", "config.json calls for [88, 32]")
        self.rewrite(lambda t: t.update({name: (t[name][0], [88 * 32], t[name][2])}))
        self.fails(self.weights, name, "[2816]")

    def test_missing_and_unknown_tensors(self):
        name = self.name("layers.6.self_attn.v_proj.bias")
        self.rewrite(lambda t: t.pop(name))
        self.fails(name, "is missing")
        self.rewrite(lambda t: t.update({"model.decoder.layers.7.fc1.bias": ("F32", [88], b"\0" * 352)}))
        self.fails(self.weights, "model.decoder.layers.7.fc1.bias", "7 layers")
        self.rewrite(lambda t: t.clear())
        self.fails("none of the 0 tensors")

    def test_short_position_table(self):
        self.set_config(max_position_embeddings=65)
        self.fails("embed_positions.weight", "66 rows", "max_position_embeddings 65 needs 67")

    def test_weights_that_are_not_numbers(self):
        name = self.name("layers.0.fc1.weight")
        self.rewrite(lambda t: t.update({name: ("F32", t[name][1], struct.pack("<f", float("nan")) * (88 * 32))}))
        fed = json.loads(self.good("logits", self.model, "--ids", "2", "--json").out)
        self.assertEqual(set(fed["rows"][0]["logits"]), {None})
        self.good("logits", self.model, "--ids", "2")


class Config(Tiny):
    def test_not_json(self):
        for text in ("", "{", "[]", "7", "null", "{}", '{"model_type": "opt"', "\xff\xfe", '{"model_type": 7}',
                     "[" * 100000, '{"a":1}{"b":2}', '{"model_type":"opt","model_type":"opt"}', '{"a\\u0000":1}'):
            write(self.config, text.encode("latin-1"))
            self.fails("config.json", verbs=(["info"], ["plan"], ["logits", "--ids", "2"]))

    def test_values(self):
        for key, value, says in (("model_type", "llama", '"llama" is not an architecture'),
                                 ("model_type", "absent", '"model_type" is missing'),
                                 ("num_hidden_layers", "absent", '"num_hidden_layers" is missing'),
                                 ("num_hidden_layers", 0, "0 is outside 1"),
                                 ("num_hidden_layers", -1, "-1 is outside"),
                                 ("num_hidden_layers", 1 << 40, "is outside"),
                                 ("num_hidden_layers", 6.5, "a number that is not one"),
                                 ("num_hidden_layers", "7", "expected an integer, found a string"),
                                 ("hidden_size", [32], "expected an integer, found an array"),
                                 ("hidden_size", 33, "33 is not a multiple of num_attention_heads, 2"),
                                 ("num_attention_heads", 0, "0 is outside 1"),
                                 ("vocab_size", 1e300, "a number that is not one"),
                                 ("ffn_dim", {}, "found an object"),
                                 ("tie_word_embeddings", "yes", "expected true or false, found a string"),
                                 ("activation_function", "swish", '"swish"; expected relu'),
                                 ("max_position_embeddings", 1 << 31, "is outside")):
            self.set_config(**{key: value})
            self.fails("config.json", key, says, verbs=(["info"], ["plan"], ["logits", "--ids", "2"]))

    def test_sizes_that_are_not_the_tensors(self):
        for key, value in (("num_hidden_layers", 8), ("num_hidden_layers", 6), ("hidden_size", 64), ("ffn_dim", 87),
                           ("word_embed_proj_dim", 16), ("do_layer_norm_before", False), ("enable_bias", False),
                           ("num_hidden_layers", 16384), ("hidden_size", 1 << 20), ("vocab_size", 1 << 24),
                           ("tie_word_embeddings", False)):
            self.set_config(**{key: value})
            result = run("logits", self.model, "--ids", "2")
            if key == "vocab_size":  # the tensor's rows count; a warning says so
                self.assertEqual(result.code, OK)
                self.assertIn("going by the tensor", result.err.decode())
            else:
                self.assertEqual(result.code, FAILURE, (key, value))
                self.one_sentence(result.err.decode())


class TorchBin(Tiny):
    def setUp(self):
        super().setUp()
        os.remove(self.weights)
        self.weights = os.path.join(self.model, "pytorch_model.bin")
        shutil.copy(os.path.join(FIXTURES, "bin-protocol2", "pytorch_model.bin"), self.weights)

    def test_another_model(self):
        self.fails("none of the", "tensors", "expected names like", verbs=(["info"], ["logits", "--ids", "2"]))

    def test_truncated(self):
        data = read(self.weights)
        for size in [0, 1, 4, 30, 100] + list(range(200, len(data), 800)) + [len(data) - 22, len(data) - 1]:
            write(self.weights, data[:size])
            self.fails(self.weights)

    def test_damaged(self):
        data = read(self.weights)
        pick = random.Random(4)
        for _ in range(MUTATIONS):
            at = pick.randrange(len(data))
            write(self.weights, data[:at] + bytes([pick.randrange(256)]) + data[at + 1:])
            self.fails(verbs=(["info"],))  # it is no OPT model either way

    def test_code_is_not_run(self):
        for fixture in ("bin-module", "bin-object", "bin-script", "bin-legacy", "bin-nested", "bin-expanded"):
            shutil.copy(os.path.join(FIXTURES, fixture, "pytorch_model.bin"), self.weights)
            self.fails(verbs=(["info"],))

    def test_shards(self):
        os.remove(self.weights)
        source = os.path.join(FIXTURES, "bin-sharded")
        for name in os.listdir(source):
            shutil.copy(os.path.join(source, name), self.model)
        self.fails("none of the")
        os.remove(os.path.join(self.model, "pytorch_model-00002-of-00002.bin"))
        self.fails("pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json")
        index = os.path.join(self.model, "pytorch_model.bin.index.json")
        for text in ("", "[]", "{}", '{"weight_map": 7}', '{"weight_map": {"a": "../config.json"}}',
                     '{"weight_map": {"a": 1}}', '{"weight_map": {}}'):
            write(index, text)
            self.fails("pytorch_model.bin.index.json")


@unittest.skipUnless(MODEL, "models/e2e-24l has no weights and SD_TEST_MODEL names no other model")
class Tokenizers(Case):
    def setUp(self):
        super().setUp()
        self.model = copy_model(MODEL, self.path("model"))

    def file(self, name):
        return os.path.join(self.model, name)

    def fails(self, *says, code=FAILURE):
        self.refused(code, "tokenize", self.model, "--text", "a", says=says)
        self.refused(code, "generate", self.model, "--prompt", "a", says=says)

    def test_either_form_will_do(self):
        expected = self.good("tokenize", MODEL, "--text", "name[The Eagle]", "--bos").out
        for names in (["tokenizer.json"], ["vocab.json", "merges.txt"]):
            kept = {name: read(self.file(name)) for name in names}
            for name in names:
                os.remove(self.file(name))
            self.assertEqual(self.good("tokenize", self.model, "--text", "name[The Eagle]", "--bos").out, expected)
            for name, data in kept.items():
                write(self.file(name), data)

    def test_missing_files(self):
        os.remove(self.file("tokenizer.json"))
        os.remove(self.file("merges.txt"))
        self.fails("merges.txt")
        os.remove(self.file("vocab.json"))
        self.fails("vocab.json")
        self.good("logits", self.model, "--ids", "2,5")

    def test_damaged_files(self):
        for name in ("tokenizer.json", "vocab.json", "merges.txt"):
            if name != "tokenizer.json" and os.path.exists(self.file("tokenizer.json")):
                os.remove(self.file("tokenizer.json"))
            data = read(self.file(name))
            cuts = [data[:size] for size in (0, 1, len(data) // 2, len(data) - 2)]
            cuts += [b"[]", b"\0", b"\xff" * 50, b"{}", b"7"]
            for content in cuts:
                write(self.file(name), content)
                result = run("tokenize", self.model, "--text", "a")
                if result.code != OK:  # half of merges.txt is still a list of merges
                    self.assertEqual(result.code, FAILURE, (name, content[:20]))
                    self.one_sentence(result.err.decode(errors="replace"))
                    self.assertIn(name, result.err.decode(errors="replace"))
                else:
                    self.assertEqual(name, "merges.txt", content[:20])
            write(self.file(name), data)

    def test_recipe(self):
        for text, says in (("", "not valid JSON"), ("[]", "expected a JSON object"), ("{}", '"format" is missing'),
                           ('{"format": 2}', '"format": 2 is outside 1 .. 1'), ('{"format": "1"}', "found a string"),
                           ('{"format": 1, "schedule": 7}', "schedule"),
                           ('{"format": 1, "schedule": {"warmup": -1}}', "warmup"),
                           ('{"format": 1, "schedule": {"horizon": 0}}', "horizon"),
                           ('{"format": 1, "schedule": {"prompt": "half"}}', "half"),
                           ('{"format": 1, "prompt_template": 7}', "prompt_template"),
                           ('{"format": 1, "max_tokens": 0}', "max_tokens"),
                           ('{"format": 1, "trained_speedups": {}}', "trained_speedups"),
                           ('{"format": 1, "trained_speedups": [0.5]}', "trained_speedups")):
            write(self.file("skipdecode.json"), text)
            for verb in (["generate", "--prompt", "a"], ["plan"], ["info"], ["logits", "--ids", "2"]):
                self.refused(FAILURE, verb[0], self.model, *verb[1:], says=("skipdecode.json", says))

    def test_recipe_template(self):
        for template in ("{mr", "mr}", "{}", "{a}{b}"):
            write(self.file("skipdecode.json"), json.dumps({"format": 1, "prompt_template": template}))
            self.refused(USAGE, "generate", self.model, "--prompt", "a", says=("template", template))
            self.good("generate", self.model, "--prompt", "a", "--raw", "--max-tokens", "1", "--quiet")

    def test_warmup_beyond_the_model(self):
        write(self.file("skipdecode.json"), '{"format": 1, "schedule": {"warmup": 24}}')
        self.refused(USAGE, "generate", self.model, "--prompt", "a", "--speedup", "2", says=("warmup", "24 layers"))
        self.good("generate", self.model, "--prompt", "a", "--max-tokens", "1", "--quiet")

    def test_weights_that_are_not_numbers(self):
        tensors = read_safetensors(self.file("model.safetensors"))
        name = next(n for n in tensors if n.endswith("layers.23.fc2.bias"))
        dtype, shape, data = tensors[name]
        self.assertEqual(dtype, "F16")
        tensors[name] = (dtype, shape, b"\0\x7e" * (len(data) // 2))
        write_safetensors(self.file("model.safetensors"), tensors)
        before = set(os.listdir(self.dir))
        result = run("generate", self.model, "--prompt", "a", "--output", self.path("out.jsonl"))
        self.assertEqual(result.code, FAILURE)
        self.one_sentence(result.err.decode())
        self.assertIn("no finite logit", result.err.decode())
        self.assertEqual(set(os.listdir(self.dir)), before)

    def test_fewer_rows_than_tokens(self):
        """A checkpoint whose embedding lost rows: a prompt with a lost token is refused, and none is ever sampled."""
        tensors = read_safetensors(self.file("model.safetensors"))
        for name in [n for n in tensors if n.endswith("embed_tokens.weight") or n == "lm_head.weight"]:
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, [300, shape[1]], data[:300 * shape[1] * 2])
        write_safetensors(self.file("model.safetensors"), tensors)
        text = self.refused(USAGE, "generate", self.model, "--prompt", "name[The Eagle], eatType[pub]", says="token id")
        self.assertIn("expected 0 .. 299", text)
        self.good("generate", self.model, "--prompt", "a", "--max-tokens", "5", "--temperature", "9", "--quiet")


if __name__ == "__main__":
    main(needs_model=False)
