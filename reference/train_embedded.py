"""Trains the embedded model: a 24-layer OPT of width 128 on the E2E restaurant data, usable at 1x to 5x.

    python reference/train_embedded.py --data ../shared/data/e2e --work DIR [--out models/e2e-24l]

Phase 1 trains at full depth, phase 2 fine-tunes the same weights with the rows of every step split evenly among full
depth, 2x, 3x, 4x and 5x. DIR receives the checkpoints (written atomically, training resumes from them) and the log;
the full-depth-only model stays there as DIR/full-depth, the final one goes to --out.

The forward is a lean copy of OPT's, because a step of this small model is bound by memory traffic and calls, not by
arithmetic. It packs one prompt with several of its references, so the prompt is computed once for all of them:

    [ prompt | response tokens of all slots, sorted by budget, largest first ]

Slot g's token j sees the prompt and its own slot's tokens up to j. As the tokens are sorted by budget, those that run
in a layer are a prefix whatever mix of speeds the slots have: each layer is dense work on x[:, :n]. `selftest.py`
checks that this equals `skipdecode_reference.teacher_forced`.
"""

import argparse
import csv
import json
import math
import os
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import skipdecode_reference as ref

SPEEDUPS = [1, 2, 3, 4, 5]
SLOTS = len(SPEEDUPS)  # references packed behind one prompt; in phase 2 one for each speed
BOS = EOS = 2
PAD = 1
SHAPE = dict(vocab_size=1500, hidden_size=128, num_hidden_layers=24, num_attention_heads=4, ffn_dim=512,
             max_position_embeddings=512)
MAX_TOKENS = 96
TEMPLATE = "{mr}\n"

# ------------------------------------------------------------------------------------------------ data, tokenizer


def read_csv(path):
    """[(mr, [references])] in the file's order; rows of one mr are its references."""
    groups = {}
    with open(path, encoding="utf-8-sig", newline="") as f:
        for row in csv.DictReader(f):
            groups.setdefault(row["mr"], []).append(row["ref"])
    return list(groups.items())


def train_tokenizer(groups):
    """Byte-level BPE with GPT-2's pattern, learned from both sides of the training set."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SHAPE["vocab_size"], special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    # each mr once per reference: its words weigh as much as the references'
    tok.train_from_iterator((s for mr, texts in groups for t in texts for s in (mr, t)), trainer)
    tok.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", BOS)])
    return tok


def encode(tok, text):
    return tok.encode(text, add_special_tokens=False).ids


def tokenise(tok, groups):
    """[(prompt ids, [response ids])]; joined at id level, so no merge crosses the border."""
    return [([BOS] + encode(tok, TEMPLATE.format(mr=mr)), [encode(tok, t)[: MAX_TOKENS - 1] + [EOS] for t in texts])
            for mr, texts in groups]


# --------------------------------------------------------------------------------------------------------- model


def init_params(seed):
    """Flat dict, Hugging Face's names without `model.decoder.`; q, k and v as one matrix."""
    g = torch.Generator().manual_seed(seed)
    d, n = SHAPE["hidden_size"], SHAPE["num_hidden_layers"]

    def normal(*shape, std=0.04):
        return torch.randn(*shape, generator=g) * std

    p = {"embed_tokens.weight": normal(SHAPE["vocab_size"], d),
         "embed_positions.weight": normal(SHAPE["max_position_embeddings"] + 2, d, std=0.02),
         "final_layer_norm.weight": torch.ones(d), "final_layer_norm.bias": torch.zeros(d)}
    for l in range(n):
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            p[f"layers.{l}.{norm}.weight"], p[f"layers.{l}.{norm}.bias"] = torch.ones(d), torch.zeros(d)
        # what is added to the residual starts small, or 48 additions drown the embedding
        for name, rows, cols, std in (("self_attn.qkv", 3 * d, d, 0.06),
                                      ("self_attn.out_proj", d, d, 0.06 / math.sqrt(2 * n)),
                                      ("fc1", SHAPE["ffn_dim"], d, 0.06),
                                      ("fc2", d, SHAPE["ffn_dim"], 0.06 / math.sqrt(2 * n))):
            p[f"layers.{l}.{name}.weight"] = normal(rows, cols, std=std)
            p[f"layers.{l}.{name}.bias"] = torch.zeros(rows)
    return {k: v.requires_grad_() for k, v in p.items()}


