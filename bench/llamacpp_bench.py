"""Time llama.cpp's decode and prefill on this machine, for a side-by-side with our engine.

Needs `pip install llama-cpp-python` (it compiles llama.cpp from source: about 15 minutes on two
cores), in an environment of its own. Uses the low-level bindings, so that several sequences share
one decode step as a server's do.

    python llamacpp_bench.py MODEL.gguf --threads 2 --parallel 1,4,8,16 --prompt 64 --gen 32
    python llamacpp_bench.py MODEL.gguf --quantize Q8_0 OUT.gguf   # then time OUT.gguf

`--clock cpu` counts the process's own CPU seconds: with one thread, what a busy machine spares.
Prints one JSON object a line: parallel, prefill_tok_s, step_ms (median of the decode steps), …
Times are of `llama_decode` alone: no HTTP, no tokenizer, no sampling. That flatters the peer.
"""

import argparse
import ctypes
import json
import random
import statistics
import time

import llama_cpp as lc

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

QUANTS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32, "Q4_K_M": 15}

PIECE = 512  # tokens of a prompt in one step; no more sequences than that, either


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _silent(level, text, data):
    pass


def quantize(src: str, kind: str, dst: str) -> None:
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = QUANTS[kind], True, 2
    if lc.llama_model_quantize(src.encode(), dst.encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"could not quantise {src} to {kind}")


def fill(batch, rows):
    """rows: (token, position, sequence, want_logits)"""
    for i, (token, pos, seq, logits) in enumerate(rows):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, pos, 1
        batch.seq_id[i][0] = seq
        batch.logits[i] = logits
    batch.n_tokens = len(rows)


def bench(path: str, threads: int, parallel: int, prompt: int, gen: int, clock: str) -> dict:
    now = CLOCKS[clock]
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    if not model:
        raise SystemExit(f"cannot load {path}")
    cp = lc.llama_context_default_params()
    cp.n_ctx = max(512, parallel * (prompt + gen + 8))
    cp.n_seq_max = parallel
    cp.n_batch = cp.n_ubatch = PIECE
    cp.n_threads = cp.n_threads_batch = threads
    ctx = lc.llama_init_from_model(model, cp)
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    rng = random.Random(7)
    batch = lc.llama_batch_init(PIECE, 0, 1)
    prefill_s = 0.0
    for seq in range(parallel):
        rows = [(rng.randrange(100, vocab - 100), p, seq, p == prompt - 1) for p in range(prompt)]
        for start in range(0, prompt, PIECE):
            fill(batch, rows[start : start + PIECE])
            t = now()
            assert lc.llama_decode(ctx, batch) == 0
            lc.llama_synchronize(ctx)
            prefill_s += now() - t
    steps = []
    for g in range(gen):
        rows = [(rng.randrange(100, vocab - 100), prompt + g, seq, True) for seq in range(parallel)]
        fill(batch, rows)
        t = now()
        assert lc.llama_decode(ctx, batch) == 0
        lc.llama_synchronize(ctx)
        steps.append(now() - t)
    lc.llama_batch_free(batch)
    lc.llama_free(ctx)
    lc.llama_model_free(model)
    step = statistics.median(steps)
    return {
        "engine": "llama.cpp",
        "model": path.rsplit("/", 1)[-1],
        "threads": threads,
        "parallel": parallel,
        "prompt": prompt,
        "gen": gen,
        "prefill_tok_s": round(parallel * prompt / prefill_s, 1),
        "step_ms": round(step * 1e3, 2),
        "step_ms_min": round(min(steps) * 1e3, 2),
        "decode_tok_s": round(parallel / step, 1),
    }


def main() -> None:
    line, _, rest = __doc__.partition("\n")
    ap = argparse.ArgumentParser(
        description=line,
        epilog=rest.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(flag: str, help: str, **how) -> None:
        ap.add_argument(flag, help=f"{help} (default: %(default)s)", **how)

    ap.add_argument("model", help="a GGUF file")
    add("--threads", "threads", type=int, default=2, metavar="N")
    add("--parallel", "sequences in a step, by commas", default="1,4,8,16", metavar="N,…")
    add("--prompt", "tokens of each prompt", type=int, default=64, metavar="N")
    add("--gen", "tokens decoded for each sequence", type=int, default=32, metavar="N")
    add("--clock", "the wall's seconds, or the process's CPU time", choices=CLOCKS, default="wall")
    kinds = f"write the model to OUT as {', '.join(QUANTS)}, and time nothing (default: time it)"
    ap.add_argument("--quantize", nargs=2, metavar=("KIND", "OUT"), help=kinds)
    a = ap.parse_args()
    lc.llama_log_set(_silent, ctypes.c_void_p(0))
    if a.quantize:
        quantize(a.model, *a.quantize)
        return
    lc.llama_backend_init()
    for n in (int(x) for x in a.parallel.split(",")):
        print(json.dumps(bench(a.model, a.threads, n, a.prompt, a.gen, a.clock)), flush=True)


if __name__ == "__main__":
    main()
