# SPDX-License-Identifier: MIT
"""What the tests of the program share: running it, models to run it on, and what holds for every failure.

Environment (CTest sets the first two):
  SD_PROGRAM     the program; default build/skipdecode
  SD_SANITIZED   not empty: a sanitizer build. Inputs are smaller, and memory limits are not tested
  SD_TEST_MODEL  stands in for models/e2e-24l where that has no weights: a directory of the same tokenizer

A file ends with status 77, which CTest counts as skipped, when it has no model or when all its tests were skipped.
"""
import atexit
import collections
import contextlib
import csv
import json
import os
import pty
import random
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.abspath(os.environ.get("SD_PROGRAM", os.path.join(ROOT, "build", "skipdecode")))
SANITIZED = bool(os.environ.get("SD_SANITIZED"))
TIMES_TOO_LONG = "times a model again and again, which takes a sanitizer build minutes; others time it once"
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
TINY = os.path.join(FIXTURES, "opt-tiny-prenorm")  # 7 layers, 64 positions, 106 tokens, no tokenizer
E2E = os.path.join(ROOT, "..", "shared", "data", "e2e", "devset.csv")
SKIPPED = 77
PATIENCE = 600  # seconds; the machine may be busy with something else

# What steps cost is timed once for all tests of a file, and not left behind with the user.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="skipdecode-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

OK, FAILURE, USAGE = 0, 1, 2

Result = collections.namedtuple("Result", "code out err")


def find_model():
    own = os.path.join(ROOT, "models", "e2e-24l")
    for path in (own, os.environ.get("SD_TEST_MODEL")):
        if path and os.path.exists(os.path.join(path, "model.safetensors")):
            return path
    return None


MODEL = find_model()


def run(*args, stdin=b"", env=None, cwd=None, preexec=None, stdout=subprocess.PIPE):
    """Runs the program to its end. A sanitizer's report is a failure whatever the exit status."""
    full_env = dict(os.environ, **(env or {}))
    done = subprocess.run([PROGRAM, *args], input=stdin, stdout=stdout, stderr=subprocess.PIPE, env=full_env, cwd=cwd,
                          preexec_fn=preexec, timeout=PATIENCE)
    result = Result(done.returncode, done.stdout, done.stderr)
    complain_of_sanitizer(result.err, args)
    return result


def good_json(*args, **more):
    """The JSON object that a run prints that has to succeed."""
    result = run(*args, **more)
    if result.code != OK:
        raise AssertionError("%r\n%s" % (args, result.err.decode(errors="replace")))
    return json.loads(result.out)


def complain_of_sanitizer(err, args):
    if re.search(rb"(Address|Leak|Undefined|Thread)Sanitizer|: runtime error: ", err):
        raise AssertionError("%r\n%s" % (args, err.decode(errors="replace")))


def meaning_representations(n, seed=1):
    """n meaning representations as those of the E2E task: unequal lengths, some with a comma or a quote."""
    pick = random.Random(seed)
    slots = [
        ("name", ["The Eagle", "Cocum", "Alimentum", "The Golden Curry", "Zizzi", "Bibimbap House", 'The "Plough"']),
        ("eatType", ["pub", "coffee shop", "restaurant"]),
        ("food", ["Chinese", "English", "French", "Indian", "Italian", "Fast food"]),
        ("priceRange", ["cheap", "high", "less than \u00a320", "moderate", "\u00a320-25"]),
        ("customer rating", ["1 out of 5", "3 out of 5", "5 out of 5", "average", "high", "low"]),
        ("area", ["city centre", "riverside"]),
        ("familyFriendly", ["yes", "no"]),
        ("near", ["Burger King", "Caf\u00e9 Sicilia", "The Bakers", "Ranch"]),
    ]
    for _ in range(n):
        used = [slots[0]] + [slot for slot in slots[1:] if pick.random() < 0.5]
        yield ", ".join("%s[%s]" % (name, pick.choice(values)) for name, values in used)


