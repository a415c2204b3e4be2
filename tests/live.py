"""Real processes for the tests: started on a free port, waited for, ended by their id."""

from __future__ import annotations

import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from deploy.grafana.queries import Prometheus
from tests.patience import PATIENCE_S

BIN = Path(sys.executable).parent  # the console scripts lie beside the interpreter
DEPLOY = Path(__file__).parents[1] / "deploy"
LISTENING = re.compile(r'"Listening on".* address=(\S+)\n')
READY = re.compile(r"floorline: ready on (http://\S+)\n")


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A running `floorline serve`. `log` is its standard error, which grows."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE_S)

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=PATIENCE_S)


Serve = Callable[..., AbstractContextManager[LiveServer]]


@contextmanager
def serving(
    log: Path, *flags: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[LiveServer]:
    """Run `floorline serve` with `flags` on a free port, from its ready line to its end."""
    command = [str(BIN / "floorline"), "serve", "--port", "0", *flags]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=cwd, env=env
        )
    try:
        yield LiveServer(_wait_until_ready(process, log), process, log)
    finally:
        end(process)


def _wait_until_ready(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(PATIENCE_S), f"no ready line in time:\n{log.read_text()}"
    line = process.stdout.readline()
    ready = READY.fullmatch(line)
    assert ready, f"{line!r} instead of the ready line:\n{log.read_text()}"
    return ready[1]


def end(process: subprocess.Popen[str]) -> int:
    """Terminate one process of ours, or kill it where it does not listen; give its exit status."""
    process.terminate()
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(PATIENCE_S)
    finally:
        if process.stdout is not None:
            process.stdout.close()


def wait_until(happened: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Poll until `happened()`.

    Raises:
        AssertionError: it did not in time; names `what`.
    """
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


@contextmanager
def prometheus_in(folder: Path, *urls: str) -> Iterator[Prometheus]:
    """Run the very files of deploy/ in a folder whose targets.yml names the live servers."""
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(DEPLOY / name, folder / name)
    targets = [{"targets": [url.removeprefix("http://") for url in urls]}]
    (folder / "targets.yml").write_text(yaml.safe_dump(targets))
    flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    log = folder / "prometheus.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            ["prometheus", *flags, "--web.listen-address=127.0.0.1:0"], stderr=errors, text=True
        )
    try:
        wait_until(lambda: bool(LISTENING.search(log.read_text())), "an address to listen on")
        prometheus = Prometheus(f"http://{LISTENING.findall(log.read_text())[0]}")
        wait_until(lambda: sees(prometheus, len(urls)), "a first scrape")
        yield prometheus
    finally:
        end(process)


def sees(prometheus: Prometheus, servers: int) -> bool:
    try:
        up = prometheus.query('up{job="floorline"}')
        return sum(value == 1 for _, value in up) == servers
    except OSError:  # not ready yet
        return False
