# SPDX-License-Identifier: MIT
"""The other engines of bench/peers.py, one class each, and the worker process that runs one of them.

A worker reads one JSON command a line and answers with one JSON line, so that the parent decides who runs when. Every
engine is asked for the same: `batch` prompts of `prompt` random ids, then `gen` tokens of each; the first comes out of
the prefill, so that a decode is gen - 1 steps. Tokens are given, not sampled, where the engine's interface allows it.
"""

import ctypes
import inspect
import json
import os
import sys
import time


def prompts(np, vocab, batch, length):
    """[batch, length] ids, the same for every engine; the first few ids are special ones."""
    return np.random.default_rng(7).integers(10, vocab - 10, (batch, length))


class Transformers:
    """PyTorch on the CPU: a hand loop over forward with a key-value cache, the faster of its attentions and caches."""

    def __init__(self, args):
        import numpy
        import torch
        import transformers
        self.np, self.torch, self.transformers = numpy, torch, transformers
        torch.set_num_threads(args["threads"])
        torch.set_grad_enabled(False)
        transformers.logging.set_verbosity_error()
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args["weights"]]
        self.model = transformers.AutoModelForCausalLM.from_pretrained(args["path"], dtype=dtype).eval()
        self.cache_name = next(name for name in ("past_key_values", "cache")
                               if name in inspect.signature(self.model.forward).parameters)
        tried = {}
        for attention in ("sdpa", "eager"):
            for static in (False, True):
                self.choose(attention, static)
                try:
                    self.run(8, 32, 2)
                    tried[attention, static] = self.run(8, 32, 9)["decode_seconds"]
                except Exception as e:  # one that this version cannot run is not the fastest
                    print(f"transformers, {attention}, static cache {static}: {e}", file=sys.stderr)
        best = min(tried, key=tried.get)
        self.choose(*best)
        self.info = {"version": f"transformers {transformers.__version__}, torch {torch.__version__}",
                     "settings": f"inference_mode, hand loop, {best[0]}, {'static' if best[1] else 'dynamic'} cache, "
                                 f"fastest of {len(tried)}"}

    def choose(self, attention, static):
        self.model.set_attn_implementation(attention)
        self.static = static

    def forward(self, ids, cache):
        out = self.model(input_ids=ids, use_cache=True, logits_to_keep=1, **{self.cache_name: cache})
        return out.logits

    def run(self, batch, prompt, gen):
        torch = self.torch
        ids = torch.from_numpy(prompts(self.np, self.model.config.vocab_size, batch, prompt + gen))
        if self.static:
            cache = self.transformers.StaticCache(config=self.model.config, max_cache_len=prompt + gen)
        else:
            cache = self.transformers.DynamicCache()
        with torch.inference_mode():
            start = time.perf_counter()
            logits = self.forward(ids[:, :prompt], cache)
            middle = time.perf_counter()
            for i in range(prompt, prompt + gen - 1):
                logits = self.forward(ids[:, i:i + 1], cache)
            end = time.perf_counter()
        assert logits.shape[:2] == (batch, 1), logits.shape
        return {"prefill_seconds": middle - start, "decode_seconds": end - middle}


class CTranslate2:
    """generate_batch; it tells no prefill time, so that a run of one token is taken off a run of all."""

    def __init__(self, args):
        import ctranslate2
        import numpy
        self.np = numpy
        self.vocab = args["vocab"]
        compute = {"f32": "float32", "bf16": "bfloat16", "q8": "int8"}[args["weights"]]
        supported = ctranslate2.get_supported_compute_types("cpu")
        if compute not in supported:
            raise RuntimeError(f"no {compute} on this CPU, only {', '.join(sorted(supported))}")
        self.generator = ctranslate2.Generator(args["path"], device="cpu", compute_type=compute, inter_threads=1,
                                               intra_threads=args["threads"])
        self.info = {"version": f"ctranslate2 {ctranslate2.__version__}",
                     "settings": f"{self.generator.compute_type}, generate_batch, beam 1, prompt not in the result, "
                                 "min_length = max_length"}

    def seconds(self, texts, gen):
        start = time.perf_counter()
        results = self.generator.generate_batch(texts, beam_size=1, sampling_topk=1, min_length=gen, max_length=gen,
                                                include_prompt_in_result=False, max_batch_size=0)
        seconds = time.perf_counter() - start
        counts = {len(r.sequences_ids[0]) for r in results}
        if counts != {gen}:
            raise RuntimeError(f"generated {sorted(counts)} tokens, expected {gen}")
        return seconds

    def run(self, batch, prompt, gen):
        texts = [[f"t{i}" for i in row] for row in prompts(self.np, self.vocab, batch, prompt)]
        first = self.seconds(texts, 1)
        return {"prefill_seconds": first, "decode_seconds": self.seconds(texts, gen) - first if gen > 1 else 0.0}


