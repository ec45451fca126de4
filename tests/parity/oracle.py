"""Compares the program's logits with the reference on random checkpoints of real OPT shapes, in every file form.

    python tests/parity/oracle.py --program build/skipdecode [--shapes opt-125m,opt-350m,opt-1.3b] [--workdir DIR]

Each shape is written as safetensors, sharded safetensors, pytorch_model.bin and sharded .bin, one after the other (1.3b
in f16, about 2.6 GB of disk; the others in f32). Every row of logits must agree to 2e-4 absolute.
"""

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from transformers import OPTConfig, OPTForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "reference"))
import skipdecode_reference as ref  # noqa: E402
from make_fixtures import random_tensor  # noqa: E402

TOLERANCE = 2e-4

# What the published config.json files say, keys of their time included.
PUBLISHED = dict(activation_dropout=0.0, activation_function="relu", architectures=["OPTForCausalLM"],
                 attention_dropout=0.0, bos_token_id=2, do_layer_norm_before=True, dropout=0.1, eos_token_id=2,
                 init_std=0.02, layerdrop=0.0, max_position_embeddings=2048, model_type="opt", pad_token_id=1,
                 prefix="</s>", torch_dtype="float16", transformers_version="4.21.0.dev0", use_cache=True,
                 vocab_size=50272)
SHAPES = {
    "opt-125m": dict(num_hidden_layers=12, hidden_size=768, num_attention_heads=12, ffn_dim=3072,
                     word_embed_proj_dim=768),
    "opt-350m": dict(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16, ffn_dim=4096,
                     word_embed_proj_dim=512, do_layer_norm_before=False),
    "opt-1.3b": dict(num_hidden_layers=24, hidden_size=2048, num_attention_heads=32, ffn_dim=8192,
                     word_embed_proj_dim=2048),
}
STORED = {"opt-1.3b": torch.float16}  # f32 would be 5 GB a form
FORMS = ["safetensors", "sharded safetensors", "bin", "sharded bin"]


def random_state(config, seed, dtype):
    """A state dict with transformers' names, made tensor by tensor so that no second copy of the model exists."""
    with torch.device("meta"):
        shapes = {k: v.shape for k, v in OPTForCausalLM(config).named_parameters()}
    g = torch.Generator().manual_seed(seed)
    # the head is tied to the embedding: its scale is the logits' scale
    embed_std = 3 / config.word_embed_proj_dim**0.5
    return {k: random_tensor(k, s, g, embed_std=embed_std).to(dtype) for k, s in shapes.items()}


def published_names(shape, state):
    """The names inside the published .bin files: opt-350m lacks `model.`, the others list the tied head as well."""
    if shape == "opt-350m":
        return {k.removeprefix("model."): v for k, v in state.items()}
    return {**state, "lm_head.weight": state["model.decoder.embed_tokens.weight"]}