class Batch:
    """Rows packed as the module's comment says. schedules: one per slot, shared by all rows."""

    def __init__(self, rows, schedules):
        """rows: [(prompt ids, [response ids or None, one per slot])]; a response ends in EOS."""
        n_rows, n_slots = len(rows), len(schedules)
        assert len({s.ranking for s in schedules}) == 1 and all(s.prompt == s.n_layers for s in schedules)
        P = max(len(p) for p, _ in rows)
        T = max(len(r) for _, rs in rows for r in rs if r) - 1  # EOS is predicted, never fed
        # (slot, j) of every response column, largest budget first; ties by j, so that padding gathers at the end
        columns = ((g, j) for g in range(n_slots) for j in range(T))
        order = sorted(columns, key=lambda c: (-schedules[c[0]].k(c[1]), c[1]))
        slot, step = (torch.tensor(x, dtype=torch.long) for x in (zip(*order) if order else ((), ())))
        S = P + len(order)
        self.n_prompt = P
        self.running = []  # columns that run, per layer
        for l in range(schedules[0].n_layers):
            r = schedules[0].rank(l)
            self.running.append(P + sum(schedules[g].k(j) > r for g, j in order))
        self.ids = torch.full((n_rows, S), PAD)
        self.positions = torch.zeros(n_rows, S, dtype=torch.long)
        self.targets = torch.full((n_rows, S), -100)
        first = torch.full((n_rows, n_slots), -100)  # the prompt's last column predicts token 0 of every slot
        valid = torch.zeros(n_rows, S, dtype=torch.bool)
        for b, (prompt, responses) in enumerate(rows):
            p = len(prompt)
            self.ids[b, :p] = torch.tensor(prompt)
            self.positions[b, :p] = torch.arange(p)
            self.positions[b, P:] = p + step
            valid[b, :p] = True
            table = torch.full((n_slots, T + 1), -1)
            for g, r in enumerate(responses):
                if r is None:
                    continue
                table[g, : len(r)] = torch.tensor(r)
                first[b, g] = r[0]
            fed, nxt = table[slot, step], table[slot, step + 1]
            live = nxt >= 0
            self.ids[b, P:][live] = fed[live]
            self.targets[b, P:][live] = nxt[live]
            valid[b, P:] = live
        # prompt columns: causal; response columns: the prompt and the own slot's tokens up to here
        see = torch.zeros(S, S, dtype=torch.bool)
        see[:P, :P] = torch.ones(P, P, dtype=torch.bool).tril()
        see[P:, :P] = True
        see[P:, P:] = (slot[:, None] == slot[None]) & (step[:, None] >= step[None])
        see = see[None] & valid[:, None, :]
        see |= torch.eye(S, dtype=torch.bool)  # a padded column sees itself: softmax over nothing is NaN
        self.mask = torch.zeros(n_rows, 1, S, S).masked_fill(~see[:, None], float("-inf"))
        self.last = torch.tensor([len(p) - 1 for p, _ in rows])
        self.first = first
        self.n_targets = int((first >= 0).sum() + (self.targets >= 0).sum())


class Dropper:
    """Dropout from a pool of random masks: drawing 25 million random numbers a step would cost as much as a layer."""

    def __init__(self, p, seed, size=1 << 23):
        self.p, self.g, self.size, self.uses = p, torch.Generator().manual_seed(seed), size, 0

    def __call__(self, x):
        if self.p == 0:
            return x
        if self.uses % 256 == 0:
            # a new tensor each time: autograd still holds views of the old one
            self.pool = torch.empty(self.size).bernoulli_(1 - self.p, generator=self.g).div_(1 - self.p)
        self.uses += 1
        at = int(torch.randint(self.size - x.numel(), (1,), generator=self.g))
        return x * self.pool[at : at + x.numel()].view_as(x)


