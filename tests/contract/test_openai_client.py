"""The official client, sync and async, streamed or not, against a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from tests.contract.conftest import Server

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_completions(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tinygpt", prompt="hi", max_tokens=10)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage
    assert whole.usage.completion_tokens == 10
    chunks = list(
        client.completions.create(model="tinygpt", prompt="hi", max_tokens=10, stream=True)
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_chat(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tinygpt", messages=MESSAGES, max_tokens=10)  # type: ignore[call-overload]
    chunks = list(
        client.chat.completions.create(  # type: ignore[call-overload]
            model="tinygpt",
            messages=MESSAGES,
            max_tokens=10,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_async_clients_are_served_together(server: Server) -> None:
    async def test() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

            async def streamed() -> str:
                stream = await client.chat.completions.create(  # type: ignore[call-overload]
                    model="tinygpt", messages=MESSAGES, max_tokens=30, stream=True
                )
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            async def whole() -> str:
                answer = await client.chat.completions.create(  # type: ignore[call-overload]
                    model="tinygpt", messages=MESSAGES, max_tokens=30
                )
                return str(answer.choices[0].message.content)

            texts = await asyncio.gather(*(streamed() if i % 2 else whole() for i in range(16)))
            assert len(set(texts)) == 1

    asyncio.run(test())


def test_errors_are_the_clients_own_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-4", prompt="hi")
    assert caught.value.code == "model_not_found"
    assert caught.value.request_id
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="tinygpt", prompt="hi", max_tokens=10_000)
    assert bad.value.code == "context_length_exceeded"
    assert bad.value.param == "max_tokens"


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tinygpt"]
    assert client.models.retrieve("tinygpt").owned_by == "floorline"
