#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode train: what it refuses, that a loss falls, that a model comes out which generate takes, and that a run
that is stopped anywhere, by whatever means, ends in the same bytes as one that is not."""
import csv
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

from support import (FAILURE, OK, PATIENCE, PROGRAM, SANITIZED, USAGE, Case, main, read, read_safetensors, rows, run,
                     started, write, write_pairs)

LAYERS, POSITIONS = 6, 256
RUNS = int(os.environ.get("SD_KILLS", 1 if SANITIZED else 8))


def config(**changes):
    base = {
        "model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": 400, "hidden_size": 16,
        "num_hidden_layers": LAYERS, "num_attention_heads": 2, "ffn_dim": 32, "word_embed_proj_dim": 16,
        "max_position_embeddings": POSITIONS, "do_layer_norm_before": True, "activation_function": "relu",
        "enable_bias": True, "layer_norm_elementwise_affine": True, "tie_word_embeddings": True,
        "_remove_final_layer_norm": False, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "dtype": "float16",
        "init_std": 0.02, "dropout": 0.1,
    }
    return json.dumps(dict(base, **changes))


class Training(Case):
    def setUp(self):
        super().setUp()
        self.data = write_pairs(self.path("data.csv"), 60, 1)
        self.dev = write_pairs(self.path("dev.csv"), 10, 2)
        self.config = write(self.path("config.json"), config())
        self.tokenizer = self.path("tok")
        self.texts = ["--data", self.data, "--template", "{mr}\n", "--response", "ref"]
        self.good("tokenizer", "train", *self.texts, "--vocab-size", "400", "-o", self.tokenizer, "--quiet")
        self.source = ["--config", self.config, "--tokenizer", self.tokenizer]
        self.rows = [*self.texts, "--speedups", "1,2,2.5", "--batch", "12"]
        self.args = ["train", *self.source, *self.rows, "--lr", "0.01", "--warmup-steps", "3", "--seed", "3",
                     "--threads", "1"]
        self.out = self.path("out")

    def changed(self, *changes):
        """The arguments, with these options instead of or beside their own."""
        args = list(self.args)
        for name, value in zip(changes[::2], changes[1::2]):
            if name in args:
                args[args.index(name) + 1] = value
            else:
                args += [name, value]
        return args

    def losses(self, path=None):
        return [row["loss"] for row in rows(read(path or os.path.join(self.out, "train.jsonl"))) if "loss" in row]


class Refusals(Training):
    def test_arguments(self):
        out = ["-o", self.out]
        for args, says in (
                (["train", *self.rows, *out], "either MODEL"),
                (["train", "--config", self.config, *self.rows, *out], "either MODEL"),
                (["train", self.tokenizer, *self.source, *self.rows, *out], "either MODEL"),
                (["train", *self.source, *out], "no --data"),
                (self.args, "no -o DIR"),
                ([*self.args, "--schedule", "max=4", *out], "give one of them"),
                ([*self.args, "--batch-tokens", "100", *out], "give one of them"),
                ([*self.args, "--epochs", "1", "--steps", "3", *out], "give one of them"),
                ([*self.args, "--resume", "--overwrite", *out], "exclude each other"),
                ([*self.args, "--keep", "best", *out], "need --dev FILE"),
                ([*self.args, "--distill-from", "x", *out], "--distill SHARE"),
                ([*self.args, "--dropout", "1", *out], "--dropout 1; expected"),
                ([*self.args, "--min-lr", "1", *out], "--min-lr 1; expected"),
                ([*self.args, "--products", "f16", *out], "expected f32 or bf16"),
                ([*self.args, "--save-as", "q8", *out], "expected f32, bf16 or f16"),
                ([*self.args, "--save-every", "10h", *out], '--save-every "10h"'),
                ([*self.args, "--horizon", "long", *out], '--horizon "long"; expected mean, p90'),
                ([*self.args, "--prompt", "2", *out], "--speedups: "),
                ([*self.args, "--prompt", "full,min=2", *out], "--prompt: "),
                ([*self.args, "--ranking", "0:1", *out], "--speedups: "),
                ([*self.args, "--warmup", "6", *out], "warmup 6"),
                ([*self.args, "--too-long", "drop", *out], "expected error, skip or cut"),
                ([*self.args, "--max-length", "1000", *out], "--max-length 1000; the model has 256 positions"),
                ([*self.args, "--max-length", "20", *out], ("data.csv: line ", "--too-long skip")),
                ([*self.args, "--dev", self.data, "--dev-responses", self.dev, "--dev", self.dev, *out],
                 "--dev-responses"),
                ([*self.args[:-8], "--speedups", "1,2,3,4,5,6,7,8,9,10,11,12,13", *out], "given twice"),
                (["train", *self.source, *self.texts, "--batch", "2", *out], "a batch of 2 rows for 5 speeds"),
                (["train", *self.source, *self.texts, "--speedups", "1,2@50%", *out], '"1,2@50%"'),
                (["train", *self.source, *self.texts, "--speedups", "1@900/2", "--steps", "90", *out], "stage 1"),
                ([*self.args, "-o", self.tokenizer], "is what the model is made from"),
                ([*self.args, "-o", self.data], "is a file")):
            self.refused(USAGE, *args, says=says)

    def test_files(self):
        out = ["-o", self.out]
        self.refused(FAILURE, *self.args, "--dev", self.path("none.csv"), *out, says="none.csv: cannot open")
        write(self.path("data.csv"), "mr,ref\na,b\nc\n")
        self.refused(FAILURE, *self.args, *out, says="data.csv: line 3: 1 fields, the header has 2")
        write(self.path("data.csv"), "mr,ref\nname[a],b\nname[c],\n")
        self.refused(USAGE, *self.args, *out, says="data.csv: line 3: the response is empty")
        write(self.path("data.csv"), "mr,ref\nname[a],b\n")
        self.refused(USAGE, *self.args, *out, says="1 examples")
        write(self.config, config(vocab_size=300))
        self.refused(USAGE, *self.args, *out, says="a vocabulary of 300, and the tokenizer of")


class Run(Training):
    def test_loss_falls_and_generate_takes_the_model(self):
        done = self.good(*self.args, "--dev", self.dev, "--epochs", "6", "-o", self.out, "--json")
        result = json.loads(done.out)
        losses = self.losses()
        self.assertEqual(len(losses), result["steps"])
        self.assertLess(sum(losses[-3:]), 0.75 * sum(losses[:3]))
        lines = rows(read(os.path.join(self.out, "train.jsonl")))
        dev = [row for row in lines if "dev" in row]
        self.assertEqual(len(dev), 6)
        self.assertEqual(set(dev[-1]["dev"]), {"1", "2", "2.5"})
        self.assertAlmostEqual(dev[-1]["dev_loss"], sum(dev[-1]["dev"].values()) / 3, places=9)
        self.assertEqual(result["dev_loss"], min(row["dev_loss"] for row in dev))
        for row in lines:
            if "loss" in row:
                self.assertEqual(set(row["losses"]), {"1", "2", "2.5"})  # every speed in every step
        for part in ("parameters", "examples", "1x, 2x, 2.5x", "horizon", "passes over the data", "activations"):
            self.assertIn(part, done.err.decode())
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["config.json", "merges.txt", "model.safetensors", "skipdecode.json", "tokenizer.json",
                          "tokenizer_config.json", "train.json", "train.jsonl", "vocab.json"])
        self.assertEqual(json.loads(read(os.path.join(self.out, "config.json")))["dtype"], "float32")
        recipe = json.loads(read(os.path.join(self.out, "skipdecode.json")))
        self.assertEqual(recipe["prompt_template"], "{mr}\n")
        self.assertEqual(recipe["trained_speedups"], [1, 2, 2.5])
        self.good("generate", self.out, "--input", self.dev, "--speedup", "2", "--measure", "layers", "--output",
                  self.path("texts.jsonl"))
        made = rows(read(self.path("texts.jsonl")))
        self.assertEqual(len(made), 10)
        self.assertIn("horizon=%d" % recipe["schedule"]["horizon"], made[0]["schedule"])

    def test_fine_tuning_starts_where_the_model_is(self):
        self.good(*self.args, "--epochs", "6", "-o", self.out, "--quiet")
        more = self.path("more")
        self.good("train", self.out, "--data", self.data, "--response", "ref", "--speedups", "1,2,2.5", "--batch", "12",
                  "--lr", "1e-9", "--steps", "5", "-o", more, "--quiet")  # the template is the model's
        mean = sum(self.losses(os.path.join(more, "train.jsonl"))) / 5
        self.assertLess(abs(mean - sum(self.losses()[-5:]) / 5), 0.25)
        self.assertLess(mean, 0.75 * self.losses()[0])
        before, after = (read_safetensors(os.path.join(d, "model.safetensors")) for d in (self.out, more))
        self.assertEqual({n: t[:2] for n, t in before.items()}, {n: t[:2] for n, t in after.items()})

    def test_rates_and_stages(self):
        base = ["train", *self.source, *self.texts, "--steps", "10", "-o", self.out, "--quiet"]
        self.good(*base, "--speedups", "1@4/2,2.5,2.5", "--batch", "8", "--accumulate", "2", "--lr", "0.004",
                  "--warmup-steps", "3", "--min-lr", "0.001")
        lines = [row for row in rows(read(os.path.join(self.out, "train.jsonl"))) if "loss" in row]
        self.assertEqual([sorted(row["losses"]) for row in lines], [["1"]] * 4 + [["2", "2.5"]] * 6)
        rates = [row["lr"] for row in lines]
        self.assertEqual([round(r, 6) for r in rates[:4]], [0.001, 0.002, 0.003, 0.004])
        self.assertTrue(all(a > b > 0.001 for a, b in zip(rates[3:], rates[4:])))
        recipe = json.loads(read(os.path.join(self.out, "skipdecode.json")))
        self.assertEqual(recipe["trained_speedups"], [2, 2.5])

    def test_other_inputs(self):
        """CSV, JSON lines with several references, and pairs of lines: the same rows, the same run."""
        with open(self.data, encoding="utf-8", newline="") as file:
            table = [(row["mr"], row["ref"]) for row in csv.DictReader(file)]
        jsonl = write(self.path("data.jsonl"), "".join(json.dumps({"mr": m, "ref": [r]}) + "\n" for m, r in table))
        a = write(self.path("data.de"), "".join(m + "\n" for m, _ in table))
        b = write(self.path("data.en"), "".join(r + "\n" for _, r in table))
        weights = []
        for data in (["--data", self.data], ["--data", jsonl], ["--data", a, "--data-responses", b]):
            self.good("train", *self.source, *data, "--template", "{mr}\n", "--response", "ref", "--speedups",
                      "1,2,2.5", "--batch", "12", "--steps", "3", "-o", self.out, "--overwrite", "--quiet")
            weights.append(read(os.path.join(self.out, "model.safetensors")))
        self.assertEqual(weights[0], weights[1])
        self.assertEqual(weights[0], weights[2])

    def test_too_long(self):
        for what, says in (("skip", "left out"), ("cut", "cut")):
            done = self.good(*self.args, "--max-length", "60", "--too-long", what, "--dry-run")
            self.assertRegex(done.err.decode(), r"too long: \d+ cut, \d+ left out")
            self.assertIn(says, done.err.decode())

    def test_patience_and_best(self):
        self.good(*self.changed("--lr", "0.3"), "--dev", self.dev, "--epochs", "40", "--patience", "2", "-o", self.out,
                  "--clip", "0.1", "--quiet")
        lines = rows(read(os.path.join(self.out, "train.jsonl")))
        dev = [row["dev_loss"] for row in lines if "dev" in row]
        facts = json.loads(read(os.path.join(self.out, "train.json")))
        self.assertEqual(facts["dev_loss"], min(dev))
        if len(dev) < 40:
            self.assertTrue(all(x >= min(dev) for x in dev[-2:]))
            self.assertEqual(dev.index(min(dev)), len(dev) - 3)

    def test_divergence_stops(self):
        done = run(*self.changed("--lr", "9", "--warmup-steps", "60"), "--steps", "400", "--clip", "0", "--save-every",
                   "20", "-o", self.out, "--quiet")
        self.assertEqual(done.code, FAILURE, done.err)
        self.one_sentence(done.err.decode())
        self.assertRegex(done.err.decode(), "diverges|the loss is ")
        self.assertRegex(done.err.decode(), "the checkpoint of step [0-9]+ is kept|--lr")
        self.assertNotIn("model.safetensors", os.listdir(self.out))

    def test_plot(self):
        if not shutil.which("gnuplot"):
            self.skipTest("there is no gnuplot")
        plot = self.path("loss.png")
        self.good(*self.args, "--dev", self.dev, "--epochs", "2", "-o", self.out, "--plot", plot, "--quiet")
        self.assertEqual(read(plot)[:8], b"\x89PNG\r\n\x1a\n")


class Several(Training):
    """Two processes by mpirun, where the program has MPI, against one."""

    def launcher(self):
        return ["mpirun", "-n", "2", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])

    def wait_for_nobody(self):
        """A killed mpirun's children end a moment later, and hold the directory's lock until then."""
        fd = os.open(self.out, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.close(fd)

    def together(self, *args):
        try:
            done = subprocess.run([*self.launcher(), PROGRAM, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=PATIENCE,
                                  env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))  # MPI's own are many
        except FileNotFoundError:
            self.skipTest("there is no mpirun")
        if b"built without MPI" in done.stderr:
            self.skipTest("the program is built without MPI")
        return done

    def test_losses_are_those_of_one(self):
        args = [*self.args, "--dev", self.dev, "--steps", "50", "--eval-every", "20", "--quiet"]
        done = self.together(*args, "-o", self.path("two"))
        self.assertEqual(done.returncode, OK, done.stderr)
        self.good(*args, "-o", self.out)
        one, two = (rows(read(os.path.join(d, "train.jsonl"))) for d in (self.out, self.path("two")))
        self.assertEqual([row.get("step") for row in one], [row.get("step") for row in two])
        for a, b in zip(one[1:], two[1:]):
            for key in ("loss", "dev_loss"):
                if key in a:
                    self.assertLess(abs(a[key] - b[key]), 1e-4, (a, b))
            self.assertEqual(a.get("tokens"), b.get("tokens"))
        self.assertEqual(sorted(os.listdir(self.out)), sorted(os.listdir(self.path("two"))))

    def test_stopped_and_resumed(self):
        args = [*self.args, "--steps", "30", "--save-every", "10", "--quiet"]
        done = self.together(*args, "-o", self.path("whole"))
        self.assertEqual(done.returncode, OK, done.stderr)
        done = self.together(*args, "-o", self.out, "--log-every", "x")
        self.assertNotEqual(done.returncode, OK)  # and nobody waits for ever
        self.assertFalse(os.path.exists(self.out))
        with subprocess.Popen([*self.launcher(), PROGRAM, *args, "-o", self.out], stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not os.path.exists(os.path.join(self.out, "checkpoint-00000010")):
                time.sleep(0.001)
            process.kill()
        self.wait_for_nobody()
        done = self.together(*args, "-o", self.out, "--resume")
        self.assertEqual(done.returncode, OK, done.stderr)
        name = "model.safetensors"
        self.assertEqual(read(os.path.join(self.out, name)), read(self.path("whole", name)))


class Resume(Training):
    """The undisturbed run first; everything else has to end in its bytes."""

    def setUp(self):
        super().setUp()
        self.args += ["--dev", self.dev, "--epochs", "8", "--eval-every", "7", "--dropout", "0.1", "--quiet"]
        self.good(*self.args, "-o", self.path("whole"))
        self.expected = {name: read(self.path("whole", name)) for name in os.listdir(self.path("whole"))
                         if name not in ("train.json", "train.jsonl")}
        self.log = self.log_lines(self.path("whole", "train.jsonl"))

    def log_lines(self, path):
        lines = rows(read(path))
        for row in lines:
            row.pop("elapsed", None)
            row.pop("tokens_per_second", None)
        return lines

    def same(self):
        self.assertEqual({name: read(os.path.join(self.out, name)) for name in self.expected}, self.expected)
        self.assertEqual(sorted(os.listdir(self.out)), sorted(os.listdir(self.path("whole"))))
        self.assertEqual(self.log_lines(os.path.join(self.out, "train.jsonl")), self.log)

    def test_killed_anywhere(self):
        pick = random.Random(7)
        begun = time.time()
        self.good(*self.args, "-o", self.path("timed"), "--save-every", "2")
        seconds = time.time() - begun
        for _ in range(RUNS):
            shutil.rmtree(self.out, ignore_errors=True)
            for _ in range(3):  # three times in a run
                with started(*self.args, "-o", self.out, "--save-every", "2", "--resume") as process:
                    time.sleep(pick.random() * seconds)
                    process.kill()
                    process.wait(PATIENCE)
            self.good(*self.args, "-o", self.out, "--save-every", "2", "--resume")
            self.same()

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            shutil.rmtree(self.out, ignore_errors=True)
            log = os.path.join(self.out, "train.jsonl")
            with started(*self.args, "-o", self.out) as process:
                deadline = time.time() + PATIENCE
                while process.poll() is None and time.time() < deadline and \
                        not (os.path.exists(log) and read(log).count(b"\n") > 5):
                    time.sleep(0.001)
                process.send_signal(number)
                _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, FAILURE, err)
            self.assertRegex(err.decode(), "stopped at step [0-9]+ of [0-9]+; the same command with --resume goes on")
            self.assertTrue([n for n in os.listdir(self.out) if n.startswith("checkpoint-")])
            self.assertNotIn("model.safetensors", os.listdir(self.out))
            self.refused(USAGE, *self.args, "-o", self.out, says=("holds the checkpoint of step", "--resume goes on"))
            self.good(*self.args, "-o", self.out, "--resume")
            self.same()

    def stop_somewhere(self):
        log = os.path.join(self.out, "train.jsonl")
        with started(*self.args, "-o", self.out, "--save-every", "3") as process:
            while process.poll() is None and not (os.path.exists(log) and read(log).count(b"\n") > 12):
                time.sleep(0.001)
            process.kill()
            process.wait(PATIENCE)

    def test_changed_settings(self):
        self.stop_somewhere()
        other = write_pairs(self.path("other.csv"), 60, 9)
        for change, name in ((["--lr", "0.02"], "--lr is 0.02 and was 0.01"), (["--seed", "4"], "--seed"),
                             (["--batch", "13"], "--batch is 13 and was 12"), (["--speedups", "1,2"], "--speedups"),
                             (["--epochs", "9"], "the number of steps"), (["--data", other], "--data"),
                             (["--dropout", "0.2"], "--dropout"),
                             (["--horizon", "3"], "--horizon is \"3\" and was not given"),
                             (["--eval-every", "8"], "--eval-every is 8 and was 7")):
            self.refused(USAGE, *self.changed(*change), "-o", self.out, "--resume",
                         says=(self.out, name, "--resume goes on with"))
        self.good(*self.args, "-o", self.out, "--resume")
        self.same()
        self.good(*self.args, "-o", self.out, "--resume")  # complete: nothing is done
        self.same()
        self.refused(USAGE, *self.changed("--lr", "0.02"), "-o", self.out, "--resume", says="--lr is 0.02")
        self.refused(USAGE, *self.args, "-o", self.out, says="holds a model already")
        self.good(*self.args, "-o", self.out, "--overwrite")
        self.same()

    def test_second_process(self):
        with started(*self.args, "-o", self.out) as process:
            while process.poll() is None and not os.path.exists(os.path.join(self.out, "train.jsonl")):
                time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
            if process.poll() is None:
                again = run(*self.args, "-o", self.out, "--resume")
                self.assertEqual(again.code, USAGE)
                self.assertIn("another process is training a model there", again.err.decode())
            process.send_signal(signal.SIGCONT)
            process.wait(PATIENCE)
        self.same()

    def test_disk_full(self):
        """Nothing may be written beyond a size that a checkpoint's state exceeds; later there is room."""
        self.stop_somewhere()
        kept = [n for n in os.listdir(self.out) if n.startswith("checkpoint-")]

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))

        done = run(*self.args, "-o", self.out, "--save-every", "3", "--resume", preexec=limit)
        self.assertEqual(done.code, FAILURE, done.err)
        self.one_sentence(done.err.decode())
        self.assertIn("cannot write", done.err.decode())
        self.assertIn("--resume goes on from it", done.err.decode())
        self.assertEqual([n for n in os.listdir(self.out) if n.startswith("checkpoint-")], kept)
        self.good(*self.args, "-o", self.out, "--resume")
        self.same()

    def test_log_elsewhere(self):
        self.stop_somewhere()
        os.remove(os.path.join(self.out, "train.jsonl"))
        log = self.path("log.jsonl")
        self.good(*self.args, "-o", self.out, "--resume", "--log", log)
        self.assertEqual({name: read(os.path.join(self.out, name)) for name in self.expected}, self.expected)
        lines = self.log_lines(log)
        self.assertEqual(lines, self.log[-len(lines):])


if __name__ == "__main__":
    main(needs_model=False)
