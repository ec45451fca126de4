#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training speed: `skipdecode train` against PyTorch with transformers, and its schedules against full depth.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install -r reference/requirements.txt
    /tmp/oracle/bin/python bench/train_peers.py --program build/skipdecode

The same model from random weights, rows, threads and optimiser, f32, in turns: in each repetition every contestant makes
a few steps. Rows are sentences of one length range with a short prompt, so that almost all tokens are the response's:
what a schedule can save is then not hidden by the prompt. Tokens are those fed; PyTorch's batches are padded to their
longest row, as is usual, and its padding does not count. A first step of each run, which builds and allocates, is left
out. Ratios are formed within a repetition; the table holds medians. It says what the machine did to the numbers, not
what another would.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

WORDS = ("the a small large old new red green blue river house market street morning evening quiet busy family coffee "
         "food service waiter guest table garden bridge north south near behind opens closes serves offers wants likes "
         "cheap dear good bad warm cold fresh sweet and or but with without").split()


def sentence(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(36, 46)))


def ours(args, folder, data, speedups):
    out = os.path.join(folder, "out")
    log = os.path.join(folder, "log.jsonl")
    command = [args.program, "train", "--config", os.path.join(args.model, "config.json"), "--tokenizer", args.model,
               "--data", data, "--template", "{p}", "--response", "r", "--steps", str(args.steps), "--batch",
               str(args.batch), "--micro-tokens", "100000", "--speedups", speedups, "--threads", str(args.threads),
               "--log", log, "--overwrite", "--quiet", "-o", out]
    subprocess.run(command, check=True)
    steps = [s for s in map(json.loads, open(log)) if "loss" in s]
    rates = [(b["tokens"] - a["tokens"]) / (b["elapsed"] - a["elapsed"]) for a, b in zip(steps, steps[1:])]
    return statistics.median(rates[1:])


class Torch:
    def __init__(self, args, data):
        import torch
        from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM
        torch.set_num_threads(args.threads)
        self.torch = torch
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        config = OPTConfig.from_pretrained(args.model)
        config.dropout = 0.0
        self.model = OPTForCausalLM._from_config(config, attn_implementation="sdpa").float().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4, betas=(0.9, 0.98), fused=True)
        rows = [json.loads(line) for line in open(data)]
        self.rows = []
        for row in rows:
            prompt = [2] + tokenizer(row["p"], add_special_tokens=False).input_ids
            response = tokenizer(row["r"], add_special_tokens=False).input_ids + [2]
            self.rows.append((len(prompt), prompt + response))
        self.rows.sort(key=lambda r: len(r[1]))
        self.batch, self.steps, self.rng = args.batch, args.steps, random.Random(1)

    def step(self):
        torch = self.torch
        at = self.rng.randrange(len(self.rows) - self.batch)
        rows = self.rows[at:at + self.batch]
        longest = max(len(ids) for _, ids in rows) - 1
        ids = torch.full((len(rows), longest), 1)
        labels = torch.full((len(rows), longest), -100)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for i, (n_prompt, row) in enumerate(rows):
            n = len(row) - 1
            ids[i, :n] = torch.tensor(row[:-1])
            mask[i, :n] = 1
            labels[i, n_prompt - 1:n] = torch.tensor(row[n_prompt:])
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return int(mask.sum())

    def rate(self):
        rates = []
        for _ in range(self.steps):
            start = time.perf_counter()
            tokens = self.step()
            rates.append(tokens / (time.perf_counter() - start))
        return statistics.median(rates[2:])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", default="build/skipdecode")
    a.add_argument("--model", default="models/e2e-24l", help="folder whose config.json and tokenizer are used")
    a.add_argument("--batch", type=int, default=100, help="rows")
    a.add_argument("--steps", type=int, default=8, help="of each contestant in a repetition")
    a.add_argument("--repeat", type=int, default=5)
    a.add_argument("--threads", type=int, default=2)
    args = a.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data.jsonl")
        with open(data, "w") as f:
            for _ in range(args.batch * args.steps):
                f.write(json.dumps({"p": "say", "r": sentence(rng)}) + "\n")
        torch = Torch(args, data)
        results = {name: [] for name in ("PyTorch", "1x", "5x", "1x to 5x")}
        for _ in range(args.repeat):
            results["PyTorch"].append(torch.rate())
            for name, speedups in (("1x", "1"), ("5x", "5"), ("1x to 5x", "1,2,3,4,5")):
                results[name].append(ours(args, folder, data, speedups))
    print(f"{args.batch} rows a step, {args.threads} threads, f32, medians of {args.repeat}")
    print(f"{'':12s}{'tokens/s':>10s}{'over PyTorch':>14s}{'over 1x':>10s}")
    for name, rates in results.items():
        over = [statistics.median(r / b for r, b in zip(rates, results[base])) for base in ("PyTorch", "1x")]
        print(f"{name:12s}{statistics.median(rates):10.0f}{over[0]:13.2f}x{over[1]:9.2f}x")


if __name__ == "__main__":
    main()