def hidden(p, batch, drop=lambda x: x):
    """[rows, columns, width] after the final norm."""
    d, heads = SHAPE["hidden_size"], SHAPE["num_attention_heads"]
    x = F.embedding(batch.ids, p["embed_tokens.weight"]) + F.embedding(batch.positions + 2, p["embed_positions.weight"])
    B = len(x)
    for l, n in enumerate(batch.running):
        def w(name):
            return p[f"layers.{l}.{name}.weight"], p[f"layers.{l}.{name}.bias"]

        h = x[:, :n]
        a = F.linear(F.layer_norm(h, (d,), *w("self_attn_layer_norm")), *w("self_attn.qkv"))
        q, k, v = a.view(B, n, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=batch.mask[:, :, :n, :n])
        h = h + drop(F.linear(a.transpose(1, 2).reshape(B, n, d), *w("self_attn.out_proj")))
        a = F.relu(F.linear(F.layer_norm(h, (d,), *w("final_layer_norm")), *w("fc1")))
        h = h + drop(F.linear(a, *w("fc2")))
        x = h if n == x.shape[1] else torch.cat([h, x[:, n:]], dim=1)
    return F.layer_norm(x, (d,), p["final_layer_norm.weight"], p["final_layer_norm.bias"])


def loss_sum(p, batch, drop=lambda x: x):
    """Summed cross entropy of all response tokens, EOS included."""
    h = hidden(p, batch, drop)
    start = h[torch.arange(len(h)), batch.last][:, None].expand(-1, batch.first.shape[1], -1)
    live_first, live = batch.first >= 0, batch.targets >= 0
    h = torch.cat([start[live_first], h[live]])
    target = torch.cat([batch.first[live_first], batch.targets[live]])
    return F.cross_entropy(h @ p["embed_tokens.weight"].T, target, reduction="sum")


# ------------------------------------------------------------------------------------------------------ batching


def epoch_batches(data, rows_per_step, rng, chunk=64):
    """Shuffled steps of [(prompt, [response or None] * SLOTS)], of similar shape inside a step: little is padding."""
    groups = []
    for prompt, responses in data:
        responses = rng.sample(responses, len(responses))
        if len(responses) > SLOTS and len(responses) % SLOTS <= 2:
            # one or two left over would cost a whole group of columns: others are left out in the next epoch
            responses = responses[: len(responses) - len(responses) % SLOTS]
        responses.sort(key=lambda r: len(r) + rng.gauss(0, 2))  # noise: other neighbours every epoch
        for i in range(0, len(responses), SLOTS):
            part = responses[i : i + SLOTS]
            part += [None] * (SLOTS - len(part))
            rng.shuffle(part)  # the slot decides the speed in phase 2
            groups.append((prompt, part))
    rng.shuffle(groups)
    steps, span = [], rows_per_step * chunk
    for i in range(0, len(groups), span):
        block = sorted(groups[i : i + span], key=lambda g: max(len(r) for r in g[1] if r))
        steps += [block[k : k + rows_per_step] for k in range(0, len(block), rows_per_step)]
    rng.shuffle(steps)
    return steps


# ------------------------------------------------------------------------------------------------------- training


def save_atomic(obj, path):
    torch.save(obj, path + ".tmp")
    os.replace(path + ".tmp", path)


def to_hugging_face(p):
    """The lean parameters as an OPTForCausalLM state dict (head tied, so not listed)."""
    out = {}
    for name, v in p.items():
        v = v.detach()
        if ".self_attn.qkv." in name:
            for part, rows in zip("qkv", v.chunk(3)):
                out["model.decoder." + name.replace("qkv", f"{part}_proj")] = rows.contiguous()
        else:
            out["model.decoder." + name] = v.clone()
    return out


