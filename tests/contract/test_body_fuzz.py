"""Thousands of bodies that almost are requests: none is an error of ours, each refusal has a name.

In process, with a scripted engine: the whole server but for its sockets. What fails is told by its
seed and place; `mutations` gives the same again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from core.request import Request
from core.settings import Settings
from server.contract.validation import Validator
from server.routes.app import create_app
from server.service import Service
from tests.contract.conftest import TOOL_TEMPLATE
from tests.contract.mutator import BASES, mutations
from tests.contract.speaker import SpeakingRunner, within_grammar
from tests.fakes_engine import EOS, ScriptedLauncher, write_model_dir
from tests.patience import PATIENCE_S

JSON = {"content-type": "application/json"}
FIELDS = {name for table in Validator(Settings().http).tables.values() for name in table}
NAMELESS = {"invalid_json"}  # the body as a whole is to blame
SHARE = 250  # bodies of one seed


class BriefRunner(SpeakingRunner):
    """Says little, so that a test costs little; follows grammars."""

    def _token(self, request: Request) -> int:
        wanted = ord("a") if len(request.output_ids) < 3 else EOS
        return wanted if request.matcher is None else within_grammar(request, wanted)


def in_process(folder: Path, use: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Run a server without sockets; an exception of its code is the client's."""

    async def run() -> None:
        up = asyncio.Event()
        service = Service(Settings(), lambda _: up.set(), ScriptedLauncher(folder, BriefRunner()))
        engine = asyncio.create_task(service.supervisor.run())
        try:
            await asyncio.wait_for(up.wait(), PATIENCE_S)
            app = httpx.ASGITransport(create_app(service, "0"), raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=app, base_url="http://fuzz") as client:
                await use(client)
            await service.supervisor.drain(PATIENCE_S)
        finally:
            engine.cancel()
            await asyncio.gather(engine, return_exceptions=True)
            await service.shut()

    asyncio.run(run())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose template knows tools, and says little of them: the context is short."""
    folder = write_model_dir(tmp_path_factory.mktemp("fuzz"))
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    return folder


def check(response: httpx.Response) -> None:
    """Hold an answer against the contract: it is one, or a refusal that says what is wrong."""
    assert response.status_code in (200, 400, 404), response.text[:500]
    if response.status_code == 200:
        if response.headers["content-type"].startswith("text/event-stream"):
            *chunks, done, rest = response.text.split("\n\n")
            assert (done, rest) == ("data: [DONE]", "")
            assert all("choices" in json.loads(chunk.removeprefix("data: ")) for chunk in chunks)
        return
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 700
    assert "Traceback" not in error["message"]
    if error["code"] in NAMELESS:
        assert error["param"] is None
    else:
        assert error["param"].split(".")[0] in FIELDS, error


@pytest.mark.parametrize("seed", range(8))
def test_no_body_is_an_error_of_ours_and_each_refusal_names_a_field(
    folder: Path, seed: int
) -> None:
    async def send(client: httpx.AsyncClient) -> None:
        for at, (path, body) in enumerate(mutations(seed, SHARE)):
            try:
                check(await client.post(path, content=body, headers=JSON))
            except Exception as error:
                pytest.fail(f"seed {seed}, body {at}: {path} {body[:2000]!r}: {error!r}")

    in_process(folder, send)


def test_each_body_is_served_as_it_is(folder: Path) -> None:
    async def send(client: httpx.AsyncClient) -> None:
        for path, body in BASES:
            response = await client.post(path, json=body)
            assert response.status_code == 200, (path, body, response.text)
            check(response)

    in_process(folder, send)


def test_a_seed_gives_the_same_bodies_again() -> None:
    assert list(mutations(3, 50)) == list(mutations(3, 50))
    assert list(mutations(3, 50)) != list(mutations(4, 50))
