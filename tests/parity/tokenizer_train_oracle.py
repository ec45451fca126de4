"""Compares the merges that `skipdecode tokenizer train` learns with those of Hugging Face's trainer.

    python tests/parity/tokenizer_train_oracle.py --program build/skipdecode [--data ../shared/data]

Three data sets, two vocabulary sizes each; also the ids of some text under tokenizers.Tokenizer.from_file and the
program. Both break ties by the smaller ids, so the merges must be equal to the last one. Needs `tokenizers`.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]


def pairs(data, name):
    if name == "e2e":
        with open(data / "e2e/trainset.csv", encoding="utf-8-sig", newline="") as f:
            return [(row["mr"], row["ref"]) for row in csv.DictReader(f)]
    if name == "webnlg":
        with open(data / "webnlg/train.jsonl", encoding="utf-8") as f:
            return [(row["input"], text) for row in map(json.loads, f) for text in row["references"]]
    base = data / "multi30k"
    with open(base / "train.de", encoding="utf-8") as a, open(base / "train.en", encoding="utf-8") as b:
        return [(x.rstrip("\n"), y.rstrip("\n")) for x, y in zip(a, b)]


OPTIONS = {
    "e2e": ["--data", "e2e/trainset.csv", "--template", "{mr}", "--response", "ref"],
    "webnlg": ["--data", "webnlg/train.jsonl", "--template", "{input}", "--response", "references"],
    "multi30k": ["--data", "multi30k/train.de", "--data-responses", "multi30k/train.en"],
}


def reference(texts, size):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return json.loads(tok.to_str())["model"]


def check(args, name, size):
    both = [text for pair in pairs(args.data, name) for text in pair]
    want = reference(both, size)
    with tempfile.TemporaryDirectory() as out:
        options = [str(args.data / o) if "/" in o else o for o in OPTIONS[name]]
        subprocess.run([args.program, "tokenizer", "train", *options, "--vocab-size", str(size), "-o", out, "--quiet"],
                       check=True)
        lines = (Path(out) / "merges.txt").read_text(encoding="utf-8").split("\n")[1:-1]
        vocab = json.loads((Path(out) / "vocab.json").read_text(encoding="utf-8"))
        merges = [" ".join(m) if isinstance(m, list) else m for m in want["merges"]]
        assert vocab == want["vocab"], f"{name} {size}: the vocabularies differ"
        assert lines == merges, f"{name} {size}: the merges differ"
        sample = both[::997]
        theirs = [e.ids for e in Tokenizer.from_file(str(Path(out) / "tokenizer.json")).encode_batch(sample)]
        text = "".join(json.dumps({"text": s}) + "\n" for s in sample)
        ours = subprocess.run([args.program, "tokenize", out, "--bos", "--input", "-"], input=text.encode(), check=True,
                              capture_output=True).stdout
        assert [json.loads(line)["ids"] for line in ours.splitlines()] == theirs, f"{name} {size}: ids differ"
    print(f"{name}: {len(lines)} merges and {len(vocab)} tokens are equal, and the ids of {len(sample)} texts")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", default=str(ROOT / "build" / "skipdecode"))
    a.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    args = a.parse_args()
    if not args.data.exists():
        print(f"skipped: {args.data} is missing")
        return 77
    for name in OPTIONS:
        for size in (1500, 8000):
            check(args, name, size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
