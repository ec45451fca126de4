#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What smaller weights do to the logits: the weight-type table of docs/RESULTS.md.

    bench/weights_table.py --program build/skipdecode --data ../shared/data/e2e models/e2e-24l

Meaning representations of the E2E test set and their first references are fed as given tokens (`skipdecode logits`), and
the distribution after every response token is compared with the one of f32 weights: mean KL divergence in nats, and how
often the likeliest token is the same. Standard library only.
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

FORMS = [("f32", "f32", "f16"), ("bf16", "bf16", "f16"), ("q8", "q8", "f16"), ("q4", "q8", "f16"), ("q4", "q4", "f16")]


def read_pairs(path, limit):
    first = {}
    with open(path, encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            first.setdefault(row["mr"], row["ref"])
    return list(first.items())[:limit]


def tokenize(args, texts):
    """-> a list of ids for each text"""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        f.flush()
        out = subprocess.run([args.program, "tokenize", args.model, "--input", f.name], check=True, capture_output=True,
                             text=True).stdout
    return [json.loads(line)["ids"] for line in out.splitlines()]


def log_softmax(logits):
    top = max(logits)
    total = math.log(sum(math.exp(x - top) for x in logits)) + top
    return [x - total for x in logits]


def rows(args, prompt, forced, speed, form):
    command = [args.program, "logits", args.model, "--ids", ",".join(map(str, prompt)), "--forced",
               ",".join(map(str, forced)), "--json", "--weights", form[0], "--head", form[1], "--kv", form[2]]
    command += ["--speedup", speed] if speed != "1" else []
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [log_softmax(row["logits"]) for row in out["rows"]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--program", default="build/skipdecode")
    p.add_argument("--data", default="../shared/data/e2e")
    p.add_argument("--speeds", default="1,3")
    p.add_argument("--texts", type=int, default=100)
    args = p.parse_args()
    path = os.path.join(args.data, "testset_w_refs.csv")
    if not os.path.exists(path):
        sys.exit(f"{path}: not there; --data names the directory of the E2E data")
    pairs = read_pairs(path, args.texts)
    prompts, responses = tokenize(args, [mr + "\n" for mr, _ in pairs]), tokenize(args, [ref for _, ref in pairs])
    print("| weights | head | cache | target | mean KL, nats | same likeliest token | positions |")
    print("|---|---|---|---|---|---|---|")
    for speed in args.speeds.split(","):
        exact = [rows(args, a, b, speed, ("f32", "f32", "f32")) for a, b in zip(prompts, responses)]
        for form in FORMS:
            kl, same, n = 0.0, 0, 0
            for prompt, forced, want in zip(prompts, responses, exact):
                for x, y in zip(want, rows(args, prompt, forced, speed, form)):
                    kl += sum(math.exp(a) * (a - b) for a, b in zip(x, y))
                    same += x.index(max(x)) == y.index(max(y))
                    n += 1
            print(f"| {form[0]} | {form[1]} | {form[2]} | {speed}x | {kl / n:.2e} | {100 * same / n:.2f} % | {n} |",
                  flush=True)


if __name__ == "__main__":
    main()
