"""Checks of the reference against itself and against plain Hugging Face: python reference/selftest.py

Small random models, a few seconds, no data needed. Exit status is the verdict.
"""

import os
import random
import tempfile

import torch
from transformers import OPTConfig, OPTForCausalLM

import skipdecode_reference as ref
import train_embedded as train
from make_fixtures import MODELS, random_model

TOLERANCE = 2e-4  # absolute, on logits of order 10


def check(name, ok, detail=""):
    print(f"{'ok    ' if ok else 'FAILED'} {name} {detail}".rstrip())
    if not ok:
        check.failed += 1


check.failed = 0


def largest(a, b):
    return (a - b).abs().max().item()


def schedules_known_values():
    s = ref.parse("warmup=1,max=16,min=8,horizon=64,prompt=full", 24)
    check("first and last budget", (s.k(0), s.k(63), s.k(1000)) == (16, 8, 8))
    check("A(0) is the warm-up layer and the top 15", s.layers(0) == [0] + list(range(9, 24)))
    check("rounding is half up", [ref.linear_budget(j, 4, 2, 5) for j in range(6)] == [4, 4, 3, 3, 2, 2])
    check("horizon 1 holds k_max", ref.linear_budget(7, 9, 3, 1) == 9)
    presets = {s: ref.preset(24, s, 24) for s in (1, 2, 3, 4, 5)}
    check("presets of 24 layers", [(p.k(0), p.k(99)) for p in presets.values()] ==
          [(24, 24), (16, 8), (11, 5), (8, 4), (6, 3)])
    check("presets keep a layer above the warm-up", ref.preset(4, 5, 8, warmup=2).k(99) == 3)
    check("prompt=max runs the first budget", ref.parse("max=7,min=3,horizon=4,prompt=max", 9).prompt == 7)
    for bad in ("max=8,min=9,horizon=3", "max=9,min=1,horizon=3", "max=99,min=2,horizon=3", "max=8,min=2,horizon=0",
                "budgets=3:4", "budgets=", "budgets=3,max=4", "ranking=0:0:1:2,budgets=2",
                "max=8,min=4,horizon=4,prompt=7", "max=8,min=4,horizon=4,prompt=25", "speed=2",
                "max=8,max=8,min=2,horizon=3", "max", ""):
        try:
            ref.parse(bad, 24)
            check(f"'{bad}' is refused", False)
        except (ValueError, KeyError):
            check(f"'{bad}' is refused", True)


def schedules_random(rng):
    """Nested sets for any ranking and any budgets; the formula in floating point where that is safe."""
    ok = True
    for _ in range(2000):
        n = rng.randint(2, 48)
        w = rng.randint(0, n - 1)
        lo, hi = sorted((rng.randint(w + 1, n), rng.randint(w + 1, n)))
        horizon = rng.randint(1, 100)
        s = ref.skipdecode(n, hi, lo, horizon, w, rng.choice(["full", "max", str(rng.randint(hi, n))]))
        sets = [set(s.layers(j)) for j in range(horizon + 3)]
        ok &= all(b <= a for a, b in zip(sets, sets[1:])) and sets[0] <= set(s.prompt_layers())
        for j, a in enumerate(sets):
            k = s.k(j)
            ok &= a == set(range(w)) | set(range(n - (k - w), n)) and lo <= k <= hi
            exact = hi - (hi - lo) * min(j, horizon - 1) / max(horizon - 1, 1) if horizon > 1 else hi
            ok &= abs(k - exact) <= 0.5 + 1e-9
    check("2,000 random schedules are nested and as the formula says", ok)


def forwards(rng):
    for name in MODELS:
        model = random_model(name)
        n, vocab = model.config.num_hidden_layers, model.config.vocab_size
        ids = [2] + [rng.randrange(4, vocab) for _ in range(8)]
        forced = [rng.randrange(4, vocab) for _ in range(9)]
        with torch.no_grad():
            plain = model(torch.tensor([ids + forced])).logits[0]
            rows = ref.logits_rows(model, ids, forced, ref.full(n))
            check(f"{name}: all layers is Hugging Face's forward", largest(rows, plain[len(ids) - 1:]) < TOLERANCE,
                  f"{largest(rows, plain[len(ids) - 1:]):.1e}")
            ranking = list(range(n))
            rng.shuffle(ranking)
            for text in (f"max={n},min=2,horizon=6", f"warmup=2,max={n - 1},min=3,horizon=4,prompt=max",
                         f"max={n - 2},min=2,horizon=20,prompt={n - 1}",
                         f"budgets={n}:{n - 1}:{n - 1}:2:1,ranking={':'.join(map(str, ranking))}"):
                s = ref.parse(text, n)
                cached = ref.logits_rows(model, ids, forced, s)
                forward = ref.teacher_forced(model, ids, forced, s)[len(ids) - 1:]
                check(f"{name}: {text}: cached = teacher forced", largest(cached, forward) < TOLERANCE,
                      f"{largest(cached, forward):.1e}")
                check(f"{name}: {text}: skipping moves the logits", largest(cached, rows) > 0.1)


