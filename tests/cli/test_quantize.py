#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode quantize: a directory that every verb takes, the same numbers as the checkpoint at that weight type, and
nothing that loads before it is complete."""
import json
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import time
import unittest

from support import (FAILURE, FIXTURES, MODEL, OK, PATIENCE, PROGRAM, TINY, USAGE, Case, copy_model, good_json, main,
                     read, run, started, write, write_safetensors)

PACKED = "model.skipdecode.safetensors"
IDS = ["--ids", "2,5,9,11"]
TYPES = ("f32", "bf16", "q8", "q4")
FEW_FILES = ["config.json", "merges.txt", "skipdecode.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"]


def header(path):
    data = read(path)
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


class Quantize(Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("out")

    def logits(self, model, *more):
        return self.good("logits", model, *IDS, *more).out

    def quantize(self, *more, source=TINY, out=None):
        return self.good("quantize", source, "-o", out or self.out, *more)


class Written(Quantize):
    def test_every_type_computes_what_the_checkpoint_does(self):
        fixtures = sorted(name for name in os.listdir(FIXTURES) if name.startswith("opt-tiny"))
        self.assertGreater(len(fixtures), 3)
        for fixture in fixtures:
            source = os.path.join(FIXTURES, fixture)
            for weights in TYPES:
                self.quantize("--weights", weights, "--overwrite", source=source)
                self.assertEqual(self.logits(self.out), self.logits(source, "--weights", weights), (fixture, weights))

    def test_head(self):
        for weights, head, default in (("q8", "bf16", "q8"), ("q4", "q4", "q8"), ("bf16", "q8", "bf16")):
            self.quantize("--weights", weights, "--overwrite")
            self.assertEqual(good_json("info", self.out, "--json")["head_dtype"], default)
            self.quantize("--weights", weights, "--head", head, "--overwrite")
            info = good_json("info", self.out, "--json")
            self.assertEqual((info["dtype"], info["head_dtype"]), (weights, head))
            self.assertEqual(self.logits(self.out), self.logits(TINY, "--weights", weights, "--head", head))

    def test_threads_change_nothing(self):
        self.quantize("--threads", "1")
        one = read(os.path.join(self.out, PACKED))
        self.quantize("--threads", "3", "--no-mmap", "--overwrite")
        self.assertEqual(read(os.path.join(self.out, PACKED)), one)

    def test_any_reader_of_safetensors_reads_it(self):
        self.quantize()
        tensors, data = header(os.path.join(self.out, PACKED))
        facts = tensors.pop("__metadata__")
        self.assertTrue(all(isinstance(value, str) for value in facts.values()))
        self.assertEqual((facts["format"], facts["version"], facts["weights"], facts["head"], facts["panel"],
                          facts["block"]), ("skipdecode-packed", "1", "q8", "q8", "64", "32"))
        at = 0
        for name, tensor in tensors.items():  # in order, without a gap, each with its description
            self.assertEqual(tensor["data_offsets"][0], at, name)
            size = 1 if tensor["dtype"] == "U8" else 4
            for n in tensor["shape"]:
                size *= n
            self.assertEqual(tensor["data_offsets"][1], at + size, name)
            at += size
            self.assertRegex(facts[name], "^(q8|f32) [0-9]+x[0-9]+ [0-9a-f]{16}$")
        self.assertEqual(at, len(data))
        self.assertEqual(tensors["layers.0.qkv.weight"]["dtype"], "U8")
        self.assertEqual(tensors["layers.0.qkv.bias"]["dtype"], "F32")

    def test_summary(self):
        text = self.quantize().out.decode()
        self.assertEqual(text.count("\n"), 1)
        self.assertRegex(text, r"^\S+/out: [0-9.]+ million parameters, [0-9.]+ MB -> [0-9.]+ MB \([0-9.]+ %\), q8, "
                               r"[0-9.]+ bits a weight, in [0-9.]+ s\n$")
        text = self.quantize("--weights", "q4", "--overwrite").out.decode()
        self.assertIn("q4, head q8, ", text)
        done = good_json("quantize", TINY, "-o", self.out, "--overwrite", "--json")
        info = good_json("info", self.out, "--json")
        self.assertEqual(done["bytes_after"], info["file_bytes"])
        self.assertEqual(done["bytes_before"], good_json("info", TINY, "--json")["file_bytes"])
        self.assertEqual(done["n_params"], info["n_params"])
        self.assertEqual(self.quantize("--overwrite", "--quiet").out, b"")

    def test_quiet_in_a_pipe_and_a_bar_on_a_terminal(self):
        self.assertEqual(self.quantize().err, b"")
        ours, theirs = self.terminal()
        try:
            done = subprocess.run([PROGRAM, "quantize", TINY, "-o", self.out, "--overwrite"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=theirs, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, OK)
            self.assertIn(b" MB  ", os.read(ours, 4096))
        finally:
            os.close(ours)
            os.close(theirs)

    def test_modes_follow_the_umask(self):
        self.good("quantize", TINY, "-o", self.out, preexec=lambda: os.umask(0o027))
        self.assertEqual(stat.S_IMODE(os.stat(self.out).st_mode), 0o750)
        for name in os.listdir(self.out):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.out, name)).st_mode), 0o640, name)


@unittest.skipUnless(MODEL, "no model with a tokenizer")
class WholeModel(Quantize):
    def test_every_verb_takes_it(self):
        self.quantize(source=MODEL)
        self.assertEqual(sorted(os.listdir(self.out)), sorted(FEW_FILES[:4] + [PACKED] + FEW_FILES[4:]))
        for name in FEW_FILES:
            self.assertEqual(read(os.path.join(self.out, name)), read(os.path.join(MODEL, name)))
        prompt = ["--prompt", "name[The Eagle], eatType[pub]", "--max-tokens", "8", "--speedup", "2", "--measure",
                  "layers", "--quiet"]
        self.assertEqual(self.good("generate", self.out, *prompt).out,
                         self.good("generate", MODEL, *prompt, "--weights", "q8").out)
        self.assertEqual(self.logits(self.out, "--json").count(b"\n"), self.logits(MODEL, "--json").count(b"\n"))
        self.good("plan", self.out, "--speedup", "3")
        self.assertEqual(good_json("tokenize", self.out, "--text", "a pub"),
                         good_json("tokenize", MODEL, "--text", "a pub"))
        text = self.good("info", self.out).out.decode()
        self.assertIn("as q8 (packed by quantize)", text)

    def test_kill_9(self):
        """Killed at any moment it leaves nothing that loads; started again it ends as if undisturbed, and so does a run
        over an old model, which stays whole until the new one is complete."""
        self.quantize("--weights", "f32", source=MODEL)
        expected = read(os.path.join(self.out, PACKED))
        shutil.rmtree(self.out)
        killed = 0
        for i in range(30):
            with started("quantize", MODEL, "-o", self.out, "--weights", "f32", "--overwrite") as process:
                while process.poll() is None and not os.path.exists(os.path.join(self.out, PACKED + ".tmp")):
                    time.sleep(0.0005)
                time.sleep(0.001 * i)
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE)
            if os.path.exists(os.path.join(self.out, PACKED)):
                self.assertEqual(read(os.path.join(self.out, PACKED)), expected)
                break
            killed += 1
            result = run("logits", self.out, *IDS)
            self.assertEqual(result.code, FAILURE)
            self.one_sentence(result.err.decode())
        self.assertGreater(killed, 0)
        self.quantize("--weights", "f32", "--overwrite", source=MODEL)
        self.assertEqual(read(os.path.join(self.out, PACKED)), expected)
        self.assertEqual(sorted(os.listdir(self.out)), sorted(FEW_FILES[:4] + [PACKED] + FEW_FILES[4:]))
        with started("quantize", MODEL, "-o", self.out, "--weights", "f32", "--overwrite") as process:
            while process.poll() is None and not os.path.exists(os.path.join(self.out, PACKED + ".tmp")):
                time.sleep(0.0005)
            process.send_signal(signal.SIGKILL)
        self.good("logits", self.out, *IDS)


class Refused(Quantize):
    def test_arguments(self):
        self.refused(USAGE, "quantize", TINY, says="-o DIR")
        self.refused(USAGE, "quantize", TINY, "-o", says="-o needs a value")
        self.refused(USAGE, "quantize", TINY, "--output", says="--output needs a value")
        self.refused(USAGE, "quantize", TINY, "-output", self.out, says="unknown option -output")
        self.refused(USAGE, "quantize", TINY, "-o", self.out, "--output", self.out, says="--output is given twice")
        self.refused(USAGE, "quantize", TINY, "-o", "", says="empty name")
        self.refused(USAGE, "quantize", "-o", self.out, says="expected a model directory")
        self.refused(USAGE, "quantize", TINY, "-o", self.out, "--weights", "q5", says=('--weights "q5"', "q8 or q4"))
        self.refused(USAGE, "quantize", TINY, "-o", self.out, "--head", "int8", says='--head "int8"')
        self.refused(USAGE, "quantize", TINY, "-o", self.out, "--threads", "-2", says="--threads -2")
        self.refused(USAGE, "quantize", TINY, "-o", self.path("m.gguf"), says=("GGUF", "not written yet", "directory"))

    def test_model(self):
        self.refused(USAGE, "quantize", self.path("none"), "-o", self.out, says="no such directory")
        os.mkdir(self.path("empty"))
        self.refused(FAILURE, "quantize", self.path("empty"), "-o", self.out, says="config.json")
        shutil.copy(os.path.join(TINY, "config.json"), self.path("empty"))
        self.refused(FAILURE, "quantize", self.path("empty"), "-o", self.out, says="holds no checkpoint")
        write_safetensors(self.path("empty", "model.safetensors"), {"x": ("F32", [1], b"0000")})
        self.refused(FAILURE, "quantize", self.path("empty"), "-o", self.out, says="none of the 1 tensors")

    def test_target(self):
        model = copy_model(TINY, self.path("model"))
        self.refused(USAGE, "quantize", model, "-o", model, "--overwrite", says="is the model itself")
        os.symlink(model, self.path("link"))
        self.refused(USAGE, "quantize", model, "-o", self.path("link"), "--overwrite", says="is the model itself")
        other = copy_model(TINY, self.path("other"))
        self.refused(USAGE, "quantize", model, "-o", other, "--overwrite", says="a checkpoint of its own")
        write(self.path("file"), "text")
        self.refused(USAGE, "quantize", model, "-o", self.path("file"), "--overwrite", says="is a file")
        self.refused(FAILURE, "quantize", model, "-o", self.path("no", "where"), says="cannot make the directory")
        self.refused(FAILURE, "quantize", model, "-o", self.path("file", "out"), says="Not a directory")
        self.quantize()
        self.refused(USAGE, "quantize", model, "-o", self.out, says=("holds config.json already", "--overwrite"))
        self.refused(USAGE, "quantize", self.out, "-o", self.path("again"), says="holds packed weights already")
        os.mkdir(self.path("free"))  # an empty directory is as good as none
        self.quantize(out=self.path("free") + "/")
        self.good("info", self.path("free"))

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_unwritable(self):
        os.mkdir(self.out)
        os.chmod(self.out, 0o500)
        self.refused(FAILURE, "quantize", TINY, "-o", self.out, says="Permission denied")

    def test_types_other_than_the_files(self):
        self.quantize()
        verb = ["logits", self.out, *IDS]
        self.refused(USAGE, *verb, "--weights", "bf16", says=(PACKED, "holds the weights as q8", "--weights bf16"))
        self.refused(USAGE, *verb, "--head", "q4", says=("holds the output head as q8", "--head q4"))
        self.good(*verb, "--weights", "q8", "--head", "q8")
        self.good(*verb, "--weights", "auto")

    def test_limit_on_the_size_of_files(self):
        size = os.path.getsize(os.path.join(TINY, "model.safetensors"))
        for share in (0, 1, 2):
            self.refused(FAILURE, "quantize", TINY, "-o", self.out, says=("cannot write", "File too large"),
                         preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size * share // 8,) * 2))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("mount"), "mounting a small tmpfs needs root")
    def test_full_disk(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if os.system("mount -t tmpfs -o size=64k none '%s' 2>/dev/null" % disk) != 0:
            self.skipTest("mounting is not allowed")
        try:
            result = run("quantize", TINY, "-o", os.path.join(disk, "out"), "--weights", "f32")
            self.assertEqual(result.code, FAILURE)
            self.one_sentence(result.err.decode())
            self.assertIn("No space left on device", result.err.decode())
            self.assertEqual(os.listdir(disk), [])
        finally:
            os.system("umount '%s'" % disk)


class Damaged(Quantize):
    def setUp(self):
        super().setUp()
        self.quantize()
        self.file = os.path.join(self.out, PACKED)
        self.data = read(self.file)

    def fails(self, *says, verbs=(["info"], ["logits", "--ids", "2"])):
        for verb in verbs:
            self.refused(FAILURE, verb[0], self.out, *verb[1:], says=(PACKED, *says))

    def test_truncated(self):
        for size in (0, 7, 8, 100, len(self.data) // 2, len(self.data) - 1):
            write(self.file, self.data[:size])
            self.fails()

    def test_one_bit(self):
        for at in (len(self.data) - 1, len(self.data) // 2):
            write(self.file, self.data[:at] + bytes([self.data[at] ^ 16]) + self.data[at + 1:])
            self.fails("its bytes are not those that were written", verbs=(["logits", "--ids", "2"],))

    def test_foreign(self):
        write(self.file, self.data.replace(b'"version":"1"', b'"version":"7"', 1))
        self.fails("version 7 of the format")
        write(self.file, self.data.replace(b'"skipdecode-packed"', b'"skipdecode-other."', 1))
        self.fails("expected", "skipdecode-packed", "not a file that `skipdecode quantize` wrote")
        shutil.copy(os.path.join(TINY, "model.safetensors"), self.file)
        self.fails('metadata "format"')

    def test_not_readable(self):
        if os.geteuid() == 0:
            self.skipTest("root may read everything")
        os.chmod(self.file, 0)
        self.fails("Permission denied")

    def test_config_of_another_model(self):
        config = json.loads(read(os.path.join(self.out, "config.json")))
        for key, says in (("num_hidden_layers", "layers."), ("ffn_dim", "fc1"),
                          ("max_position_embeddings", "positions")):
            write(os.path.join(self.out, "config.json"), json.dumps(dict(config, **{key: config[key] + 1})))
            self.fails(says)


if __name__ == "__main__":
    main(needs_model=False)
