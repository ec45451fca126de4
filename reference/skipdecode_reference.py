"""SkipDecode in PyTorch on Hugging Face's OPTForCausalLM: the executable specification (docs/METHOD.md).

Written to be read, not to be fast: one sequence at a time, f32, layers called one by one by their index. The C engine
is compared with `decode` (per-layer KV caches) and training with `teacher_forced` (no cache); the two agree, because
a layer's running positions are always a prefix of the sequence.

Symbols are METHOD.md's: L layers, P prompt length, j decode step, w warm-up layers, k(j) layers run at step j,
A(j) the set of them, N the horizon.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor

import torch
from transformers import DynamicCache, OPTForCausalLM

# ---------------------------------------------------------------------------------------------------- schedule


def round_half_up(x):
    """Exact for int and Fraction."""
    return floor(Fraction(x) + Fraction(1, 2))


def skipdecode_ranking(n_layers, warmup):
    """Layers from the one given up last to the one given up first: the warm-up ones, then from the top down."""
    return list(range(warmup)) + list(range(n_layers - 1, warmup - 1, -1))


def linear_budget(j, k_max, k_min, horizon):
    """k(j) = floor(k_max - (k_max - k_min) * min(j, N-1) / (N-1) + 1/2), without floating point."""
    if horizon == 1:
        return k_max
    fall = Fraction((k_max - k_min) * min(j, horizon - 1), horizon - 1)
    return round_half_up(k_max - fall)


@dataclass(frozen=True)
class Schedule:
    """A ranking of the layers and a non-increasing budget: layer l runs at step j iff its rank < k(j)."""

    ranking: tuple  # permutation of 0 .. L-1, ranking[0] is the layer given up last
    budgets: tuple  # layers run at step 0, 1, ...; the last value holds for all later steps
    prompt: int  # layers run for every prompt token

    def __post_init__(self):
        n = len(self.ranking)
        if n == 0 or sorted(self.ranking) != list(range(n)):
            raise ValueError(f"ranking is not a permutation of 0..{n - 1}: {self.ranking}")
        if not self.budgets or not all(1 <= k <= n for k in self.budgets):
            raise ValueError(f"budgets must lie in 1..{n}: {self.budgets}")
        # The invariant: A(j+1) is a subset of A(j), and all of them of the prompt's set. With one ranking that is
        # the same as budgets that never increase.
        if any(a < b for a, b in zip(self.budgets, self.budgets[1:])):
            raise ValueError(f"budgets increase: {self.budgets}")
        if not self.budgets[0] <= self.prompt <= n:
            raise ValueError(f"prompt budget {self.prompt} is not in {self.budgets[0]}..{n}")

    @property
    def n_layers(self):
        return len(self.ranking)

    def k(self, j):
        return self.budgets[min(j, len(self.budgets) - 1)]

    def layers(self, j):
        """A(j), in running order."""
        return sorted(self.ranking[: self.k(j)])

    def prompt_layers(self):
        return sorted(self.ranking[: self.prompt])

    def rank(self, layer):
        return self.ranking.index(layer)


def full(n_layers, warmup=1):
    # any ranking gives the same function; SkipDecode's lets full-depth rows share a batch with skipping ones
    return Schedule(tuple(skipdecode_ranking(n_layers, min(warmup, n_layers))), (n_layers,), n_layers)


def skipdecode(n_layers, k_max, k_min, horizon, warmup=1, prompt="full", ranking=None):
    if warmup < 0 or horizon < 1 or not warmup + 1 <= k_min <= k_max <= n_layers:
        raise ValueError(f"need {warmup}+1 <= min {k_min} <= max {k_max} <= {n_layers} and horizon {horizon} >= 1")
    budgets = tuple(linear_budget(j, k_max, k_min, horizon) for j in range(horizon))
    return _with_prompt(n_layers, budgets, warmup, prompt, ranking)


def preset(n_layers, speedup, horizon, warmup=1, prompt="full"):
    """The schedule for a target layer speedup; 1 is the full model."""
    if speedup == 1:
        return full(n_layers, warmup)
    mean = Fraction(n_layers) / Fraction(speedup)

    def clamp(k):
        return min(max(k, warmup + 1), n_layers)

    k_max, k_min = round_half_up(mean * 4 / 3), round_half_up(mean * 2 / 3)
    if k_max > n_layers:  # cut at the top: the other end rises by as much, so that the mean stays L/s
        k_max, k_min = n_layers, round_half_up(2 * mean - n_layers)
    k_max = clamp(k_max)
    k_min = min(clamp(k_min), k_max)
    return skipdecode(n_layers, k_max, k_min, horizon, warmup, prompt)


def _with_prompt(n_layers, budgets, warmup, prompt, ranking):
    ranking = skipdecode_ranking(n_layers, warmup) if ranking is None else ranking
    if len(ranking) != n_layers:
        raise ValueError(f"ranking names {len(ranking)} layers, the model has {n_layers}")
    k_prompt = {"full": n_layers, "max": budgets[0]}.get(prompt)
    return Schedule(tuple(ranking), tuple(budgets), int(prompt) if k_prompt is None else k_prompt)


def parse(text, n_layers):
    """`full`, or comma-separated key=value:

    warmup=1,max=16,min=8,horizon=64,prompt=full   SkipDecode's linear budget; prompt is full, max or a number
    budgets=24:20:16:8                             an explicit budget per step, the last one holds
    ranking=0:23:22:...                            an explicit permutation instead of SkipDecode's
    """
    if text == "full":
        return full(n_layers)
    fields = {}
    for item in text.split(","):
        key, sep, value = item.partition("=")
        if not sep or key in fields or key not in ("warmup", "max", "min", "horizon", "prompt", "budgets", "ranking"):
            raise ValueError(f"bad item '{item}' in schedule '{text}'")
        fields[key] = value
    warmup, prompt = int(fields.get("warmup", 1)), fields.get("prompt", "full")
    ranking = [int(x) for x in fields["ranking"].split(":")] if "ranking" in fields else None
    if "budgets" in fields:
        if {"max", "min", "horizon"} & fields.keys():
            raise ValueError(f"budgets= excludes max, min and horizon in schedule '{text}'")
        return _with_prompt(n_layers, [int(x) for x in fields["budgets"].split(":")], warmup, prompt, ranking)
    k_max, k_min, horizon = (int(fields[key]) for key in ("max", "min", "horizon"))
    return skipdecode(n_layers, k_max, k_min, horizon, warmup, prompt, ranking)


# ----------------------------------------------------------------------------------------------------- forward


def load(path):
    """A checkpoint directory in f32, whatever it is stored in."""
    return OPTForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def embed(model, ids, first_position):
    """ids: [n] -> hidden [1, n, width]. The position table has two rows in front that no token uses."""
    dec = model.model.decoder
    x = dec.embed_tokens(ids)[None]
    if dec.project_in is not None:
        x = dec.project_in(x)
    rows = torch.arange(first_position, first_position + len(ids)) + 2
    return x + dec.embed_positions.weight[rows]


def head(model, x):
    dec = model.model.decoder
    if dec.final_layer_norm is not None:
        x = dec.final_layer_norm(x)
    if dec.project_out is not None:
        x = dec.project_out(x)
    return model.lm_head(x)


def causal_mask(n):
    """[1, 1, n, n], added to the attention scores."""
    return torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]


class Decoder:
    """One sequence being decoded. Layers outside A(j) are the identity and write no K/V."""

    def __init__(self, model, schedule):
        if schedule.n_layers != model.config.num_hidden_layers:
            raise ValueError(f"schedule for {schedule.n_layers} layers, model of {model.config.num_hidden_layers}")
        self.model, self.schedule = model, schedule
        self.cache = DynamicCache()  # one K and one V per layer, each as long as the tokens that ran it
        self.position = 0  # of the next token
        self.step = None  # j of the next generated token; None before the prompt
        self.ran = []  # layers run by the last call

    @torch.no_grad()
    def _run(self, ids, layers):
        x = embed(self.model, torch.tensor(ids), self.position)
        mask = causal_mask(len(ids)) if len(ids) > 1 else None  # one token sees all that its layer's cache holds
        for l in layers:
            held = self.cache.get_seq_length(l)
            # A(j+1) <= A(j) promises this: no hole in any layer that is about to run.
            assert held == self.position, f"layer {l} holds {held} of {self.position} positions"
            x = self.model.model.decoder.layers[l](x, attention_mask=mask, cache=self.cache)
        self.position += len(ids)
        self.ran = list(layers)
        return head(self.model, x[0, -1])

    def prefill(self, ids):
        """ids: [P >= 1] -> logits [vocab], which choose generated token 0."""
        assert self.step is None
        self.step = 0
        return self._run(ids, self.schedule.prompt_layers())

    def decode(self, token):
        """Feeds generated token j = self.step -> logits [vocab] for generated token j+1."""
        logits = self._run([token], self.schedule.layers(self.step))
        self.step += 1
        return logits


def logits_rows(model, ids, forced, schedule):
    """[1 + len(forced), vocab]: after the prompt, then after each forced token."""
    d = Decoder(model, schedule)
    return torch.stack([d.prefill(ids)] + [d.decode(t) for t in forced])


def greedy(model, ids, schedule, max_tokens, eos=2):
    """Generated ids, without the end-of-text token."""
    d, out = Decoder(model, schedule), []
    logits = d.prefill(ids)
    while len(out) < max_tokens:
        token = int(logits.argmax())
        if token == eos:
            break
        out.append(token)
        if len(out) < max_tokens:
            logits = d.decode(token)
    return out


def teacher_forced(model, ids, response, schedule):
    """All positions at once: logits [P + T, vocab] for a prompt and the generated tokens g_0 .. g_{T-1} fed after it.

    What training computes. In layer l the running positions are the first `n` ones, so plain causal attention over
    them sees exactly what the cache would hold.
    """
    x = embed(model, torch.tensor(list(ids) + list(response)), 0)
    for l, layer in enumerate(model.model.decoder.layers):
        r = schedule.rank(l)
        if r >= schedule.prompt:
            continue
        n = len(ids) + sum(schedule.k(j) > r for j in range(len(response)))
        x = torch.cat([layer(x[:, :n], attention_mask=causal_mask(n)), x[:, n:]], dim=1)
    return head(model, x[0])
