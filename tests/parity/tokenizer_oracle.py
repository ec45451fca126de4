"""Compares the program's token ids with Hugging Face's on 100,000 and more varied strings, and checks the round trip.

    python tests/parity/tokenizer_oracle.py --program build/skipdecode [--data ../shared/data]

Tokenizers: GPT-2's (from DATA/gpt2-bpe) as vocab.json + merges.txt and as tokenizer.json, and the embedded model's in
both forms. Strings: lines of DATA's tasks, and reference/strings.py. Without DATA, GPT-2's part is skipped, saying so.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
from transformers import AutoTokenizer, GPT2Tokenizer  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "reference"))
import strings  # noqa: E402

SOURCES = ["e2e/trainset.csv", "e2e/testset_w_refs.csv", "multi30k/train.de", "multi30k/train.en", "webnlg/train.jsonl",
           "gpt2-bpe/vocab.bpe"]


def read_lines(data, most, rng):
    lines = []
    for source in SOURCES:
        path = data / source
        if not path.exists():
            print(f"skipped: {path} is missing")
            continue
        found = path.read_text(encoding="utf-8").split("\n")
        lines += rng.sample(found, min(len(found), most))
    return [s for s in dict.fromkeys(lines) if not any(x in s for x in strings.SPECIALS)]


def run_program(program, folder, texts, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        for i, s in enumerate(texts):  # both spellings that JSON has for what is not ASCII
            f.write(json.dumps({"text": s}, ensure_ascii=i % 2 == 0) + "\n")
        f.flush()
        done = subprocess.run([program, "tokenize", str(folder), "--input", f.name, *options], capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def check(name, program, folder, hf, texts):
    """-> (passed, failed, skipped) in strings."""
    want = []
    for i in range(0, len(texts), 2000):
        want += hf(texts[i : i + 2000], add_special_tokens=False, verbose=False).input_ids
    try:
        got = run_program(program, folder, texts)
    except (RuntimeError, ValueError) as e:
        print(f"{name}: FAILED: {e}")
        return 0, len(texts)
    if len(got) != len(texts):
        print(f"{name}: FAILED: {len(got)} answers to {len(texts)} lines")
        return 0, len(texts)
    bad_ids = [i for i in range(len(texts)) if got[i]["ids"] != want[i]]
    bad_text = [i for i in range(len(texts)) if got[i]["text"] != texts[i]]
    for label, bad, key in (("ids", bad_ids, "ids"), ("round trip", bad_text, "text")):
        for i in bad[:3]:
            expected = (want if key == "ids" else texts)[i]
            print(f"  {label}: {texts[i]!r}\n    got      {got[i][key]!r}\n    expected {expected!r}")
    failed = len({*bad_ids, *bad_text})
    print(f"{name}: {len(texts)} strings, {sum(map(len, want))} ids; {len(bad_ids)} differ, "
          f"{len(bad_text)} do not come back", flush=True)
    return len(texts) - failed, failed


def check_bos(name, program, folder, hf, texts):
    """--bos puts exactly what Hugging Face puts in front."""
    want = hf(texts, add_special_tokens=True, verbose=False).input_ids
    got = [x["ids"] for x in run_program(program, folder, texts, "--bos")]
    failed = sum(a != b for a, b in zip(got, want)) + abs(len(got) - len(want))
    print(f"{name}: --bos on {len(texts)} strings; {failed} differ")
    return len(texts) - failed, failed


def gpt2_folders(source, tmp):
    """vocab.json + merges.txt, and a tokenizer.json of the same."""
    plain, whole = tmp / "gpt2-vocab-merges", tmp / "gpt2-tokenizer-json"
    plain.mkdir()
    shutil.copyfile(source / "encoder.json", plain / "vocab.json")
    shutil.copyfile(source / "vocab.bpe", plain / "merges.txt")
    config = dict(add_prefix_space=False, bos_token="<|endoftext|>", eos_token="<|endoftext|>",
                  unk_token="<|endoftext|>", tokenizer_class="GPT2Tokenizer", errors="replace")
    (plain / "tokenizer_config.json").write_text(json.dumps(config))
    hf = GPT2Tokenizer.from_pretrained(plain)
    hf.save_pretrained(whole)
    for extra in ("vocab.json", "merges.txt"):
        (whole / extra).unlink(missing_ok=True)
    return hf, plain, whole


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", required=True)
    a.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    a.add_argument("--model", type=Path, default=ROOT / "models" / "e2e-24l")
    a.add_argument("--strings", type=int, default=115_000)
    a.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    rng = random.Random(args.seed)
    sentences = strings.SENTENCES
    lines = read_lines(args.data, args.strings // 12, rng)
    texts = lines[: args.strings // 2]
    sentences = sentences + rng.sample(lines, min(len(lines), 200))
    texts += [strings.strange(rng, sentences) for _ in range(args.strings - len(texts))]
    print(f"{len(texts)} strings, {len(set(texts))} different, {sum(len(s.encode()) for s in texts) / 1e6:.1f} MB")
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="tokenizer-oracle-") as tmp:
        tmp = Path(tmp)
        jobs = []
        if (args.data / "gpt2-bpe" / "encoder.json").exists():
            hf, plain, whole = gpt2_folders(args.data / "gpt2-bpe", tmp)
            jobs += [("GPT-2, vocab.json + merges.txt", hf, plain), ("GPT-2, tokenizer.json", hf, whole)]
        else:
            print(f"skipped: GPT-2's tokenizer, {args.data}/gpt2-bpe is missing")
            skipped += 2
        embedded = AutoTokenizer.from_pretrained(args.model)
        for form, files in (("vocab.json + merges.txt", ["vocab.json", "merges.txt"]),
                            ("tokenizer.json", ["tokenizer.json"])):
            folder = tmp / f"embedded-{len(files)}"
            folder.mkdir()
            for file in [*files, "tokenizer_config.json", "config.json"]:
                shutil.copyfile(args.model / file, folder / file)
            jobs.append((f"{args.model.name}, {form}", embedded, folder))
        for name, hf, folder in jobs:
            p, f = check(name, args.program, folder, hf, texts)
            passed, failed = passed + p, failed + f
        p, f = check_bos(args.model.name, args.program, args.model, embedded, texts[:1000] + texts[-1000:])
        passed, failed = passed + p, failed + f
    print(f"{passed} passed, {failed} failed, {skipped} tokenizers skipped")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
