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


def make(folder, name, state, **options):
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    torch.save(state, path / "pytorch_model.bin", **options)
    save_file(expected(state), path / "expected.safetensors")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures")
    state = tensors()
    state["step"] = 7
    state["nothing"] = None
    state["sizes"] = [1, 2.5, "three", (4, 5), 1 << 80, b"six"]
    make(folder, "bin-views", state)
    make(folder, "bin-protocol4", state, pickle_protocol=4)
    make(folder, "bin-protocol5", state, pickle_protocol=5)

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    make(folder, "bin-module", module.state_dict())  # carries _metadata
    make(folder, "bin-legacy", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
    make(folder, "bin-nested", {"w": torch.ones(1)})
    torch.save({"model": {"w": torch.ones(2)}, "epoch": 3}, folder / "bin-nested" / "pytorch_model.bin")
    make(folder, "bin-script", {"w": torch.ones(1)})
    torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1)).save(str(folder / "bin-script" / "pytorch_model.bin"))
    make(folder, "bin-module-object", {"w": torch.ones(1)})
    torch.save(torch.nn.Linear(1, 1), folder / "bin-module-object" / "pytorch_model.bin")

    sharded = folder / "bin-sharded"
    sharded.mkdir(parents=True, exist_ok=True)
    state = module.state_dict()
    names = list(state)
    halves = (names[:3], names[3:])
    for file, half in zip(SHARDS, halves):
        torch.save({k: state[k].clone() for k in half}, sharded / file)
    weight_map = {k: file for file, half in zip(SHARDS, halves) for k in half}
    index = {"metadata": {"total_size": ""}, "weight_map": weight_map}
    (sharded / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")
    save_file(expected(state), sharded / "expected.safetensors")


if __name__ == "__main__":
    main()
