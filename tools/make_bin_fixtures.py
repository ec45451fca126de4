#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/fixtures/bin-*: small files of torch.save, next to what they hold as written by the safetensors library.

    python3 tools/make_bin_fixtures.py [tests/fixtures]

Needs torch and safetensors (requirements of reference/). The files are tracked; run this only to add a case.
"""
import collections
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")


def tensors():
    """One of everything that a state dict may hold: all dtypes, and all the ways to look at a storage."""
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8 - 1
    state = collections.OrderedDict()
    state["f32"] = base.clone()
    state["tied"] = state["f32"]
    state["parameter"] = torch.nn.Parameter(base[:2].clone())
    for name, dtype in {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64,
                        "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
                        "bool": torch.bool}.items():
        state[name] = (base.abs() if name == "u8" else base).to(dtype)
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.zeros(0, 3)
    state["transposed"] = base.t()
    state["rows"] = base[1:3]
    state["columns"] = base[:, 1::2]
    state["permuted"] = torch.arange(24, dtype=torch.int16).reshape(2, 3, 2, 2).permute(3, 1, 0, 2)
    state["thin"] = base[:, 2:3].t()
    return state


def expected(state):
    return {k: v.detach().contiguous().clone() for k, v in state.items() if isinstance(v, torch.Tensor)}


def write(path, state, **options):
    """One file that must load, and what it must load as."""
    path.mkdir(parents=True, exist_ok=True)
    torch.save(state, path / "pytorch_model.bin", **options)
    write_expected(path, state)


def write_expected(path, state):
    save_file(expected(state), path / "expected.safetensors")
    (path / "expected.safetensors").chmod(0o644)


def refuse(path, save):
    """One file that must be refused."""
    path.mkdir(parents=True, exist_ok=True)
    save(path / "pytorch_model.bin")


def write_shards(path, state):
    path.mkdir(parents=True, exist_ok=True)
    names = list(state)
    halves = (names[:3], names[3:])
    for file, half in zip(SHARDS, halves):
        torch.save({k: state[k].clone() for k in half}, path / file)
    weight_map = {k: file for file, half in zip(SHARDS, halves) for k in half}
    index = {"metadata": {"total_size": ""}, "weight_map": weight_map}  # an empty total_size is out there
    (path / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")
    write_expected(path, state)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures")
    state = tensors()
    state["step"] = 7
    state["nothing"] = None
    state["sizes"] = [1, 2.5, "three", (4, 5), 1 << 80]
    write(folder / "bin-protocol2", state)
    state["bytes"] = b"six"  # protocol 2 would spell it as a call
    write(folder / "bin-protocol4", state, pickle_protocol=4)
    write(folder / "bin-protocol5", state, pickle_protocol=5)

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    write(folder / "bin-module", module.state_dict())  # carries _metadata
    write_shards(folder / "bin-sharded", module.state_dict())

    weight = {"w": torch.ones(2)}
    refuse(folder / "bin-legacy", lambda p: torch.save(weight, p, _use_new_zipfile_serialization=False))
    refuse(folder / "bin-nested", lambda p: torch.save({"model": weight, "epoch": 3}, p))
    refuse(folder / "bin-object", lambda p: torch.save(torch.nn.Linear(1, 1), p))
    refuse(folder / "bin-expanded", lambda p: torch.save({"w": torch.ones(1).expand(1000, 1000)}, p))
    refuse(folder / "bin-script", lambda p: torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1)).save(str(p)))


if __name__ == "__main__":
    main()