class LlamaCpp:
    """llama_batch directly: all sequences in one batch, logits of each prompt's last token and of every step."""

    def __init__(self, args):
        import llama_cpp
        import numpy
        self.np, self.lib, self.threads, self.vocab = numpy, llama_cpp, args["threads"], args["vocab"]
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        load = getattr(llama_cpp, "llama_model_load_from_file", None) or llama_cpp.llama_load_model_from_file
        self.model = load(args["path"].encode(), params)
        if not self.model:
            raise RuntimeError(f"{args['path']}: llama.cpp does not load it")
        self.contexts = {}
        features = llama_cpp.llama_print_system_info().decode().split(" | ")
        on = [f.split(":")[-1].split("=")[0].strip() for f in features if f.strip().endswith("= 1")]
        try:
            ggml = ctypes.CDLL(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so"))
            ggml.ggml_version.restype = ctypes.c_char_p
            ggml = ggml.ggml_version().decode()
        except (OSError, AttributeError):
            ggml = "of unknown version"
        self.info = {"version": f"llama.cpp of llama-cpp-python {llama_cpp.__version__}, ggml {ggml}",
                     "settings": "flash attention, f16 KV, n_ubatch 512, a KV stream for each sequence; "
                                 + " ".join(on)}

    def context(self, batch, each):
        """One a (batch, length), kept: making it is not part of a run."""
        lib, key = self.lib, (batch, each)
        if key not in self.contexts:
            for old in self.contexts.values():
                lib.llama_free(old)
            self.contexts.clear()
            params = lib.llama_context_default_params()
            each = -(-each // 256) * 256
            params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = each * batch, 2048, 512, batch
            params.n_threads = params.n_threads_batch = self.threads
            params.type_k = params.type_v = 1  # GGML_TYPE_F16
            if hasattr(params, "flash_attn_type"):
                params.flash_attn_type = 1
            else:
                params.flash_attn = True
            if hasattr(params, "kv_unified"):
                params.kv_unified = False
            init = getattr(lib, "llama_init_from_model", None) or lib.llama_new_context_with_model
            self.contexts[key] = init(self.model, params)
            if not self.contexts[key]:
                raise RuntimeError(f"llama.cpp makes no context of {batch} sequences of {each}")
            self.run(batch, key[1] - 2, 2)
        return self.contexts[key]

    def decode(self, context, batch, tokens):
        """tokens: (id, position, sequence, whether its logits are needed), in passes of at most n_batch."""
        for first in range(0, len(tokens), 2048):
            part = tokens[first:first + 2048]
            batch.n_tokens = len(part)
            for i, (token, position, sequence, logits) in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, logits
                batch.seq_id[i][0] = sequence
            rc = self.lib.llama_decode(context, batch)
            if rc:
                raise RuntimeError(f"llama_decode of {len(part)} tokens returned {rc}")
        self.lib.llama_get_logits(context)  # waits for the result

    def run(self, batch, prompt, gen):
        lib, context = self.lib, self.context(batch, prompt + gen)
        ids = prompts(self.np, self.vocab, batch, prompt + gen).tolist()
        first = [(ids[s][i], i, s, i == prompt - 1) for s in range(batch) for i in range(prompt)]
        steps = [[(ids[s][i], i, s, True) for s in range(batch)] for i in range(prompt, prompt + gen - 1)]
        lib.llama_memory_clear(lib.llama_get_memory(context), False)
        room = lib.llama_batch_init(2048, 0, 1)
        start = time.perf_counter()
        self.decode(context, room, first)
        middle = time.perf_counter()
        for step in steps:
            self.decode(context, room, step)
        end = time.perf_counter()
        lib.llama_batch_free(room)
        return {"prefill_seconds": middle - start, "decode_seconds": end - middle}


ENGINES = {"transformers": Transformers, "ctranslate2": CTranslate2, "llama.cpp": LlamaCpp}


def work(args):
    """The worker: answers on what was standard output; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        engine = ENGINES[args["engine"]](args)
        answer(engine.info)
    except Exception as e:
        answer({"error": f"{type(e).__name__}: {e}"})
        return
    for line in sys.stdin:
        try:
            answer(engine.run(**json.loads(line)))
        except Exception as e:
            answer({"error": f"{type(e).__name__}: {e}"})


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
