#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What surrounds the program fails: full disks, closed pipes, no memory, no permission. Each time the status says so,
one sentence says why, and what was written is whole or can be gone on from."""
import json
import os
import resource
import shutil
import signal
import subprocess
import unittest

from support import (FAILURE, MODEL, OK, PATIENCE, PROGRAM, SANITIZED, TINY, USAGE, Case, complain_of_sanitizer, main,
                     read, rows, run, started, write, write_csv)

MR = "name[The Eagle], eatType[pub]"


def limit(what, value):
    return lambda: resource.setrlimit(what, (value, value))


class StandardOutput(Case):
    """Nothing that could not be printed passes unnoticed."""

    def unprinted(self, result, command, why):
        """Where a long output fails in its middle, the reason is gone by the time of the report."""
        text = result.err.decode()
        self.assertEqual(result.code, FAILURE, command)
        self.one_sentence(text)
        self.assertRegex(text, "cannot write to standard output: (%s|an earlier write failed)" % why)
        return why in text

    def commands(self):
        table = write_csv(self.path("in.csv"), 3)
        texts = write(self.path("in.jsonl"), '{"text": "a"}\n')
        generate = ["generate", MODEL, "--quiet", "--max-tokens", "3"]
        return ([*generate, "--prompt", "a"],
                [*generate, "--prompt", "a", "--json"],
                [*generate, "--input", table],
                [*generate, "--input", table, "--json", "--output", self.path("out.jsonl")],
                ["plan", MODEL], ["plan", MODEL, "--json"],
                ["logits", TINY, "--ids", "2"], ["logits", MODEL, "--ids", "2", "--json"],
                ["tokenize", MODEL, "--text", "a"], ["tokenize", MODEL, "--input", texts],
                ["info", MODEL], ["info", MODEL, "--json"],
                ["quantize", TINY, "-o", self.path("packed"), "--overwrite"],
                ["quantize", TINY, "-o", self.path("packed"), "--overwrite", "--json"],
                ["help"], ["help", "generate"], ["--version"])

    def test_full_disk(self):
        told = 0
        for command in self.commands():
            with open("/dev/full", "wb") as full:
                told += self.unprinted(run(*command, stdout=full), command, "No space left on device")
        self.assertGreater(told, 10)

    def test_closed(self):
        for command in self.commands():
            self.unprinted(run(*command, preexec=lambda: os.close(1), stdout=None), command, "Bad file descriptor")
        # the summary went nowhere, but the rows are there and nothing else is between them
        self.assertEqual([row["index"] for row in rows(read(self.path("out.jsonl")))], [0, 1, 2])

    def test_closed_pipe(self):
        for command in self.commands():
            ours, theirs = os.pipe()
            os.close(ours)
            try:
                self.unprinted(run(*command, stdout=theirs), command, "Broken pipe")
            finally:
                os.close(theirs)

    def head(self, *command):
        """COMMAND | head -1: the first line; the program has to end by itself."""
        with subprocess.Popen([PROGRAM, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            line = process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read()
            code = process.wait(PATIENCE)
        complain_of_sanitizer(err, command)
        self.assertEqual(code, FAILURE)
        self.one_sentence(err.decode())
        return line

    def test_head(self):
        table = write_csv(self.path("in.csv"), 200)
        line = self.head("generate", MODEL, "--input", table, "--speedup", "5", "--batch", "4", "--quiet")
        self.assertEqual(json.loads(line)["index"], 0)
        line = self.head("logits", MODEL, "--ids", "2", "--forced", ",".join(["5"] * 60), "--json")
        self.assertTrue(line.startswith(b'{"model":'))

    def test_endless_input(self):
        with subprocess.Popen(["yes", '{"text": "a b c"}'], stdout=subprocess.PIPE) as feeder, \
                subprocess.Popen([PROGRAM, "tokenize", MODEL, "--input", "-"], stdin=feeder.stdout,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            feeder.stdout.close()
            json.loads(process.stdout.readline())
            process.stdout.close()
            self.assertEqual(process.wait(PATIENCE), FAILURE)
            process.stderr.read()
            self.assertEqual(feeder.wait(PATIENCE), -signal.SIGPIPE)

    def test_standard_error_closed(self):
        args = ["generate", MODEL, "--prompt", "a", "--max-tokens", "3", "--output", self.path("out.jsonl")]
        self.assertEqual(run(*args, preexec=lambda: os.close(2)).code, OK)
        self.assertEqual(len(rows(read(self.path("out.jsonl")))), 1)

    def test_standard_input_closed(self):
        result = run("generate", MODEL, "--input", "-", preexec=lambda: os.close(0))
        self.assertEqual(result.code, USAGE)
        self.assertIn("standard input: no rows", result.err.decode())


class OutputFile(Case):
    def setUp(self):
        super().setUp()
        self.args = ["generate", MODEL, "--input", write_csv(self.path("in.csv"), 24), "--max-tokens", "24", "--quiet"]
        self.expected = self.good(*self.args).out
        self.out = self.path("out.jsonl")

    def resumes(self, out=None):
        out = out or self.out
        kept = rows(read(out + ".partial")[:read(out + ".partial").rfind(b"\n") + 1])
        self.assertGreater(len(kept), 0)
        done = self.good(*self.args, "--output", out, "--json")
        self.assertEqual(json.loads(done.out)["rows_done_now"], 24 - len(kept))
        self.assertEqual(read(out), self.expected)

    def test_limit_on_the_size_of_files(self):
        size = len(self.expected) // 2
        result = run(*self.args, "--output", self.out, preexec=limit(resource.RLIMIT_FSIZE, size))
        self.assertEqual(result.code, FAILURE)
        self.one_sentence(result.err.decode())
        for part in (self.out + ".partial", "cannot write", "start again to go on", "File too large"):
            self.assertIn(part, result.err.decode())
        self.assertEqual(sorted(os.listdir(self.dir)), ["in.csv", "out.jsonl.partial"])
        self.resumes()

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("mount"), "mounting a small tmpfs needs root")
    def test_full_disk(self):
        disk = self.path("disk")
        os.mkdir(disk)
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "skipdecode-test", disk]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("this system does not let root mount a tmpfs")
        try:
            out = os.path.join(disk, "out.jsonl")
            filler = os.path.join(disk, "filler")
            write(filler, b"x" * 60000)  # leaves one page
            result = run(*self.args, "--output", out)
            self.assertEqual(result.code, FAILURE)
            self.one_sentence(result.err.decode())
            self.assertIn("out.jsonl.partial: cannot write", result.err.decode())
            self.assertIn("No space left on device", result.err.decode())
            self.assertEqual(sorted(os.listdir(disk)), ["filler", "out.jsonl.partial"])
            os.remove(filler)
            self.resumes(out)
            os.remove(out)
            # room for the rows, but not for OUT beside them: all is kept, and no half of OUT is there
            write(out + ".partial", self.expected)
            pages = -(-len(self.expected) // 4096)
            write(filler, b"x" * (4096 * (16 - pages - 1)))
            result = run(*self.args, "--output", out)
            self.assertEqual(result.code, FAILURE)
            self.assertIn("No space left on device", result.err.decode())
            self.assertEqual(sorted(os.listdir(disk)), ["filler", "out.jsonl.partial"])
            os.remove(filler)
            self.resumes(out)
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_no_permission(self):
        def become_nobody():
            os.chdir(self.path("locked"))
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)

        os.mkdir(self.path("locked"), 0o755)
        os.chmod(self.dir, 0o755)
        os.chmod(self.path("locked"), 0o555)
        probe = subprocess.run(["cat", PROGRAM, os.path.join(MODEL, "model.safetensors")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=become_nobody)
        if probe.returncode != 0:
            self.skipTest("another user cannot read the program or the model here")
        args = ["generate", MODEL, "--input", self.path("in.csv"), "--max-tokens", "2", "--quiet"]
        for out in ("out.jsonl", self.path("locked", "out.jsonl")):
            self.refused(FAILURE, *args, "--output", out, preexec=become_nobody,
                         says=("out.jsonl", "Permission denied"))
        self.refused(FAILURE, "plan", MODEL, "--plot", "p.png", preexec=become_nobody, nothing_printed=False,
                     says=("p.png", "Permission denied"))
        self.assertEqual(len(rows(run(*args, preexec=become_nobody).out)), 24)  # needs no folder of its own
        os.chmod(self.path("in.csv"), 0)
        self.refused(FAILURE, *args, preexec=become_nobody, says=("in.csv", "Permission denied"))

    def test_relative_names(self):
        self.good(*self.args, "--output", "out.jsonl", cwd=self.dir)
        self.assertEqual(read(self.out), self.expected)

    def test_folder_that_was_removed(self):
        os.mkdir(self.path("gone"))
        result = run(*self.args, "--output", "out.jsonl", cwd=self.path("gone"),
                     preexec=lambda: os.rmdir(self.path("gone")))
        self.assertEqual(result.code, FAILURE)
        self.assertIn("No such file", result.err.decode())

    def test_folder_that_disappears(self):
        """While the program computes, somebody removes the folder of its output."""
        folder = self.path("folder")
        os.mkdir(folder)
        with started(*self.args, "--batch", "1", "--output", os.path.join(folder, "out.jsonl")) as process:
            while process.poll() is None and not os.path.exists(os.path.join(folder, "out.jsonl.partial")):
                pass
            shutil.rmtree(folder)
            err = process.stderr.read()
            code = process.wait(PATIENCE)
        complain_of_sanitizer(err, self.args)
        self.assertEqual(code, FAILURE)
        self.one_sentence(err.decode())


class Resources(Case):
    @unittest.skipIf(SANITIZED, "AddressSanitizer reserves terabytes of address space")
    def test_memory(self):
        table = write_csv(self.path("in.csv"), 40)
        args = ["generate", MODEL, "--input", table, "--max-tokens", "8", "--threads", "2", "--batch", "40"]
        expected = self.good(*args).out
        out = self.path("out.jsonl")
        codes = set()
        for megabytes in list(range(8, 80, 4)) + [100, 150, 1000]:
            result = run(*args, "--output", out, preexec=limit(resource.RLIMIT_AS, megabytes << 20))
            text = result.err.decode()
            if result.code == 127:
                self.assertIn("shared librar", text)  # not even the loader has room
                continue
            codes.add(result.code)
            self.assertIn(result.code, (OK, FAILURE), (megabytes, text))
            if result.code == FAILURE:
                self.one_sentence(text)
                self.assertRegex(text, "out of memory|cannot start thread|Cannot allocate memory|Resource temporarily")
                self.assertEqual(os.listdir(self.dir), ["in.csv"], megabytes)
            else:
                self.assertEqual(read(out), expected)
                os.remove(out)
        self.assertEqual(codes, {OK, FAILURE})

    @unittest.skipIf(SANITIZED, "AddressSanitizer opens files of its own")
    def test_open_files(self):
        out = self.path("out.jsonl")
        for files in range(3, 12):
            result = run("generate", MODEL, "--prompt", "a", "--max-tokens", "2", "--output", out,
                         preexec=limit(resource.RLIMIT_NOFILE, files))
            self.assertIn(result.code, (OK, FAILURE, 127), files)
            if result.code == FAILURE:
                self.one_sentence(result.err.decode())
                self.assertEqual(os.listdir(self.dir), [])
            elif result.code == OK:
                os.remove(out)
        self.assertEqual(result.code, OK)

    def test_locale(self):
        args = ["generate", MODEL, "--prompt", MR, "--json", "--quiet", "--logprobs", "--temperature", "0.5"]
        plain = self.good(*args).out
        for name in ("de_DE.UTF-8", "C", "POSIX", "C.UTF-8", "tr_TR.UTF-8", "nonsense"):
            self.assertEqual(self.good(*args, env={"LC_ALL": name, "LANG": name}).out, plain)

    def test_empty_environment(self):
        clean = subprocess.run([PROGRAM, "logits", TINY, "--ids", "2"], env={}, stdout=subprocess.PIPE,
                               timeout=PATIENCE)
        self.assertEqual(clean.stdout, self.good("logits", TINY, "--ids", "2").out)
        self.assertEqual(self.good("--version", env={"SKIPDECODE_CPU": ""}).out, self.good("--version").out)

    def test_one_cpu(self):
        mask = os.sched_getaffinity(0)
        plain = self.good("generate", MODEL, "--prompt", MR, "--json", "--quiet").out
        one = self.good("generate", MODEL, "--prompt", MR, "--json", "--quiet",
                        preexec=lambda: os.sched_setaffinity(0, {min(mask)}))
        self.assertEqual(one.out, plain)


if __name__ == "__main__":
    main()
