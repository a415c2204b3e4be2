"""A page as a browser without a network shows it. Skips where there is no browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_LOADS_ELSEWHERE = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["'](?:https?:)?//"""
)


def opened(page: Path, profile: Path) -> str:
    """Give the page's elements after its scripts ran; it may name nothing to load elsewhere."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    command = [
        CHROMIUM,
        *("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=8000"),
        f"--user-data-dir={profile}",
        page.as_uri(),
    ]
    dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not _LOADS_ELSEWHERE.search(dom)
    return dom


def legends(dom: str) -> list[str]:
    """List what the plots' legends name."""
    return re.findall(r'class="legendtext"[^>]*data-unformatted="([^"]*)"', dom)
