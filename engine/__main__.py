"""`python -m engine`: one engine, told everything by the server at the other end of its socket."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
from typing import NoReturn

from core.children import die_with_parent
from core.errors import ModelError, SettingsError
from core.formats import WeightFormat
from core.wire import Description, description_to_json


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m engine", description=__doc__, allow_abbrev=False
    )
    job = parser.add_mutually_exclusive_group(required=True)
    job.add_argument("--fd", type=int, help="serve on an inherited Unix socket")
    job.add_argument("--calibrate", action="store_true", help="measure this machine's peaks")
    job.add_argument("--describe", metavar="MODEL", help="print what a model is, as JSON")
    parser.add_argument("--threads", type=int, help="with --calibrate")
    arguments = parser.parse_args()
    if arguments.calibrate:
        return _calibrate(arguments.threads)
    if arguments.describe:
        return _describe(arguments.describe)
    return _serve(arguments.fd)


def _serve(fd: int) -> NoReturn:
    die_with_parent()
    # A service manager signals all processes; this one ends when the server has drained it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Before torch loads: a waiting thread that spins takes a core from the server's process.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    _give_way()
    from engine.process import serve

    logging.basicConfig(level=logging.INFO, format="floorline: %(message)s")
    status = serve(socket.socket(fileno=fd))
    logging.shutdown()
    os._exit(status)  # at once: there is nothing to keep, and the server waits for the exit


def _give_way() -> None:
    """Yield to the server as it wakes: else a step's tokens wait until our threads pause."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _calibrate(asked: int | None) -> int:
    from engine.load.resolve import resolve_threads
    from engine.machine.calibrate import describe, measure_all

    try:
        threads = resolve_threads(asked)
    except SettingsError as error:
        print(f"floorline: error: {error}", file=sys.stderr)
        return 2
    print(describe(measure_all(threads), threads))
    return 0


def _describe(model: str) -> int:
    from engine.checkpoint.locate import locate
    from engine.load.resolve import resolve_threads
    from engine.machine.calibrate import cache_bytes
    from engine.machine.compiled import NATIVE_COMPILED
    from engine.prepare.own_formats import own_storage

    try:
        checkpoint = locate(model, seed=0).open()
        description = Description(
            model=checkpoint.config,
            storage=own_storage(checkpoint),
            weights=WeightFormat.NATIVE if NATIVE_COMPILED else WeightFormat.FP32,
            cache_bytes=cache_bytes(resolve_threads(None)),
        )
    except (ModelError, OSError) as error:
        print(f"floorline: error: {error}", file=sys.stderr)
        return 2
    print(description_to_json(description).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
