"""The engine's side of the socket: load what `Start` asks for, then run the loop until it ends."""

from __future__ import annotations

import logging
import socket
import threading
import time
from functools import partial
from queue import SimpleQueue
from typing import Final

from msgspec import structs

from core.errors import ModelError, SettingsError
from core.settings import EngineSettings, Switch
from core.wire import (
    HEADER,
    MAX_FRAME_BYTES,
    Fault,
    FromEngine,
    PoolState,
    Start,
    ToEngine,
    frame,
    to_engine,
)
from costmodel.sums import ModelSums
from engine.load.load import Engine, load_engine
from engine.loop import CLOSED, EngineLoop
from engine.step.grammar_queue import Compiled
from engine.submits import fault_in
from kvcache.pool import BlockPool
from scheduler.pace import pace_for
from scheduler.scheduler import Scheduler

log = logging.getLogger("floorline.engine")

UNUSABLE: Final = 2  # exit status: the settings or the model cannot be used
_EMPTY_POOL: Final = PoolState(0, 0, 0, 0)


def serve(sock: socket.socket) -> int:
    """Speak to one server on `sock` from `Start` to the end; return the exit status.

    Runs on the calling thread, which becomes the engine thread; a helper thread reads the socket.
    """
    start = _read(sock)
    if start is None:
        return 0
    if not isinstance(start, Start):
        raise RuntimeError(f"the first message must be Start, not {type(start).__name__}")
    try:
        engine = load_engine(start.settings)
    except (ModelError, SettingsError) as error:
        kind = "model" if isinstance(error, ModelError) else "settings"
        now_ns = time.monotonic_ns()
        sock.sendall(frame(Fault(kind, str(error), now_ns, now_ns, (), _EMPTY_POOL)))
        return UNUSABLE
    engine.warm_up()
    _run(sock, engine, start.settings)
    return 0


def _run(sock: socket.socket, engine: Engine, settings: EngineSettings) -> None:
    inbox: SimpleQueue[ToEngine | Compiled | None] = SimpleQueue()
    kv, limits, ready = settings.kv, settings.scheduler, engine.ready
    prefix_caching = kv.prefix_caching and limits.kv_cache is Switch.ON
    pool = BlockPool(ready.num_blocks, ready.block_size, prefix_caching)
    sums = ModelSums.of(ready.model, ready.storage, ready.kv_dtype)
    scheduler = Scheduler(pool, limits, pace_for(limits, sums, ready.peaks))

    def publish(message: FromEngine) -> None:
        try:
            sock.sendall(frame(message))
        except OSError:  # the server went away; the reader sees it too and closes the loop
            inbox.put(CLOSED)

    loop = EngineLoop(
        scheduler,
        engine.runner,
        inbox,
        publish,
        compile_grammar=engine.compile_grammar,
        measure_peaks=engine.measure_peaks,
        fault_in=partial(
            fault_in, vocab_size=ready.model.vocab_size, max_model_len=ready.max_model_len
        ),
    )
    threading.Thread(target=_read_into, args=(sock, inbox), daemon=True, name="inbox").start()
    publish(structs.replace(ready, ready_ns=time.monotonic_ns()))
    loop.run()


def _read_into(sock: socket.socket, inbox: SimpleQueue[ToEngine | Compiled | None]) -> None:
    try:
        while (message := _read(sock)) is not None:
            inbox.put(message)
    except Exception:
        log.exception("cannot read the server's messages; stopping")
    finally:
        inbox.put(CLOSED)


def _read(sock: socket.socket) -> ToEngine | None:
    """Return the next message, None at the end of the stream."""
    header = _read_exactly(sock, HEADER.size)
    if header is None:
        return None
    (size,) = HEADER.unpack(header)
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {size} bytes, above {MAX_FRAME_BYTES}")
    body = _read_exactly(sock, size)
    return None if body is None else to_engine.decode(body)


def _read_exactly(sock: socket.socket, size: int) -> bytearray | None:
    data = bytearray()
    while len(data) < size:
        try:
            piece = sock.recv(size - len(data))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return data
