#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The quality-against-speed table of docs/RESULTS.md for the E2E task: every text by the C engine, BLEU by sacrebleu.

    bench/e2e_table.py --program build/skipdecode --data ../shared/data/e2e models/e2e-24l [MORE_MODELS ...]

Each distinct meaning representation of the test set is generated once and scored against all its references (cased, 13a).
Speedups are measured by replaying a batch at full depth in the same run (`generate --compare`), `--repeat` times; the
table holds medians.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

import sacrebleu


def read_references(path):
    """{mr: [reference, ...]} in the order of the file; rows with one mr are its references."""
    grouped = {}
    with open(path, encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            grouped.setdefault(row["mr"], []).append(row["ref"])
    return grouped


def slots(mr):
    """The values that a good text says word for word: names, places and foods, not yes/no or numbers."""
    pairs = [item.strip().rstrip("]").split("[", 1) for item in mr.split("],")]
    return [value for key, value in pairs if key.strip() in ("name", "near", "food", "eatType", "area")]


def slot_accuracy(grouped, texts):
    said = wanted = 0
    for mr, text in zip(grouped, texts):
        for value in slots(mr):
            wanted += 1
            said += value.lower() in text.lower()
    return 100 * said / wanted


def generate(args, model, speed, mrs, work):
    """Texts in the order of `mrs`, and the summaries of every repetition."""
    source, out = os.path.join(work, "mr.csv"), os.path.join(work, "out.jsonl")
    with open(source, "w", encoding="utf-8", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["mr"])
        writer.writerows([mr] for mr in mrs)
    command = [args.program, "generate", model, "--input", source, "--output", out, "--overwrite", "--compare", "--json",
               "--batch", str(args.batch), "--speedup", str(speed), "--measure", "layers"]
    summaries = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                 for _ in range(args.repeat)]
    with open(out, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    assert [row["index"] for row in rows] == list(range(len(mrs)))
    return rows, summaries


def median(summaries, key):
    return statistics.median(s[key] for s in summaries)  # an unmeasured null must fail, not pass for a number


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--program", default="build/skipdecode")
    p.add_argument("--data", default="../shared/data/e2e")
    p.add_argument("--split", default="testset_w_refs.csv")
    p.add_argument("--speeds", default="1,2,3,4,5")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--json", action="store_true", help="one JSON object a row instead of Markdown")
    args = p.parse_args()
    path = os.path.join(args.data, args.split)
    if not os.path.exists(path):
        sys.exit(f"{path}: not there; --data names the directory of the E2E data")
    grouped = read_references(path)
    most = max(map(len, grouped.values()))
    streams = [[refs[i] if i < len(refs) else None for refs in grouped.values()] for i in range(most)]
    bleu = sacrebleu.metrics.BLEU(tokenize="13a")
    if not args.json:
        print("| model | target | BLEU | slots said | tokens | layer speedup | decode wall-clock | request wall-clock |")
        print("|---|---|---|---|---|---|---|---|")
    for model in args.models:
        for speed in args.speeds.split(","):
            with tempfile.TemporaryDirectory() as work:
                rows, summaries = generate(args, model, speed, list(grouped), work)
            texts = [row["text"] for row in rows]
            record = {
                "model": model, "target": float(speed), "bleu": bleu.corpus_score(texts, streams).score,
                "slot_accuracy": slot_accuracy(grouped, texts),
                "mean_tokens": statistics.mean(row["completion_tokens"] for row in rows),
                "layer_speedup": summaries[-1]["layer_speedup"],
                "decode_wall_speedup": median(summaries, "decode_wall_speedup"),
                "request_wall_speedup": median(summaries, "request_wall_speedup"),
            }
            if args.json:
                print(json.dumps(record), flush=True)
            else:
                print("| {model} | {target:g}x | {bleu:.1f} | {slot_accuracy:.1f} % | {mean_tokens:.1f} | {layer_speedup:.2f}x | "
                      "{decode_wall_speedup:.2f}x | {request_wall_speedup:.2f}x |".format(**record), flush=True)
    if not args.json:
        print(f"\nsacrebleu {bleu.get_signature()}")


if __name__ == "__main__":
    main()
