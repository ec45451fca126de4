#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks `skipdecode score` against sacrebleu, rouge-score, NLTK and pycocoevalcap, and writes the fixture that holds
their scores, tests/fixtures/metrics, for the tests that run without them.

    tests/parity/metrics_oracle.py --program build/skipdecode [--write] [--texts 3000] [--data ../shared/data]

Texts are made here: words with every suffix that Porter's rules know, numbers, entities, punctuation, several scripts,
empty ones, several lines, one to five references. COCO's tools get the words between spaces, which is what they get
from any tokenizer; where there is a java, the approximation of Stanford's tokenizer is compared with the original as
well.
"""

import argparse
import collections
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from nltk.stem.porter import PorterStemmer
from nltk.translate.nist_score import corpus_nist
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import _compute_p_value, estimate_ci
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURE = os.path.join(ROOT, "tests", "fixtures", "metrics")
SEGMENTS, SEED = 1000, 1
CLOSE = 1e-6

STEMS = """relat condit rat valenc hesit digit conform radic differ vile analog vietnam predic oper feud decis
hope call form sens triplic electr good reviv allow infer airlin gyroscop adjust defens irrit replac
depend adopt homolog commun activ angular effect bowdler prob ceas control roll fl d sk l t sp tr
agr plast motor confl troubl siz hopp tann fall hiss fizz fil happ enjo theo geo archaeo be sa pla
yy""".split()
SUFFIXES = [""] + """s es ies ss sses ed eed ied ing ate ational tional enci anci izer bli abli alli entli eli ousli
ization ation ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize
iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion sion tion ou ism iti ous ive
ize e y ll lly""".split()
WHOLE = """sky skies dying lying tying news innings inning outings outing cannings canning howe proceed exceed
succeed the a an of in near is pub restaurant riverside city centre family-friendly rated out price
range moderate cheap £20 £20-25 café Blue Spice Alimentum NASA U.S.A. e.g. don't isn't they'll
o'clock rock'n'roll and/or""".split()
OTHERS = """ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ' Привет МОСКВА, İstanbul ILIK ıssız ǅungla ŒUVRE Straße ẞ 北京 饭店。 東京タワー 안녕하세요 مرحبا؟ שלום
नमस्ते 😀 👩‍👩‍👧 K²⁺ ½ ٣٤ «quoted» “double” ‘single’ — – … ¿qué? 3€ £5.50 ¥100 x₂ ²³ a̐ Ａｂ １２""".split()
MARKS = ["", "", "", "", ".", ",", "!", "?", ";", ":", "...", "'s", ")", "\"", "%", "-", "--", ",5", ".5", "&amp;",
         "&quot;", "&lt;", "<skipped>", "$", "/", "_", "@", "#", "*"]