def export(p, tok, horizon, speedups, out):
    """A Hugging Face model folder in f16, plus skipdecode.json."""
    from safetensors.torch import save_file
    from transformers import OPTConfig

    os.makedirs(out, exist_ok=True)
    config = OPTConfig(**SHAPE, word_embed_proj_dim=SHAPE["hidden_size"], dropout=0.1, dtype="float16",
                       bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, architectures=["OPTForCausalLM"])
    config.save_pretrained(out)
    tensors = {k: v.half() for k, v in sorted(to_hugging_face(p).items())}
    save_file(tensors, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(out, "model.safetensors"), 0o644)
    tok.model.save(out)  # vocab.json, merges.txt
    tok.save(os.path.join(out, "tokenizer.json"))
    write_json(os.path.join(out, "tokenizer_config.json"), {
        "add_bos_token": True, "add_prefix_space": False, "bos_token": "</s>", "clean_up_tokenization_spaces": False,
        "eos_token": "</s>", "errors": "replace", "model_max_length": SHAPE["max_position_embeddings"],
        "pad_token": "<pad>", "tokenizer_class": "GPT2Tokenizer", "unk_token": "<unk>"})
    write_json(os.path.join(out, "skipdecode.json"), {
        "format": 1, "prompt_template": TEMPLATE,
        "schedule": {"policy": "skipdecode", "warmup": 1, "horizon": horizon, "prompt": "full"},
        "trained_speedups": speedups, "max_tokens": MAX_TOKENS})


def write_json(path, obj):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, indent=2)
        f.write("\n")


def log(work, text):
    line = f"{time.strftime('%H:%M:%S')} {text}"
    print(line, flush=True)
    with open(os.path.join(work, "train.log"), "a") as f:
        f.write(line + "\n")


@torch.no_grad()
def dev_loss(p, data, speedup, horizon, rows=16):
    """Mean cross entropy per response token, every slot at the same speed."""
    schedules = [ref.preset(SHAPE["num_hidden_layers"], speedup, horizon)] * SLOTS
    groups = []
    for prompt, responses in data:
        responses = sorted(responses, key=len)
        for i in range(0, len(responses), SLOTS):
            part = responses[i : i + SLOTS]
            groups.append((prompt, part + [None] * (SLOTS - len(part))))
    groups.sort(key=lambda g: max(len(r) for r in g[1] if r))
    total = count = 0
    for i in range(0, len(groups), rows):
        b = Batch(groups[i : i + rows], schedules)
        total, count = total + loss_sum(p, b).item(), count + b.n_targets
    return total / count


