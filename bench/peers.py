#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skipdecode against transformers, CTranslate2 and llama.cpp at equal bits, interleaved in one run.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install -r bench/requirements.txt
    /tmp/peers/bin/python bench/peers.py --program build/skipdecode --shape opt-1.3b --plot /tmp/peers.png

llama-cpp-python is built from source, for this CPU. The models have random weights (bench/peers_models.py) and stay
in --work. For each weight type all engines that have it are loaded, and take turns, one running at a time: in every
repetition each measures each batch once, in an order that turns round from one repetition to the next, between two
probes of the read bandwidth. Ratios, ours over the peer's, are formed within a repetition; tables hold medians. Ours
at 4 bits has a head of 4 bits too, as the GGUF. A peer that is missing or fails is named under the table.
Interrupted, it reports what there is. Exit status 1: ours did not run, or it was interrupted.
"""

import argparse
import concurrent.futures
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import peers_models  # noqa: E402

PEERS = {"f32": ["transformers", "ctranslate2"], "bf16": ["transformers", "ctranslate2", "llama.cpp"],
         "q8": ["ctranslate2", "llama.cpp"], "q4": ["llama.cpp"]}
OURS = "skipdecode"
TIMEOUT = 900  # seconds one measurement may take


class Probe:
    """Read bandwidth with as many threads as the engines: the fastest of three passes over arrays beyond any cache."""

    def __init__(self, threads, megabytes=512):
        import numpy
        size = megabytes * (1 << 20) // 4 // threads
        self.sum, self.arrays = numpy.sum, [numpy.ones(size, numpy.float32) for _ in range(threads)]
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def gbps(self):
        best = 0.0
        for _ in range(3):
            start = time.perf_counter()
            list(self.pool.map(self.sum, self.arrays))
            best = max(best, sum(a.nbytes for a in self.arrays) / (time.perf_counter() - start) * 1e-9)
        return best


class Peer:
    """A worker process that keeps its model loaded and waits while others run."""

    def __init__(self, name, weights, path, args):
        self.name, self.weights, self.log = name, weights, tempfile.TemporaryFile()
        settings = {"engine": name, "weights": weights, "path": path, "threads": args.threads,
                    "vocab": peers_models.VOCAB}
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
        command = [sys.executable, os.path.join(HERE, "peers_engines.py"), json.dumps(settings)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=env)
        self.info = self.answer()

    def answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            self.log.seek(0)
            last = self.log.read().decode(errors="replace").strip().splitlines()[-1:]
            status = self.process.wait()
            raise RuntimeError(f"ended with {status}: {last}" if ready else f"no answer in {TIMEOUT} s")
        value = json.loads(line)
        if "error" in value:
            raise RuntimeError(value["error"])
        return value

    def run(self, batch, prompt, gen):
        self.process.stdin.write(json.dumps({"batch": batch, "prompt": prompt, "gen": gen}) + "\n")
        self.process.stdin.flush()
        value = self.answer()
        decode = batch * (gen - 1) / value["decode_seconds"] if gen > 1 else None
        return {self.name: {"prefill_tps": batch * prompt / value["prefill_seconds"], "decode_tps": decode}}

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Ours:
    """`skipdecode bench`, a process for each measurement; its warm-up and its own probes are in it."""

    def __init__(self, weights, path, args):
        self.name, self.weights, self.path, self.args = OURS, weights, path, args
        version = subprocess.run([args.program, "--version"], capture_output=True, text=True).stdout.strip()
        self.info = {"version": version or args.program, "settings": f"bench --weights {weights} --head {weights}"}

    def run(self, batch, prompt, gen):
        a = self.args
        speedups = a.speedups if gen > 1 else "1"
        command = [a.program, "bench", self.path, "--weights", self.weights, "--head", self.weights, "--threads",
                   str(a.threads), "--batch", str(batch), "--prompt", str(prompt), "--gen", str(max(gen, 2)),
                   "--repeat", "1", "--speedups", speedups, "--measure", a.measure, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
        values = {}
        for row in map(json.loads, done.stdout.splitlines()):
            name = OURS if row["target"] == 1 else f"{OURS} {row['target']:g}x"
            values[name] = {"prefill_tps": row["prefill_tps"], "decode_tps": row["decode_tps"] if gen > 1 else None,
                            "own_probe_gbps": row["probe_gbps"], "read_share": row["read_share"]}
        return values

    def close(self):
        pass


def start_engines(weights, paths, args, failures):
    engines = []
    for name in [OURS] + PEERS[weights]:
        if name not in args.engines:
            continue
        try:
            path = paths[name, weights]()
            engines.append(Ours(weights, path, args) if name == OURS else Peer(name, weights, path, args))
            say(f"  {name}: {engines[-1].info['version']}; {engines[-1].info['settings']}")
        except Exception as e:
            failures.append((name, weights, "loading", f"{type(e).__name__}: {e}"))
            say(f"  {name}: {e}")
    return engines


def say(text):
    print(text, file=sys.stderr, flush=True)


def model_paths(args):
    """{(engine, weights): a function that makes the model and returns its path}."""
    base = os.path.join(args.work, args.shape)

    def opt():
        return peers_models.made(base, lambda part: peers_models.write_opt(args.shape, part))

    def converted():
        return peers_models.made(base + "-ct2", lambda part: peers_models.write_ctranslate2(opt(), part))

    def gguf(weights):
        return peers_models.made(f"{base}-{weights}.gguf",
                                 lambda part: peers_models.write_gguf(args.shape, weights, part))

    def packed(weights):
        def quantize(part):
            subprocess.run([args.program, "quantize", opt(), "-o", part, "--weights", weights, "--head", weights,
                            "--quiet"], check=True)
        return peers_models.made(f"{base}-ours-{weights}", quantize)

    paths = {}
    for weights in PEERS:
        paths |= {(OURS, weights): lambda w=weights: packed(w), ("transformers", weights): opt,
                  ("ctranslate2", weights): converted, ("llama.cpp", weights): lambda w=weights: gguf(w)}
    return paths


def measure(weights, engines, tests, args, probe, failures, samples):
    """samples: {(weights, test, engine): {repetition: values}}."""
    broken = set()
    for repetition in range(args.repeat + 1):  # the first is a warm-up
        for test in tests:
            turn = repetition % max(len(engines), 1)
            order = engines[turn:] + engines[:turn]
            for engine in order if repetition % 2 else order[::-1]:
                if (engine.name, test) in broken or (repetition == 0 and engine.name == OURS):
                    continue
                try:
                    before = probe.gbps()
                    values = engine.run(*(test if repetition else (test[0], test[1], min(test[2], 3))))
                    both = (before + probe.gbps()) / 2
                except Exception as e:
                    broken.add((engine.name, test))
                    failures.append((engine.name, weights, test_name(test), f"{type(e).__name__}: {e}"))
                    say(f"  {engine.name} {weights} {test_name(test)}: {e}")
                    continue
                for name, value in values.items() if repetition else ():
                    samples.setdefault((weights, test, name), {})[repetition] = value | {"probe_gbps": both}
        say(f"  {weights}: repetition {repetition} of {args.repeat} done" if repetition else f"  {weights}: warmed up")


def test_name(test):
    return f"batch {test[0]}, {test[1]} + {test[2]}" if test[2] > 1 else f"prefill of {test[1]}"


def median_of(values, key):
    found = [v[key] for v in values.values() if v.get(key)]
    return statistics.median(found) if found else None


def ratio(ours, theirs, key):
    """The median over repetitions that both have."""
    found = [ours[r][key] / theirs[r][key] for r in ours if r in theirs and ours[r].get(key) and theirs[r].get(key)]
    return statistics.median(found) if found else None


def records(samples):
    out = []
    for (weights, test, name), values in samples.items():
        ours = samples.get((weights, test, OURS), {})
        record = {"weights": weights, "batch": test[0], "prompt_tokens": test[1], "gen_tokens": test[2], "engine": name}
        record["probe_gbps"] = median_of(values, "probe_gbps")
        for key in ("decode_tps", "prefill_tps"):
            found = [v[key] for v in values.values() if v.get(key)]
            record[key] = median_of(values, key)
            record[f"{key}_by_repetition"] = found
            # of a target: against full depth it says how much skipping gained
            record[f"ours_over_{key}"] = ratio(ours, values, key)
            record[f"at_5x_over_{key}"] = ratio(samples.get((weights, test, OURS + " 5x"), {}), values, key)
        out.append(record)
    return out


def show(value, form="{:.2f}x"):
    return "" if value is None else form.format(value)


def print_table(rows):
    print("| weights | test | engine | decode tok/s (min-max) | ours over it | ours at 5x over it "
          "| prefill tok/s (min-max) | ours over it | probe GB/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        cells = []
        for key in ("decode_tps", "prefill_tps"):
            low_high = r[f"{key}_by_repetition"]
            cells.append(f"{r[key]:.1f} ({min(low_high):.1f}-{max(low_high):.1f})" if low_high else "")
        ours = r["engine"] == OURS
        decode = "" if ours else show(r["ours_over_decode_tps"])
        prefill = "" if r["engine"].startswith(OURS) else show(r["ours_over_prefill_tps"])
        print(f"| {r['weights']} | {test_name((r['batch'], r['prompt_tokens'], r['gen_tokens']))} | {r['engine']} | "
              f"{cells[0]} | {decode} | {show(r['at_5x_over_decode_tps'])} | {cells[1]} | {prefill} | "
              f"{r['probe_gbps']:.1f} |")


def plot(rows, path, args):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    kinds = [w for w in PEERS if any(r["weights"] == w for r in rows)]
    figure, axes = plt.subplots(1, len(kinds), figsize=(5 * len(kinds), 5), squeeze=False)
    for axis, weights in zip(axes[0], kinds):
        engines = list(dict.fromkeys(r["engine"] for r in rows if r["weights"] == weights))
        batches = sorted({r["batch"] for r in rows if r["weights"] == weights and r["gen_tokens"] > 1})
        for i, engine in enumerate(engines):
            some = {r["batch"]: r["decode_tps"] for r in rows
                    if r["weights"] == weights and r["engine"] == engine and r["decode_tps"]}
            axis.bar([batches.index(b) + 0.8 * i / len(engines) for b in some], list(some.values()), 0.8 / len(engines),
                     label=engine)
        axis.set_xticks([i + 0.4 for i in range(len(batches))], [f"batch {b}" for b in batches])
        axis.set_yscale("log")
        axis.set_title(f"{args.shape}, {weights}")
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel(f"decode, tokens a second, {args.threads} threads")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/skipdecode")
    p.add_argument("--shape", default="opt-1.3b", choices=list(peers_models.SHAPES))
    p.add_argument("--weights", default=",".join(PEERS), help="which of f32,bf16,q8,q4; default all")
    p.add_argument("--engines", default=f"{OURS},transformers,ctranslate2,llama.cpp", help="which of them; default all")
    p.add_argument("--batch", default="1,8,32")
    p.add_argument("--prompt", type=int, default=32)
    p.add_argument("--gen", type=int, default=64)
    p.add_argument("--prefill", type=int, default=512, help="tokens of the prompt that is measured alone; 0: none")
    p.add_argument("--speedups", default="1,2,5", help="targets of ours")
    p.add_argument("--measure", default="wall", choices=("wall", "layers"), help="what a target means")
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "skipdecode-peers"),
                   help="where models are kept, 20 GB of them for opt-1.3b; default %(default)s")
    p.add_argument("--plot", metavar="FILE.png")
    p.add_argument("--json", action="store_true", help="one JSON object a row instead of Markdown")
    args = p.parse_args()
    args.weights, args.engines = args.weights.split(","), args.engines.split(",")
    for name, known in [(w, PEERS) for w in args.weights] + [(e, (OURS, *PEERS["bf16"])) for e in args.engines]:
        if name not in known:
            p.error(f"{name}: expected one of {', '.join(known)}")
    try:
        args.batch = [int(b) for b in args.batch.split(",")]
        speedups = [float(s) for s in args.speedups.split(",")]
    except ValueError as e:
        p.error(f"--batch and --speedups take lists of numbers: {e}")
    if min(args.batch + [args.prompt, args.repeat, args.threads]) < 1 or args.gen < 2 or min(speedups) < 1:
        p.error("--batch, --prompt, --repeat, --threads and --speedups are at least 1, --gen at least 2")
    if OURS in args.engines and not os.access(args.program, os.X_OK):
        p.error(f"{args.program}: not a program; build it, or name it with --program")
    return args


def main():
    args = arguments()
    os.makedirs(args.work, exist_ok=True)
    paths, probe, failures, samples, versions = model_paths(args), Probe(args.threads), [], {}, {}
    tests = [(b, args.prompt, args.gen) for b in args.batch] + ([(1, args.prefill, 1)] if args.prefill else [])
    load = os.getloadavg()[0]
    interrupted = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for weights in args.weights:
        say(f"{weights}:")
        engines = []
        try:
            engines = start_engines(weights, paths, args, failures)
            versions |= {(e.name, weights): e.info for e in engines}
            measure(weights, engines, tests, args, probe, failures, samples)
        except KeyboardInterrupt:
            interrupted = True
            failures.append(("all", weights, "what is not in the table", "interrupted"))
            break
        finally:
            for engine in engines:
                engine.close()
    rows = records(samples)
    report(rows, versions, failures, args, load)
    if args.plot and rows:
        plot(rows, args.plot, args)
    ran = OURS not in args.engines or any(r["engine"] == OURS for r in rows)
    return 0 if ran and not interrupted else 1


def report(rows, versions, failures, args, load):
    if args.json:
        for row in rows:
            print(json.dumps(row | versions.get((row["engine"].split(" ")[0], row["weights"]), {}) | {
                "shape": args.shape, "threads": args.threads, "measure": args.measure, "load_at_start": load}))
        for name, weights, what, why in failures:
            print(json.dumps({"engine": name, "weights": weights, "failed": what, "why": why}))
    else:
        print(f"{args.shape}, random weights, {args.threads} threads, medians of {args.repeat}, targets by "
              f"{args.measure}; load of the machine at the start {load:.1f}, {platform.machine()}, "
              f"{os.cpu_count()} CPUs\n")
        print_table(rows)
        print()
        for (name, weights), info in versions.items():
            print(f"- {name}, {weights}: {info['version']}; {info['settings']}")
        for name, weights, what, why in failures:
            print(f"- NOT MEASURED: {name}, {weights}, {what}: {why}")


if __name__ == "__main__":
    sys.exit(main())