def word(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(STEMS) + rng.choice(SUFFIXES)
    if kind < 0.75:
        return rng.choice(WHOLE)
    if kind < 0.85:
        return rng.choice(["%d", "%d.", "1,%03d", "%d.5", "-%d", "%d-", "%d%%", "(%d)"]) % rng.randrange(1000)
    return rng.choice(OTHERS)


def sentence(rng, most):
    parts = []
    for _ in range(rng.randrange(most + 1)):
        w = word(rng)
        w = w.upper() if rng.random() < 0.05 else w.capitalize() if rng.random() < 0.15 else w
        parts.append(rng.choice(["", "", "", "", "", "(", "\"", "'"]) + w + rng.choice(MARKS))
        parts.append(rng.choice([" "] * 20 + ["  ", "\n", "\n", "\u00a0", "\u2003", "\t", "-\n"]))
    text = "".join(parts)
    return text if rng.random() < 0.2 else text.strip()


def vary(rng, text):
    """A text that shares much with another one."""
    words = text.split(" ")
    for _ in range(rng.randrange(1 + len(words) // 3)):
        at = rng.randrange(len(words))
        words[at:at + 1] = rng.choice([[], [word(rng)], [words[at], words[at]], [words[at], word(rng)]])
        words = words or [""]
    return " ".join(words)


def make(n, seed):
    """[(text, other system's text, [references])]"""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        if rng.random() < 0.1:  # few words and several lines: which common subsequence is taken shows in rougeLsum
            few = ["".join(rng.choice(["a", "b", "c", "d"]) + rng.choice("   \n") for _ in range(rng.randrange(3, 16)))
                   for _ in range(4)]
            out.append((few[0], few[1], few[2:]))
            continue
        base = sentence(rng, 12)
        refs = [base] + [vary(rng, base) if rng.random() < 0.7 else sentence(rng, 12)
                         for _ in range(rng.choice([0, 0, 0, 1, 2, 4]))]
        rng.shuffle(refs)
        hyp = rng.choice(refs) if rng.random() < 0.1 else "" if rng.random() < 0.03 else vary(rng, base)
        other = vary(rng, vary(rng, base))
        out.append((hyp, other, ["" if rng.random() < 0.01 else r for r in refs]))
    return out


# ---- the reference tools --------------------------------------------------------------------------------------------


def streams(refs):
    most = max(map(len, refs))
    return [[r[i] if i < len(r) else None for r in refs] for i in range(most)]


def sacre(metric, single, hyps, refs):
    scores = [single.sentence_score(h, r).score for h, r in zip(hyps, refs)]
    return metric.corpus_score(hyps, streams(refs)).score, scores


def rouge(kinds, stem, hyps, refs):
    scorer = RougeScorer(kinds, use_stemmer=stem)
    rows = [scorer.score_multi(r, h) for h, r in zip(hyps, refs)]
    values = {k: [float(row[k].fmeasure) for row in rows] for k in kinds}
    return {k: (float(np.mean(v)), v) for k, v in values.items()}


def coco(hyps, refs):
    """The words between white space, with one space between."""
    clean = lambda text: " ".join(text.split())
    scores = [float(Rouge().calc_score([clean(h)], [clean(r) for r in rs])) for h, rs in zip(hyps, refs)]
    cider = CiderScorer(n=4, sigma=6.0)
    for h, rs in zip(hyps, refs):
        cider += (clean(h), [clean(r) for r in rs])
    mean, values = cider.compute_score()
    return {"coco_rougeL": (float(np.mean(scores)), scores), "cider": (float(mean), [float(v) for v in values])}


def nist(tokenize, hyps, refs):
    words = [[tokenize(r).split() for r in rs] for rs in refs]
    return float(corpus_nist(words, [tokenize(h).split() for h in hyps], n=5))


def nist_mteval(tokenize, hyps, refs, order=5):
    """mteval-v13a's NIST by Doddington's formulas, for want of a package: all references of a text together."""
    grams = lambda words: collections.Counter(tuple(words[i:i + n]) for n in range(1, order + 1)
                                              for i in range(len(words) - n + 1))
    hyps, refs = [tokenize(h).split() for h in hyps], [[tokenize(r).split() for r in rs] for rs in refs]
    total = sum((grams(r) for rs in refs for r in rs), collections.Counter())
    words = sum(len(r) for rs in refs for r in rs)
    matched, said, ref_len = [0.0] * order, [0] * order, 0.0
    for h, rs in zip(hyps, refs):
        most = collections.Counter()
        for r in rs:
            most |= grams(r)
        ref_len += sum(map(len, rs)) / len(rs)
        for g, count in grams(h).items():
            said[len(g) - 1] += count
            if most[g]:
                before = total[g[:-1]] if len(g) > 1 else words
                matched[len(g) - 1] += min(count, most[g]) * math.log2(before / total[g])
    ratio = min(1, sum(map(len, hyps)) / ref_len)
    penalty = math.exp(math.log(0.5) / math.log(1.5) ** 2 * math.log(ratio) ** 2)
    return penalty * sum(m / s for m, s in zip(matched, said) if s)


def oracle(hyps, refs):
    """[{"options": [...], "corpus": {metric: score}, "segments": {metric: [score]}}]"""
    out = []

    def add(options, results):
        out.append({"options": options, "corpus": {k: v[0] for k, v in results.items()},
                    "segments": {k: v[1] for k, v in results.items() if v[1] is not None}})

    results = {}
    results["bleu"] = sacre(BLEU(), BLEU(effective_order=True), hyps, refs)
    results["chrf"] = sacre(CHRF(), CHRF(), hyps, refs)
    results["chrf++"] = sacre(CHRF(word_order=2), CHRF(word_order=2), hyps, refs)
    results.update(rouge(["rouge1", "rouge2", "rougeL", "rougeLsum"], False, hyps, refs))
    tokenizer = Tokenizer13a()
    results["nist"] = (nist(lambda text: tokenizer(text.rstrip()), hyps, refs), None)
    results["nist_mteval"] = (nist_mteval(lambda text: tokenizer(text.rstrip()), hyps, refs), None)
    add([], results)
    add(["--stem"], rouge(["rouge1", "rouge2", "rougeL", "rougeLsum"], True, hyps, refs))
    add(["--tokenize", "intl"],
        {"bleu": sacre(BLEU(tokenize="intl"), BLEU(tokenize="intl", effective_order=True), hyps, refs)})
    results = {"bleu": sacre(BLEU(tokenize="none"), BLEU(tokenize="none", effective_order=True), hyps, refs)}
    results.update(coco(hyps, refs))
    results["nist"] = (nist(lambda text: text, hyps, refs), None)
    add(["--tokenize", "none"], results)
    add(["--lowercase"], {
        "bleu": sacre(BLEU(lowercase=True), BLEU(lowercase=True, effective_order=True), hyps, refs),
        "chrf": sacre(CHRF(lowercase=True), CHRF(lowercase=True), hyps, refs),
        "chrf++": sacre(CHRF(word_order=2, lowercase=True), CHRF(word_order=2, lowercase=True), hyps, refs)})
    return out


def bootstrap(hyps, others, refs, resamples, seed):
    """What sacrebleu makes of given samples of segments."""
    n = len(hyps)
    index = np.random.default_rng(seed).choice(n, size=(resamples, n), replace=True)
    out = {"segments": n, "index": index.tolist(), "metrics": {}}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        scores, whole = [], []
        for texts in (others, hyps):
            stats = metric._extract_corpus_statistics(texts, streams(refs))
            whole.append(metric._aggregate_and_compute(stats).score)
            picked = np.array(stats, dtype="float64")
            scores.append(np.array([metric._compute_score_from_stats(s.sum(0)).score for s in picked[index]]))
        differences = np.abs(scores[1] - scores[0])
        p = _compute_p_value(differences - differences.mean(), abs(whole[0] - whole[1]))
        mean, half = estimate_ci(scores[1])
        out["metrics"][name] = {"scores": scores[1].tolist(), "mean": float(mean), "half": float(half), "p": float(p)}
    return out


# ---- the program ----------------------------------------------------------------------------------------------------


def write_jsonl(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def run(program, folder, metrics, *options):
    command = [program, "score", "--hyp", os.path.join(folder, "texts.jsonl"), "--ref",
               os.path.join(folder, "references.jsonl"), "--metrics", ",".join(metrics), *options]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def compare(program, folder, expected):
    """-> number of scores compared, worst difference."""
    compared, worst = 0, 0.0
    for case in expected:
        metrics = list(case["corpus"])
        whole = run(program, folder, metrics, "--json", *case["options"])[0]
        single = run(program, folder, metrics, "--segments", *case["options"])
        for metric in metrics:
            pairs = [(whole[metric], case["corpus"][metric])]
            pairs += zip([row[metric] for row in single], case["segments"].get(metric, []))
            apart = [abs(a - b) for a, b in pairs]
            compared += len(apart)
            worst = max(worst, max(apart))
            bad = [i for i, d in enumerate(apart) if not d <= CLOSE]
            if bad:
                print(f"  {' '.join(case['options'])} {metric}: {len(bad)} of {len(apart)} differ; the first is "
                      f"{'the corpus' if bad[0] == 0 else 'segment %d' % (bad[0] - 1)}: {pairs[bad[0]]}")
    return compared, worst


def check(name, program, rows, expected=None):
    hyps, refs = [r[0] for r in rows], [r[2] for r in rows]
    expected = expected or oracle(hyps, refs)
    with tempfile.TemporaryDirectory() as folder:
        write_jsonl(os.path.join(folder, "texts.jsonl"), [{"text": h} for h in hyps])
        write_jsonl(os.path.join(folder, "references.jsonl"), [{"references": r} for r in refs])
        compared, worst = compare(program, folder, expected)
    print(f"{name}: {len(rows)} texts, {sum(map(len, refs))} references; {compared} scores, worst difference "
          f"{worst:.1e}")
    return worst <= CLOSE


def read_e2e(path, seed):
    rng = random.Random(seed)
    grouped = {}
    with open(path, encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            grouped.setdefault(row["mr"], []).append(row["ref"])
    return [(rng.choice(refs) if len(refs) < 2 else refs[0], "", refs[1:] or refs) for refs in grouped.values()]


# ---- Stanford's tokenizer -------------------------------------------------------------------------------------------


def compare_ptb(program, rows):
    """COCO's scores with the approximation against those with the original: a share of equal texts, two corpus
scores."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
    texts = [[h] + r for h, _, r in rows]
    tokens = PTBTokenizer().tokenize({i: [{"caption": t} for t in row] for i, row in enumerate(texts)})
    want = coco([tokens[i][0] for i in range(len(rows))], [tokens[i][1:] for i in range(len(rows))])
    with tempfile.TemporaryDirectory() as folder:
        write_jsonl(os.path.join(folder, "texts.jsonl"), [{"text": h} for h, _, _ in rows])
        write_jsonl(os.path.join(folder, "references.jsonl"), [{"references": r} for _, _, r in rows])
        whole = run(program, folder, list(want), "--json")[0]
        single = run(program, folder, list(want), "--segments")
    equal = sum(abs(row["coco_rougeL"] - w) <= CLOSE for row, w in zip(single, want["coco_rougeL"][1]))
    print(f"Stanford's tokenizer: ROUGE-L of {equal} of {len(rows)} texts is equal; of the corpus "
          f"{whole['coco_rougeL']:.5f} against {want['coco_rougeL'][0]:.5f}, CIDEr {whole['cider']:.5f} against "
          f"{want['cider'][0]:.5f}")
    return equal >= 0.97 * len(rows) and abs(whole["cider"] - want["cider"][0]) < 0.005


def write_fixture(rows, expected, samples):
    os.makedirs(FIXTURE, exist_ok=True)
    write_jsonl(os.path.join(FIXTURE, "texts.jsonl"), [{"text": r[0]} for r in rows])
    write_jsonl(os.path.join(FIXTURE, "other.jsonl"), [{"text": r[1]} for r in rows[:samples["segments"]]])
    write_jsonl(os.path.join(FIXTURE, "references.jsonl"), [{"references": r[2]} for r in rows])
    rounded = lambda values: [round(v, 8) for v in values]
    for case in expected:
        case["segments"] = {k: rounded(v) for k, v in case["segments"].items()}
    stemmer = PorterStemmer()
    stems = sorted({stem + suffix for stem in STEMS for suffix in SUFFIXES if len(stem + suffix) > 3} |
                   {w for w in WHOLE if w.isascii() and w.isalpha() and w.islower() and len(w) > 3})
    stems = random.Random(2).sample(stems, 900) + [w for w in WHOLE if w.isascii() and w.isalpha() and w.islower()]
    with open(os.path.join(FIXTURE, "expected.json"), "w", encoding="utf-8") as f:
        known = {w: stemmer.stem(w) for w in stems if len(w) > 3}
        json.dump({"scores": expected, "bootstrap": samples, "stems": known}, f, separators=(",", ":"))
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--write", action="store_true", help="write the fixture anew")
    p.add_argument("--texts", type=int, default=3000)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data"))
    args = p.parse_args()
    rows = make(SEGMENTS, SEED)
    expected = oracle([r[0] for r in rows], [r[2] for r in rows])
    if args.write:
        few = rows[:40]
        write_fixture(rows, expected, bootstrap([r[0] for r in few], [r[1] for r in few], [r[2] for r in few], 60, 3))
    good = check("the fixture", args.program, rows, expected)
    good = check("others", args.program, make(args.texts, args.seed)) and good
    e2e = os.path.join(args.data, "e2e", "testset_w_refs.csv")
    if os.path.exists(e2e):
        real = read_e2e(e2e, args.seed)
        good = check("E2E test set, a reference against the rest", args.program, real) and good
        if shutil.which("java"):
            good = compare_ptb(args.program, real) and good
        else:
            print("skipped: Stanford's tokenizer, there is no java")
    else:
        print(f"skipped: {e2e} is missing")
    sys.exit(not good)


if __name__ == "__main__":
    main()