def refuses_a_hole():
    """A budget that rises again is what the cache cannot serve; the decoder must notice, not guess."""
    model = random_model("opt-tiny-prenorm")
    s = ref.parse("budgets=5:3", 7)
    d = ref.Decoder(model, s)
    d.prefill([2, 5, 6])
    d.decode(7), d.decode(8)
    object.__setattr__(s, "budgets", (5, 3, 5))
    try:
        d.decode(9)
        check("a rising budget is noticed at run time", False)
    except AssertionError:
        check("a rising budget is noticed at run time", True)


def lean_training_forward(rng):
    """The packed forward of train_embedded.py: same loss as the reference, mixed speeds, empty slots, padding."""
    shape = dict(train.SHAPE)
    train.SHAPE.update(vocab_size=64, hidden_size=32, num_attention_heads=2, ffn_dim=64, num_hidden_layers=9)
    try:
        p = train.init_params(5)
        with torch.no_grad():
            for i, v in enumerate(p.values()):
                v.add_(torch.randn(v.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
        config = OPTConfig(**train.SHAPE, word_embed_proj_dim=32)
        model = OPTForCausalLM._from_config(config, attn_implementation="eager").eval()
        missing, unexpected = model.load_state_dict(train.to_hugging_face(p), strict=False)
        check("every lean parameter has its place", not unexpected and set(missing) <= {"lm_head.weight"})
        model.tie_weights()
        schedules = [ref.preset(9, s, 7) for s in train.SPEEDUPS]

        def words(n):
            return [rng.randrange(4, 64) for _ in range(n)]

        rows = [([2] + words(rng.randint(1, 7)), [words(rng.randint(0, 11)) + [2] for _ in range(5)]) for _ in range(4)]
        rows[1][1][2] = rows[3][1][0] = None
        batch = train.Batch(rows, schedules)
        total = train.loss_sum(p, batch)
        want = sum(
            torch.nn.functional.cross_entropy(
                ref.teacher_forced(model, prompt, r[:-1], s)[len(prompt) - 1:], torch.tensor(r), reduction="sum")
            for prompt, rs in rows for r, s in zip(rs, schedules) if r)
        check("packed mixed-speed loss = reference", abs(total.item() - want.item()) < 1e-4 * want.item(),
              f"{total.item():.4f} {want.item():.4f}")
        total.backward()
        want.backward()
        grads = train.to_hugging_face({k: v.grad for k, v in p.items()})
        # k_proj.bias has no gradient but rounding: softmax ignores what is added to all scores of a query
        worst = max(largest(grads[k], v.grad) / (v.grad.abs().max().item() + 1e-3)
                    for k, v in model.named_parameters() if k in grads)
        check("packed mixed-speed gradients = reference", worst < 1e-3, f"{worst:.1e}")
    finally:
        train.SHAPE.clear()
        train.SHAPE.update(shape)


def survives_a_round_trip():
    with tempfile.TemporaryDirectory() as tmp:
        model = random_model("opt-tiny-350m")
        model.save_pretrained(os.path.join(tmp, "m"))
        again = ref.load(os.path.join(tmp, "m"))
        s = ref.parse("max=4,min=2,horizon=3", model.config.num_hidden_layers)
        a, b = (ref.logits_rows(m, [2, 9, 8], [7, 6, 5], s) for m in (model, again))
        check("a saved model decodes the same", largest(a, b) < 1e-5, f"{largest(a, b):.1e}")


def main():
    torch.set_num_threads(1)
    rng = random.Random(20230702)
    schedules_known_values()
    schedules_random(rng)
    forwards(rng)
    refuses_a_hole()
    lean_training_forward(rng)
    survives_a_round_trip()
    print(f"{check.failed} failed")
    raise SystemExit(check.failed > 0)


if __name__ == "__main__":
    main()
