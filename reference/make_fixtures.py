"""Writes tests/fixtures: tiny random OPT checkpoints, and what the reference says they answer.

    python reference/make_fixtures.py [--out tests/fixtures] [--tokenizer models/e2e-24l]

Every checkpoint folder has config.json and model.safetensors as Hugging Face writes them, plus
    cases.json             [{"name", "ids", "forced", "schedule"}]
    expected.safetensors   per case name, f32 [1 + len(forced), vocab]: row 0 after the prompt, row i+1 after forced[i]
                           was fed as generated token i (step i)

tokenizer-golden/e2e-24l.jsonl holds strange strings and the ids that Hugging Face gives them with the embedded model's
tokenizer, special tokens neither added nor spelled out: {"text", "ids"} a line.
"""

import argparse
import json
import os
import random

import torch
from safetensors.torch import save_file
from transformers import OPTConfig, OPTForCausalLM

import skipdecode_reference as ref
import strings

# Shapes that a wrong assumption trips over: head sizes 16, 80, 22 and 10, widths that no vector register divides, both
# norm orders, projected embeddings, a missing final norm, no biases, weights stored in f16.
MODELS = {
    "opt-tiny-prenorm": dict(num_hidden_layers=7, hidden_size=32, num_attention_heads=2, ffn_dim=88, vocab_size=106),
    # two heads of 80 need a width of 160: f16 and four layers keep the file under a megabyte
    "opt-tiny-hd80": dict(num_hidden_layers=4, hidden_size=160, num_attention_heads=2, ffn_dim=20, vocab_size=75,
                          max_position_embeddings=40, dtype="float16"),
    "opt-tiny-350m": dict(num_hidden_layers=6, hidden_size=44, num_attention_heads=2, ffn_dim=50, vocab_size=98,
                          word_embed_proj_dim=28, do_layer_norm_before=False),
    "opt-tiny-gelu-nobias": dict(num_hidden_layers=6, hidden_size=40, num_attention_heads=4, ffn_dim=68,
                                 vocab_size=102, activation_function="gelu", enable_bias=False,
                                 layer_norm_elementwise_affine=False),
    # what was fine-tuned before transformers 4.20.1: pre-norm, but the decoder's last norm is neither stored nor run
    "opt-tiny-nofinalnorm": dict(num_hidden_layers=5, hidden_size=24, num_attention_heads=3, ffn_dim=60,
                                 vocab_size=70, _remove_final_layer_norm=True),
}


def random_tensor(key, shape, g, embed_std=0.6):
    """Large enough that every operation shows in the logits: gains and biases too."""
    noise = torch.randn(shape, generator=g)
    if "layer_norm" in key:
        return 1 + 0.2 * noise if key.endswith("weight") else 0.2 * noise
    if key.endswith("bias"):
        return 0.2 * noise
    if "embed" in key:
        return embed_std * noise
    return 1.2 * noise / shape[1] ** 0.5  # keeps the variance of a unit-variance input, attention scores included


def random_model(name):
    config = OPTConfig(**{"max_position_embeddings": 64, **MODELS[name]})
    model = OPTForCausalLM._from_config(config, attn_implementation="eager").eval()
    g = torch.Generator().manual_seed(sum(name.encode()))
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(random_tensor(key, p.shape, g))
    model.tie_weights()
    return model.to(config.dtype or torch.float32).float()  # values that the stored type holds exactly


