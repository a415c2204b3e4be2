"""`python -m engine --fd N`: one engine, told everything by the server at the other end."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys

from engine.process import serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="an inherited Unix socket")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="floorline: %(message)s")
    # Ctrl-C reaches the whole process group; the server drains us instead.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return serve(socket.socket(fileno=arguments.fd))


if __name__ == "__main__":
    sys.exit(main())