def phase(name, p, train, dev, speedups, horizon, args, epochs, peak_lr, warmup_steps, seed):
    """One cosine run over `epochs`. Returns the parameters of the epoch with the best mean dev loss."""
    path = os.path.join(args.work, f"{name}.pt")
    if os.path.exists(path):
        return {k: v.requires_grad_() for k, v in torch.load(path).items()}
    state_path = os.path.join(args.work, f"{name}.state.pt")
    decay = [v for v in p.values() if v.dim() > 1]
    rest = [v for v in p.values() if v.dim() == 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
                            lr=peak_lr, betas=(0.9, 0.98), fused=True)
    start, best = 0, (float("inf"), None)
    if os.path.exists(state_path):
        state = torch.load(state_path)
        start, best = state["step"], state["best"]
        opt.load_state_dict(state["opt"])
        with torch.no_grad():
            for k, v in p.items():
                v.copy_(state["params"][k])
        log(args.work, f"{name}: resumed at step {start}")
    n_layers = SHAPE["num_hidden_layers"]
    # with fewer speeds than slots they take turns
    schedules = [ref.preset(n_layers, speedups[g % len(speedups)], horizon) for g in range(SLOTS)]
    per_epoch = [epoch_batches(train, args.rows, random.Random(seed * 1000 + e)) for e in range(epochs)]
    steps = [(e, rows) for e, batches in enumerate(per_epoch) for rows in batches]
    ends = {i for i in range(1, len(steps) + 1) if i == len(steps) or steps[i - 1][0] != steps[i][0]}
    drop = Dropper(0.1, seed + start)
    tic, seen, running = time.time(), 0, 0.0
    for i in range(start, len(steps)):
        warm = min(1.0, (i + 1) / warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * max(0, i - warmup_steps) / (len(steps) - warmup_steps)))
        for group in opt.param_groups:
            group["lr"] = peak_lr * warm * cosine
        batch = Batch(steps[i][1], schedules)
        loss = loss_sum(p, batch, drop) / batch.n_targets
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        opt.step()
        seen, running = seen + batch.n_targets, running + loss.item()
        done = i + 1
        if done % 50 == 0:
            log(args.work, f"{name}: step {done}/{len(steps)} loss {running / 50:.4f} "
                           f"{seen / (time.time() - tic):.0f} response tokens/s")
            tic, seen, running = time.time(), 0, 0.0
        if done in ends:
            losses = {s: dev_loss(p, dev, s, horizon) for s in speedups}
            mean = sum(losses.values()) / len(losses)
            by_speed = " ".join(f"{s}x {v:.4f}" for s, v in losses.items())
            log(args.work, f"{name}: epoch {steps[i][0] + 1} dev {by_speed}")
            if mean < best[0]:
                best = (mean, {k: v.detach().clone() for k, v in p.items()})
            tic = time.time()
        if done % 100 == 0 or done in ends:
            save_atomic({"step": done, "best": best, "opt": opt.state_dict(),
                         "params": {k: v.detach() for k, v in p.items()}}, state_path)
    save_atomic(best[1], path)
    return {k: v.requires_grad_() for k, v in best[1].items()}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--data", default="../shared/data/e2e", help="folder with trainset.csv and devset.csv")
    a.add_argument("--work", required=True, help="folder for checkpoints and the log")
    a.add_argument("--out", default="models/e2e-24l")
    a.add_argument("--rows", type=int, default=16, help=f"prompts per step, each with up to {SLOTS} references")
    a.add_argument("--epochs", type=int, nargs=2, default=(3, 3), metavar=("FULL", "MIXED"))
    a.add_argument("--lr", type=float, nargs=2, default=(1.5e-3, 1e-3), metavar=("FULL", "MIXED"))
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--baseline", action="store_true",
                   help="also train the full-depth-only model of as many steps: phase 2 at 1x only")
    args = a.parse_args()
    torch.set_num_threads(args.threads)
    os.makedirs(args.work, exist_ok=True)
    groups = read_csv(os.path.join(args.data, "trainset.csv"))
    tok = train_tokenizer(groups)
    train, dev = tokenise(tok, groups), tokenise(tok, read_csv(os.path.join(args.data, "devset.csv")))
    lengths = [len(r) for _, rs in train for r in rs]
    horizon = ref.round_half_up(ref.Fraction(sum(lengths), len(lengths)))
    log(args.work, f"{len(lengths)} pairs, mean response {sum(lengths) / len(lengths):.2f} tokens: horizon {horizon}")
    p = init_params(args.seed)
    p = phase("full", p, train, dev, [1], horizon, args, args.epochs[0], args.lr[0], 100, args.seed)
    export(p, tok, horizon, [1], os.path.join(args.work, "full-depth"))
    if args.baseline:
        q = {k: v.detach().clone().requires_grad_() for k, v in p.items()}
        q = phase("baseline", q, train, dev, [1], horizon, args, args.epochs[1], args.lr[1], 50, args.seed + 1)
        export(q, tok, horizon, [1], os.path.join(args.work, "full-depth-same-steps"))
    p = phase("mixed", p, train, dev, SPEEDUPS, horizon, args, args.epochs[1], args.lr[1], 50, args.seed + 1)
    export(p, tok, horizon, SPEEDUPS, args.out)


if __name__ == "__main__":
    main()
