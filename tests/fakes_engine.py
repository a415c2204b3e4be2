"""A scripted engine behind the real socket: the real loop and scheduler, a model that recites.

It runs in a thread, and stands for the engine process wherever a test needs no tensors.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from core.formats import KVFormat, MatrixFormat, Storage, WeightFormat
from core.machine import Peak, Peaks, PeakSource
from core.model import ModelConfig, RopeConfig
from core.request import Request
from core.step import StepPlan, StepResult
from core.wire import HEADER, Fault, PoolState, Ready, Start, ToEngine, frame, to_engine
from costmodel.storage import kv_bytes_per_token, weight_bytes
from engine.loop import EngineLoop
from engine.step.grammar_queue import Compile, Compiled, grammars_for
from engine.submits import fault_in
from engine.tokenizer.byte_pairs import byte_tokenizer
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler
from tests.fakes import ScriptedRunner

SPECIALS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
BOS, EOS, IM_START, IM_END = range(256, 260)
RECITED = "Die Größe: 3 € 🦊. "
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MODEL = ModelConfig(
    name="tinygpt",
    vocab_size=260,
    hidden_size=256,
    intermediate_size=1024,
    num_layers=6,
    num_heads=4,
    num_kv_heads=1,
    head_dim=64,
    max_position_tokens=8192,
    norm_eps=1e-5,
    rope=RopeConfig(theta=10_000.0),
    tied_embeddings=False,
    sliding_window=(None,) * 6,
    bos_token_id=BOS,
    eos_token_ids=(EOS, IM_END),
)
BLOCK_SIZE, NUM_BLOCKS, MAX_MODEL_LEN = 16, 64, 512


def recite(request: Request) -> int:
    """Give the next byte of `RECITED`, over and over; a prompt that begins with "!" ends at 5."""
    spoken = len(request.output_ids)
    if request.prompt_ids[0] == ord("!") and spoken == 5:
        return EOS
    text = RECITED.encode()
    return text[spoken % len(text)]


def write_model_dir(folder: Path) -> Path:
    """Write what the server reads of a prepared model."""
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(SPECIALS)))
    config = {"bos_token": SPECIALS[0], "eos_token": SPECIALS[3]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


class RecitingRunner(ScriptedRunner):
    """Recites, and says how long that took."""

    def __init__(self, rule: Callable[[Request], int] = recite) -> None:
        super().__init__(rule=rule)

    def execute(self, plan: StepPlan) -> StepResult:
        begin_ns = time.monotonic_ns()
        result = super().execute(plan)
        return replace(result, forward_ns=time.monotonic_ns() - begin_ns)


class GatedRunner(RecitingRunner):
    """Runs a step only when a test lets it, and says that it got there; `open` lets all go."""

    def __init__(self, rule: Callable[[Request], int] = recite) -> None:
        super().__init__(rule)
        self.entered: SimpleQueue[StepPlan] = SimpleQueue()
        self.gate = threading.Semaphore(0)
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        self.gate.release()

    def execute(self, plan: StepPlan) -> StepResult:
        self.entered.put(plan)
        if not self.is_open:
            self.gate.acquire()
        return super().execute(plan)


@functools.cache
def compiler(model_dir: Path) -> Compile:
    """Load the grammar library for a model once; which runner follows grammars is its matter."""
    return grammars_for(model_dir, MODEL)


class ScriptedEngine:
    """One engine in a thread; also the launcher's `EngineProcess`."""

    def __init__(
        self,
        sock: socket.socket,
        model_dir: Path,
        runner: ScriptedRunner,
        refuse: Fault | None = None,
    ) -> None:
        self._sock, self._model_dir, self._runner, self._refuse = sock, model_dir, runner, refuse
        self.pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE)
        self.received: list[ToEngine] = []
        self._inbox: SimpleQueue[ToEngine | Compiled | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def wait(self) -> int:
        await asyncio.to_thread(self._thread.join)
        return 0

    def kill(self) -> None:
        """Drop dead: the socket breaks, and nothing more is said."""
        self._hang_up()
        self._inbox.put(None)
        if isinstance(self._runner, GatedRunner):
            self._runner.open()

    def _run(self) -> None:
        start = self._read()
        if isinstance(start, Start):
            self._send(self._refuse or ready(self._model_dir))
            if self._refuse is None:
                threading.Thread(target=self._listen, daemon=True).start()
                EngineLoop(
                    Scheduler(self.pool, start.settings.scheduler),
                    self._runner,
                    self._inbox,
                    self._send,
                    compile_grammar=lambda grammar: compiler(self._model_dir)(grammar),
                    fault_in=functools.partial(
                        fault_in, vocab_size=MODEL.vocab_size, max_model_len=MAX_MODEL_LEN
                    ),
                ).run()
        self._hang_up()
        self._sock.close()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):  # the other end was first
            self._sock.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while (message := self._read()) is not None:
            self._inbox.put(message)
            self.received.append(message)  # what is here, the loop will see before its next step
        self._inbox.put(None)

    def _send(self, message: object) -> None:
        try:
            self._sock.sendall(frame(message))  # type: ignore[arg-type]
        except OSError:
            self._inbox.put(None)

    def _read(self) -> ToEngine | None:
        try:
            header = self._sock.recv(HEADER.size, socket.MSG_WAITALL)
            if len(header) < HEADER.size:
                return None
            return to_engine.decode(self._sock.recv(*HEADER.unpack(header), socket.MSG_WAITALL))
        except OSError:
            return None


class ScriptedLauncher:
    """Starts scripted engines where it may, and keeps them all: the last is the one that runs."""

    def __init__(
        self, model_dir: Path, runner: ScriptedRunner | None = None, refuse: Fault | None = None
    ) -> None:
        self.engines: list[ScriptedEngine] = []
        self.runner = runner or RecitingRunner()
        self._model_dir, self._refuse = model_dir, refuse
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def __call__(self, sock: socket.socket) -> ScriptedEngine:
        await self.may_start.wait()
        engine = ScriptedEngine(sock.dup(), self._model_dir, self.runner, self._refuse)
        self.engines.append(engine)
        return engine

    @property
    def engine(self) -> ScriptedEngine:
        return self.engines[-1]


def refusal(kind: str, message: str) -> Fault:
    return Fault(kind, message, 0, 0, (), PoolState(0, 0, 0, 0))


def ready(model_dir: Path) -> Ready:
    per_token = kv_bytes_per_token(MODEL, KVFormat.FP32)
    return Ready(
        ready_ns=time.monotonic_ns(),
        model=MODEL,
        model_dir=str(model_dir),
        weights=WeightFormat.FP32,
        storage=Storage(MatrixFormat.FP32),
        kv_dtype=KVFormat.FP32,
        weight_bytes=weight_bytes(MODEL, Storage(MatrixFormat.FP32)),
        kv_bytes=NUM_BLOCKS * BLOCK_SIZE * per_token,
        block_size=BLOCK_SIZE,
        num_blocks=NUM_BLOCKS,
        max_model_len=MAX_MODEL_LEN,
        threads=1,
        peaks=Peaks(
            dram=Peak(1e14, PeakSource.GIVEN),  # a floor below what the fake takes
            cache=None,
            cache_bytes=0,
            flops=Peak(1e17, PeakSource.GIVEN),
            arithmetic="fp32",
        ),
        backend="scripted",
        isa="none",
        max_num_seqs=64,
        max_step_tokens=128,
    )
