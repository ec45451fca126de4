"""Writes what training has to compute for the tiny checkpoints of tests/fixtures: training.json and
gradients.safetensors in their folders.

    python reference/make_training_fixtures.py [--out tests/fixtures]

training.json: {"rows": [{"prompt", "response", "schedule"}], "nll": summed over all response tokens, "scale": what the
gradient of that sum is multiplied by, "adamw": {...}, "losses": the mean loss before each of 50 steps on these rows}.
gradients.safetensors: one tensor for each parameter, named as in the checkpoint.
"""

import argparse
import json
import os
import random

import torch
from safetensors.torch import save_file

import skipdecode_reference as ref

MODELS = ["opt-tiny-prenorm", "opt-tiny-350m", "opt-tiny-gelu-nobias"]
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-8, "weight_decay": 0.01}
STEPS = 50
# Losses to follow to 1e-3 must be a property of the model, not of rounding: at a rate of 2e-3 the post-norm model's
# loss jumps, and half a unit in the last place of the first weights moved its 50th loss by 1.1e-3, in double.
NUDGE, LARGEST_MOVE = 2.0 ** -24, 1e-5


def rows_for(config, rng):
    n, vocab = config.num_hidden_layers, config.vocab_size
    schedules = ["full", f"max={n - 1},min=2,horizon=7,prompt=full", f"max={n - 2},min=2,horizon=4,prompt=full",
                 f"max={n - 1},min=3,horizon=5,prompt=max", "full"]
    return [{"prompt": [2] + [rng.randrange(4, vocab) for _ in range(rng.randrange(0, 9))],
             "response": [rng.randrange(4, vocab) for _ in range(rng.randrange(3, 14))] + [2], "schedule": s}
            for s in schedules]


def total_nll(model, rows):
    """The sum of -ln p over the response tokens of all rows."""
    total = 0.0
    for row in rows:
        prompt, response = row["prompt"], row["response"]
        schedule = ref.parse(row["schedule"], model.config.num_hidden_layers)
        logits = ref.teacher_forced(model, prompt, response[:-1], schedule)
        total = total + torch.nn.functional.cross_entropy(logits[len(prompt) - 1:], torch.tensor(response),
                                                          reduction="sum")
    return total


def optimizer(model):
    """Weight decay for matrices and tables only."""
    kinds = [[p for p in model.parameters() if (p.dim() == 2) == matrix] for matrix in (True, False)]
    groups = [{"params": kinds[0], "weight_decay": ADAMW["weight_decay"]}, {"params": kinds[1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"])


def train(model, rows, count):
    """The mean loss before each step."""
    losses, adamw = [], optimizer(model)
    for _ in range(STEPS):
        adamw.zero_grad()
        loss = total_nll(model, rows) / count
        loss.backward()
        losses.append(float(loss))
        adamw.step()
    return losses


def trained(folder, dtype=torch.float32, nudge=0.0):
    model = ref.load(folder).to(dtype)
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.requires_grad_(True)
        with torch.no_grad():
            p *= 1 + nudge * torch.randn(p.shape, generator=generator, dtype=dtype)
    return model


def sensitivity(folder, rows, count):
    """How far rounding of the first weights moves a loss, computed in double."""
    runs = [train(trained(folder, torch.float64, nudge), rows, count) for nudge in (0.0, NUDGE)]
    return max(abs(a - b) for a, b in zip(*runs))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--out", default="tests/fixtures")
    args = a.parse_args()
    torch.set_num_threads(1)
    for name in MODELS:
        folder = os.path.join(args.out, name)
        model = trained(folder)
        rows = rows_for(model.config, random.Random(name))
        count = sum(len(r["response"]) for r in rows)
        nll = total_nll(model, rows)
        (nll / count).backward()
        gradients = {key: p.grad.clone() for key, p in model.named_parameters()}
        model.zero_grad()
        losses = [round(loss, 7) for loss in train(model, rows, count)]
        moved = sensitivity(folder, rows, count)
        if not moved <= LARGEST_MOVE:
            raise SystemExit(f"{name}: rounding alone moves a loss by {moved:.1e}: no fixture (lower the rate)")
        save_file(gradients, os.path.join(folder, "gradients.safetensors"))
        os.chmod(os.path.join(folder, "gradients.safetensors"), 0o644)
        with open(os.path.join(folder, "training.json"), "w") as f:
            json.dump({"rows": rows, "nll": float(nll), "scale": 1.0 / count, "adamw": ADAMW, "losses": losses}, f)
            f.write("\n")
        print(f"{name}: {len(gradients)} gradients, loss {losses[0]:.4f} to {losses[-1]:.4f}, "
              f"which rounding moves by {moved:.1e}")


if __name__ == "__main__":
    main()
