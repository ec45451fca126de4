# SPDX-License-Identifier: MIT
"""The random models of bench/peers.py: an OPT checkpoint, its CTranslate2 form, and a Llama of the same size in GGUF.

One layer's random numbers serve for all layers: each has its own bytes in the file and in memory, and speed does not
depend on what they are. CTranslate2 keeps equal tensors once, and that would make its model smaller than it claims to
be; so each layer of the checkpoint is the first one with its rows moved round. Files are made once and kept.
"""

import json
import os
import shutil

SHAPES = {  # layers, hidden size, heads, FFN; FFN of the Llama, which has three matrices of it instead of two
    "opt-125m": (12, 768, 12, 3072, 2048),
    "opt-1.3b": (24, 2048, 32, 8192, 5504),
    "opt-2.7b": (32, 2560, 32, 10240, 6848),
    "opt-6.7b": (32, 4096, 32, 16384, 11008),
}
VOCAB, POSITIONS = 50272, 2048


def made(path, make):
    """Makes `path` by make(temporary path) unless it is there; a broken-off try leaves nothing that looks whole."""
    if os.path.exists(path):
        return path
    part = path + ".part"
    shutil.rmtree(part, ignore_errors=True)
    if os.path.exists(part):
        os.remove(part)
    make(part)
    os.replace(part, path)
    return path


def opt_config(shape):
    layers, hidden, heads, ffn, _ = SHAPES[shape]
    return {"architectures": ["OPTForCausalLM"], "model_type": "opt", "activation_function": "relu",
            "dtype": "bfloat16", "num_hidden_layers": layers, "hidden_size": hidden, "word_embed_proj_dim": hidden,
            "ffn_dim": ffn,
            "num_attention_heads": heads, "vocab_size": VOCAB, "max_position_embeddings": POSITIONS,
            "enable_bias": True, "do_layer_norm_before": True, "layer_norm_elementwise_affine": True,
            "tie_word_embeddings": True,
            "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "dropout": 0.0, "attention_dropout": 0.0,
            "_remove_final_layer_norm": False}


def tokenizer():
    """Words t0, t1, ...: CTranslate2 wants a vocabulary, and its interface takes words."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": {f"t{i}": i for i in range(VOCAB)}, "unk_token": "t3"}}


def write_opt(shape, path):
    import torch
    from safetensors.torch import save_file
    layers, hidden, _, ffn, _ = SHAPES[shape]
    random = torch.Generator().manual_seed(1)

    def normal(*size):
        return torch.randn(size, generator=random).mul_(0.02).bfloat16()

    tensors = {"embed_tokens.weight": normal(VOCAB, hidden), "embed_positions.weight": normal(POSITIONS + 2, hidden)}
    sizes = {f"self_attn.{x}_proj": (hidden, hidden) for x in "qkv"}
    sizes |= {"self_attn.out_proj": (hidden, hidden), "fc1": (ffn, hidden), "fc2": (hidden, ffn)}
    layer = {f"{name}.weight": normal(*size) for name, size in sizes.items()}
    layer |= {f"{name}.bias": normal(size[0]) for name, size in sizes.items()}
    norms = [f"layers.{i}.{name}" for i in range(layers) for name in ("self_attn_layer_norm", "final_layer_norm")]
    for name in norms + ["final_layer_norm"]:
        tensors |= {f"{name}.weight": torch.ones(hidden).bfloat16(), f"{name}.bias": torch.zeros(hidden).bfloat16()}
    for i in range(layers):
        tensors |= {f"layers.{i}.{name}": value.roll(i + 1, 0) for name, value in layer.items()}
    os.makedirs(path)
    save_file({f"model.decoder.{k}": v for k, v in tensors.items()}, os.path.join(path, "model.safetensors"),
              metadata={"format": "pt"})
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "t2", "eos_token": "t2", "unk_token": "t3"}
    for name, value in (("config.json", opt_config(shape)), ("tokenizer.json", tokenizer()),
                        ("tokenizer_config.json", words)):
        with open(os.path.join(path, name), "w", encoding="utf-8") as f:
            json.dump(value, f)


def write_ctranslate2(source, path):
    """Kept in 16 bits; the compute type is made of them at load."""
    import ctranslate2
    ctranslate2.converters.TransformersConverter(source).convert(path, quantization="bfloat16")


def write_gguf(shape, kind, path):
    import gguf
    import numpy as np
    layers, hidden, heads, _, ffn = SHAPES[shape]
    types = {"bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
             "q8": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
             "q4": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0)}
    kind, file_type = types[kind]
    random = np.random.default_rng(1)

    def packed(*size):
        return gguf.quants.quantize(random.standard_normal(size, dtype=np.float32) * np.float32(0.02), kind)

    w = gguf.GGUFWriter(path, "llama")
    w.add_file_type(file_type)
    w.add_vocab_size(VOCAB)
    w.add_context_length(POSITIONS * 16)
    w.add_embedding_length(hidden)
    w.add_block_count(layers)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(heads)
    w.add_rope_dimension_count(hidden // heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("none")
    w.add_tensor("token_embd.weight", packed(VOCAB, hidden), raw_dtype=kind)  # no output.weight: the head is tied to it
    w.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    sizes = {name: (hidden, hidden) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    sizes |= {"ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
    layer = {name: packed(*size) for name, size in sizes.items()}
    for i in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"blk.{i}.{name}.weight", np.ones(hidden, np.float32))
        for name, value in layer.items():
            w.add_tensor(f"blk.{i}.{name}.weight", value, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