def write_csv(path, n, seed=1):
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["mr", "ref"])
        for i, text in enumerate(meaning_representations(n, seed)):
            table.writerow([text, "reference %d" % i])
    return path


def sentence(mr):
    """A reference that the meaning representation decides."""
    slots = dict(part.rstrip("]").split("[", 1) for part in mr.split(", "))
    text = slots.pop("name") + " is here."
    return text + "".join(" Its %s: %s." % slot for slot in slots.items())


def write_pairs(path, n, seed):
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["mr", "ref"])
        table.writerows([mr, sentence(mr)] for mr in meaning_representations(n, seed))
    return path


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def rows(data):
    return [json.loads(line) for line in data.split(b"\n") if line]


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    data = read(path)
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    return {name: (t["dtype"], t["shape"], body[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return write(path, struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def copy_model(source, target):
    os.makedirs(target)
    for name in os.listdir(source):
        if os.path.isfile(os.path.join(source, name)):
            shutil.copy(os.path.join(source, name), os.path.join(target, name))
    return target


def listing(folder):
    """Every path below `folder` with its bytes: what must not change when the program refuses."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(base, name)
            readable = os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK)
            found[os.path.relpath(path, folder)] = read(path) if readable else None
    return found


def special_files(folder):
    """A pipe and, for root, a device: nothing of the machine's own, which a broken program would replace."""
    pipe, device = os.path.join(folder, "pipe"), os.path.join(folder, "device")
    os.mkfifo(pipe)
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # another /dev/null
    except OSError:
        return [pipe]
    return [pipe, device]


class Case(unittest.TestCase):
    """A fresh folder, self.dir, for each test."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="skipdecode-test-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def terminal(self):
        """The two ends of a new terminal; the test is skipped where there are none, as in a bare chroot."""
        try:
            return pty.openpty()
        except OSError as error:
            self.skipTest("no terminal: %s" % error)

    def good(self, *args, **more):
        """Runs the program; fails the test unless it succeeds."""
        result = run(*args, **more)
        self.assertEqual(result.code, OK, "%r\n%s" % (args, result.err.decode(errors="replace")))
        return result

    def refused(self, code, *args, says=(), nothing_printed=True, **more):
        """Runs the program, which has to fail with `code`, one sentence that holds each part of `says`, and no trace:
        no file in self.dir made, changed or removed, nothing on standard output."""
        before = listing(self.dir)
        result = run(*args, **more)
        text = result.err.decode(errors="replace")
        self.assertEqual(result.code, code, "%r\n%s" % (args, text))
        self.one_sentence(text)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, text)
        if nothing_printed:
            self.assertEqual(result.out or b"", b"", args)
        self.assertEqual(listing(self.dir), before, args)
        return text

    def one_sentence(self, text):
        """One line that names the program; after a usage error a second one that points to the help."""
        lines = [line for line in text.split("\n") if not line.startswith("skipdecode: warning: ")]
        self.assertEqual(lines.pop(), "", text)
        if lines and lines[-1].startswith("Try 'skipdecode help"):
            lines.pop()
        self.assertTrue(text.startswith("skipdecode: "), text)
        self.assertEqual(len(lines), 1, text)
        self.assertNotIn("(null)", text)
        self.assertGreater(len(lines[0]), 25, text)


@contextlib.contextmanager
def started(*args, **more):
    """The program as a process of its own; killed at the end if it still runs."""
    process = subprocess.Popen([PROGRAM, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def main(needs_model=True):
    if needs_model and not MODEL:
        print("skipped: models/e2e-24l has no model.safetensors, and SD_TEST_MODEL names no other model")
        sys.exit(SKIPPED)
    program = unittest.main(module="__main__", exit=False, verbosity=1)
    for test, reason in program.result.skipped:
        print("skipped: %s: %s" % (test.id(), reason))
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if len(program.result.skipped) == program.result.testsRun else 0)