def write_form(form, folder, shape, state, config):
    folder.mkdir(parents=True)
    if form.endswith("safetensors"):
        config.save_pretrained(folder)
        name, save = "model{suffix}.safetensors", lambda t, path: save_file(t, path, metadata={"format": "pt"})
    else:
        (folder / "config.json").write_text(json.dumps({**PUBLISHED, **SHAPES[shape]}, indent=2))
        state = published_names(shape, state)
        name, save = "pytorch_model{suffix}.bin", torch.save
    if not form.startswith("sharded"):
        save(state, folder / name.format(suffix=""))
        return
    total = sum(v.numel() * v.element_size() for v in state.values())
    shards = split_torch_state_dict_into_shards(state, filename_pattern=name, max_shard_size=total // 3)
    assert shards.is_sharded
    for file, keys in shards.filename_to_tensors.items():
        save({k: state[k] for k in keys}, folder / file)
    index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
    # a tied name that the splitter leaves out is listed next to its twin, as in the published files
    for k, v in state.items():
        if k not in index["weight_map"]:
            twin = next(n for n in index["weight_map"] if state[n] is v)
            file = index["weight_map"][k] = index["weight_map"][twin]
            save({n: state[n] for n in [*shards.filename_to_tensors[file], k]}, folder / file)
    (folder / (name.format(suffix="") + ".index.json")).write_text(json.dumps(index, indent=2))


def plans(n):
    """(short name, prompt, forced, schedule). The first two run on every form, all of them on the first."""
    short = [2, 100, 200], [12, 13, 14]
    long = [2] + [(7919 * i) % 50000 + 4 for i in range(1, 37)], [(104729 * i) % 50000 + 4 for i in range(1, 8)]
    spread = [0, n - 1, *range(2, n - 1, 2), *range(1, n - 1, 2)]
    return [
        ("full", *short, "full"),
        ("skip", *short, f"warmup=1,max={2 * n // 3},min={n // 3},horizon=3,prompt=full"),
        ("full, 37 tokens", *long, "full"),
        ("skip, prompt=max", *long, f"warmup=1,max={n // 2},min={n // 4},horizon=5,prompt=max"),
        ("skip, warmup=2", *long, f"warmup=2,max={n - 1},min={n // 6 + 2},horizon=4,prompt={n}"),
        ("spread ranking", *long, f"max={n // 2},min={n // 4},horizon=6,ranking={':'.join(map(str, spread))}"),
        ("early exit", *short, f"budgets={n - 2}:{n // 2}:{n // 4},ranking={':'.join(map(str, range(n)))}"),
    ]


def run_program(program, folder, ids, forced, text):
    policy = ["--policy", "full"] if text == "full" else ["--schedule", text]
    command = [program, "logits", str(folder), "--ids", ",".join(map(str, ids)), "--forced", ",".join(map(str, forced)),
               *policy, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def compare(answer, expected, ids, forced, schedule):
    """-> largest absolute difference; raises when anything but the logits is off."""
    rows = answer["rows"]
    if answer["vocab_size"] != expected.shape[1] or len(rows) != len(expected):
        raise RuntimeError(f"{len(rows)} rows of {answer['vocab_size']}, expected {tuple(expected.shape)}")
    worst = 0.0
    for i, row in enumerate(rows):
        where = {"step": i - 1 if i else None, "position": len(ids) + i - 1,
                 "layers": schedule.layers(i - 1) if i else schedule.prompt_layers()}
        for key, value in where.items():
            if row[key] != value:
                raise RuntimeError(f"row {i}: {key} {row[key]}, expected {value}")
        if None in row["logits"]:
            raise RuntimeError(f"row {i}: a logit is not finite")
        worst = max(worst, (torch.tensor(row["logits"]) - expected[i]).abs().max().item())
    return worst


def check_shape(shape, program, workdir, seed):
    """Prints a line per comparison -> (passed, failed)."""
    config = OPTConfig(**{k: v for k, v in {**PUBLISHED, **SHAPES[shape]}.items() if k != "torch_dtype"})
    config.dtype = STORED.get(shape, torch.float32)
    state = random_state(config, seed, config.dtype)
    with torch.device("meta"):
        model = OPTForCausalLM._from_config(config, attn_implementation="eager")
    model.load_state_dict({k: v.float() for k, v in state.items()}, strict=False, assign=True)
    model.tie_weights()
    model.eval()
    todo = []
    for name, ids, forced, text in plans(config.num_hidden_layers):
        schedule = ref.parse(text, config.num_hidden_layers)
        todo.append((name, ids, forced, text, schedule, ref.logits_rows(model, ids, forced, schedule)))
    rms = torch.cat([t[-1] for t in todo]).pow(2).mean().sqrt().item()
    del model
    gc.collect()
    print(f"{shape}: {str(config.dtype).removeprefix('torch.')}, logits rms {rms:.1f}")
    passed = failed = 0
    for form in FORMS:
        folder = workdir / f"{shape}-{form.replace(' ', '-')}"
        write_form(form, folder, shape, state, config)
        for name, ids, forced, text, schedule, expected in todo if form == FORMS[0] else todo[:2]:
            try:
                worst = compare(run_program(program, folder, ids, forced, text), expected, ids, forced, schedule)
                ok, note = worst <= TOLERANCE, f"{worst:.1e}"
            except (RuntimeError, ValueError, KeyError) as e:
                ok, note = False, f"{type(e).__name__}: {e}"
            passed, failed = passed + ok, failed + (not ok)
            print(f"  {shape:9} {form:20} {name:18} {note:10} {'ok' if ok else 'FAILED'}", flush=True)
        shutil.rmtree(folder)
    return passed, failed


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", required=True)
    a.add_argument("--shapes", default=",".join(SHAPES))
    a.add_argument("--workdir", help="where the checkpoints are written and deleted; default: a temporary folder")
    a.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    shapes = args.shapes.split(",")
    if unknown := [s for s in shapes if s not in SHAPES]:
        a.error(f"unknown shapes {unknown}; known: {', '.join(SHAPES)}")
    if args.workdir:
        os.makedirs(args.workdir, exist_ok=True)
    passed = failed = 0
    with tempfile.TemporaryDirectory(dir=args.workdir, prefix="oracle-") as tmp:
        for shape in shapes:
            p, f = check_shape(shape, args.program, Path(tmp), args.seed)
            passed, failed = passed + p, failed + f
            gc.collect()
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
