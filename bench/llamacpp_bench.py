"""Time llama.cpp's decode and prefill on this machine, for a side-by-side with our engine.

Needs `pip install llama-cpp-python` (it compiles llama.cpp from source: about 15 minutes on two
cores), in an environment of its own. Uses the low-level bindings, so that several sequences share
one decode step as a server's do.

    python -m bench.llamacpp_bench MODEL.gguf --threads 2 --parallel 1,4,8,16
    python -m bench.llamacpp_bench MODEL.gguf --quantize Q8_0 OUT.gguf   # then time OUT.gguf

`--clock cpu` counts the process's own CPU seconds: with one thread, what a busy machine spares.
Prints one JSON object a line: parallel, prefill_tok_s, step_ms (median of the decode steps), …
Times are of `llama_decode` alone: no HTTP, no tokenizer, no sampling. That flatters the peer.
"""

import ctypes
import json
import random
import statistics
import time
from typing import Any

from bench.command import Command, number_from, start, to_read
from core.errors import SettingsError

try:
    import llama_cpp as lc
except ImportError:
    lc = None  # its help is for whoever has still to install it

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

# llama.cpp's number of each mix of block types
QUANTS = {
    "F32": 0,
    "F16": 1,
    "BF16": 32,
    "Q8_0": 7,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q4_K_M": 15,
    "Q5_K_M": 17,
    "Q6_K": 18,
    "IQ4_NL": 25,
    "IQ4_XS": 30,
}

PIECE = 512  # tokens of a prompt in one step; no more sequences than that, either


Record = dict[str, Any]  # a case and its times, as JSON

_LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_silent = _LOG_CALLBACK(lambda level, text, data: None)


def quantize(src: str, kind: str, dst: str) -> None:
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = QUANTS[kind], True, 2
    if lc.llama_model_quantize(src.encode(), dst.encode(), ctypes.byref(params)) != 0:
        raise SettingsError(f"could not quantise {src} to {dst} as {kind}")


def fill(batch: Any, rows: list[tuple[int, int, int, bool]]) -> None:
    """Lay out rows of token, position, sequence and whether its logits are wanted."""
    for i, (token, pos, seq, logits) in enumerate(rows):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, pos, 1
        batch.seq_id[i][0] = seq
        batch.logits[i] = logits
    batch.n_tokens = len(rows)


def bench(path: str, threads: int, parallel: int, prompt: int, gen: int, clock: str) -> Record:
    now = CLOCKS[clock]
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    if not model:
        raise SettingsError(f"cannot load {path}")
    cp = lc.llama_context_default_params()
    cp.n_ctx = max(512, parallel * (prompt + gen + 8))
    cp.n_seq_max = parallel
    cp.n_batch = cp.n_ubatch = PIECE
    cp.n_threads = cp.n_threads_batch = threads
    ctx = lc.llama_init_from_model(model, cp)
    if not ctx:
        raise SettingsError(f"{path}: no memory for {parallel} sequences of {prompt + gen} tokens")
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    rng = random.Random(7)
    batch = lc.llama_batch_init(PIECE, 0, 1)
    prefill_s = 0.0
    for seq in range(parallel):
        rows = [(rng.randrange(100, vocab - 100), p, seq, p == prompt - 1) for p in range(prompt)]
        for first in range(0, prompt, PIECE):
            fill(batch, rows[first : first + PIECE])
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


def batches(text: str) -> list[int]:
    return [number_from(1)(part) for part in text.split(",")]


def options() -> Command:
    parser = Command("bench.llamacpp_bench", __doc__)
    parser.add_argument("model", type=to_read, help="a GGUF file")
    parser.count("--threads", 2, "threads")
    sequences = f"sequences in a step, by commas, up to {PIECE}"
    parser.option("--parallel", sequences, type=batches, default="1,4,8,16", metavar="N,…")
    parser.count("--prompt", 64, "tokens of each prompt")
    parser.count("--gen", 32, "tokens decoded for each sequence")
    clock = "the wall's seconds, or the process's CPU time"
    parser.option("--clock", clock, choices=CLOCKS, default="wall")
    kinds = f"write the model to OUT as {', '.join(QUANTS)}, and time nothing"
    names = ("KIND", "OUT")
    parser.option("--quantize", kinds, "time it", nargs=2, metavar=names)
    return parser


def main() -> None:
    parser = options()
    chosen = parser.parse_args()
    if chosen.quantize and chosen.quantize[0] not in QUANTS:
        parser.error(f"--quantize {chosen.quantize[0]}: is none of {', '.join(QUANTS)}")
    if max(chosen.parallel) > PIECE:
        parser.error(f"--parallel {max(chosen.parallel)}: more than {PIECE}")
    if lc is None:
        raise SettingsError("needs llama-cpp-python, which this Python does not have")
    lc.llama_log_set(_silent, ctypes.c_void_p(0))
    model = str(chosen.model)
    if chosen.quantize:
        quantize(model, *chosen.quantize)
        return
    lc.llama_backend_init()
    for n in chosen.parallel:
        timed = bench(model, chosen.threads, n, chosen.prompt, chosen.gen, chosen.clock)
        print(json.dumps(timed), flush=True)


if __name__ == "__main__":
    start(main)
