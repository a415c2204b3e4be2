"""What the server process loads."""

from __future__ import annotations

import subprocess
import sys


def test_the_server_process_never_imports_torch() -> None:
    code = "import server.cli.serve, sys; print(sorted({'torch', 'transformers'} & {*sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout == b"[]\n"
