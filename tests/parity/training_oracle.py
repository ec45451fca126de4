#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `skipdecode train` writes, read by transformers: the same full-depth logits, and greedy text.

    .venv-oracle/bin/python tests/parity/training_oracle.py --program build/skipdecode

Trains the embedded model a few steps on rows made here, saved as f32, f16 and bf16, loads the directories with
OPTForCausalLM and AutoTokenizer, and compares logits with the program's own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoTokenizer, OPTForCausalLM

TOLERANCE = 2e-4
IDS, FORCED = [2, 100, 200, 300, 17, 44], [12, 13, 14, 15, 400]


def train(program, model, folder, kind):
    data = os.path.join(folder, "data.jsonl")
    with open(data, "w") as f:
        for i in range(60):
            f.write(json.dumps({"p": f"name[{i}], food[Fish]", "r": f"Number {i} serves fish."}) + "\n")
    out = os.path.join(folder, kind)
    subprocess.run([program, "train", model, "--data", data, "--template", "{p}\n", "--response", "r", "--steps", "5",
                    "--save-as", kind, "--quiet", "-o", out], check=True)
    return out


def worst_difference(program, out):
    text = subprocess.run([program, "logits", out, "--ids", ",".join(map(str, IDS)), "--forced",
                           ",".join(map(str, FORCED)), "--weights", "f32", "--json"], check=True, capture_output=True,
                          text=True).stdout
    rows = torch.tensor([row["logits"] for row in json.loads(text)["rows"]])
    model = OPTForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([IDS + FORCED])).logits[0, len(IDS) - 1:]
    return float((rows - logits).abs().max())


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", default="build/skipdecode")
    a.add_argument("--model", default="models/e2e-24l")
    args = a.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("f32", "f16", "bf16"):
            out = train(args.program, args.model, folder, kind)
            worst = worst_difference(args.program, out)
            words = AutoTokenizer.from_pretrained(out)("Number 7 serves fish.", add_special_tokens=False).input_ids
            failed |= not worst <= TOLERANCE or not words
            print(f"trained, saved as {kind}: logits of transformers differ by at most {worst:.1e} "
                  f"({TOLERANCE:.0e} allowed)")
    sys.exit(failed)


if __name__ == "__main__":
    main()