def cases(model, rng):
    n, vocab = model.config.num_hidden_layers, model.config.vocab_size

    def words(count):
        return [rng.randrange(4, vocab) for _ in range(count)]

    spread = [0, n - 1] + [l for l in range(2, n - 1, 2)] + [l for l in range(1, n - 1, 2)]
    plan = [  # name, prompt length, forced tokens, schedule
        ("full-1", 1, 0, "full"),
        ("full-9", 9, 12, "full"),
        ("skip-prompt-full", 6, 14, f"warmup=1,max={n - 1},min=2,horizon=10,prompt=full"),
        ("skip-prompt-full-1", 1, 8, f"warmup=1,max={n - 2},min=2,horizon=8,prompt=full"),
        ("skip-prompt-max", 8, 10, f"warmup=1,max={n - 1},min=3,horizon=10,prompt=max"),
        ("skip-prompt-number", 17, 6, f"warmup=1,max={n - 2},min=2,horizon=6,prompt={n - 1}"),
        ("skip-warmup-2", 5, 12, f"warmup=2,max={n - 1},min=3,horizon=7,prompt=full"),
        ("skip-warmup-2-max", 3, 9, f"warmup=2,max={max(n - 2, 3)},min=3,horizon=5,prompt=max"),
        ("skip-short-horizon", 4, 12, f"warmup=1,max={n},min=2,horizon=3,prompt=full"),
        ("skip-horizon-1", 4, 4, f"warmup=1,max={n - 2},min=2,horizon=1,prompt=full"),
        ("budgets", 7, 9, f"budgets={n}:{n - 1}:{n - 1}:3:2"),
        ("budgets-prompt-max", 7, 6, f"budgets={n - 1}:3:3:2,prompt=max"),
        ("early-exit", 6, 9, f"budgets={n - 1}:{min(n - 1, 4)}:3:2,ranking={':'.join(map(str, range(n)))}"),
        ("spread-ranking", 6, 12, f"max={n - 1},min=2,horizon=9,prompt={n},ranking={':'.join(map(str, spread))}"),
        ("one-layer", 2, 5, f"budgets=1,ranking={':'.join(map(str, [3, 1, 0, 2] + list(range(4, n))))}"),
        ("to-the-last-position", model.config.max_position_embeddings - 4, 4, f"max={n - 1},min=2,horizon=4"),
    ]
    return [{"name": name, "ids": [2] + words(p - 1), "forced": words(t), "schedule": s} for name, p, t, s in plan]


def write_model(name, out, rng):
    model = random_model(name)
    model.to(model.config.dtype or torch.float32).save_pretrained(out)
    os.chmod(os.path.join(out, "model.safetensors"), 0o644)
    if os.path.exists(os.path.join(out, "generation_config.json")):
        os.remove(os.path.join(out, "generation_config.json"))
    model = ref.load(out)  # what is on the disk is what is compared
    plan = cases(model, rng)
    n_layers = model.config.num_hidden_layers
    rows = {c["name"]: ref.logits_rows(model, c["ids"], c["forced"], ref.parse(c["schedule"], n_layers)) for c in plan}
    save_file(rows, os.path.join(out, "expected.safetensors"))
    os.chmod(os.path.join(out, "expected.safetensors"), 0o644)
    with open(os.path.join(out, "cases.json"), "w") as f:
        f.write("[\n" + ",\n".join("  " + json.dumps(c) for c in plan) + "\n]\n")
    size = sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out))
    spread = torch.cat(list(rows.values()))
    print(f"{name}: {size / 1000:.0f} KB, {len(plan)} cases, logits rms {spread.pow(2).mean().sqrt():.1f}, "
          f"largest {spread.abs().max():.1f}")
    assert size < 1_000_000


def write_golden(folder, path, count=2000):
    from transformers import AutoTokenizer

    tok = AutoTokenizer.from_pretrained(folder)
    rng, texts, lines = random.Random(2), dict.fromkeys(strings.SENTENCES), []
    while len(texts) < count:
        text = strings.strange(rng)
        # short ones say as much for their bytes; every twentieth may be long
        if len(text.encode()) < 50 or len(texts) % 20 == 0:
            texts[text] = None
    for text in texts:
        ids = tok(text, add_special_tokens=False).input_ids
        assert tok.decode(ids) == text
        lines.append(json.dumps({"text": text, "ids": ids}, separators=(",", ":")))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")
    size = os.path.getsize(path)
    print(f"{path}: {len(lines)} strings, {size / 1000:.0f} KB")
    assert size < 400_000


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--out", default="tests/fixtures")
    a.add_argument("--tokenizer", default="models/e2e-24l", help="folder whose tokenizer the golden strings use")
    args = a.parse_args()
    torch.set_num_threads(1)
    for name in MODELS:
        write_model(name, os.path.join(args.out, name), random.Random(name))
    write_golden(args.tokenizer, os.path.join(args.out, "tokenizer-golden", "e2e-24l.jsonl"))


if __name__ == "__main__":
    main()
