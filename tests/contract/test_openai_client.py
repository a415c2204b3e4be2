"""The official client, sync and async, streamed or not, against a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import openai
import pydantic
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
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


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


def test_a_raw_response_shows_its_headers(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(  # type: ignore[call-overload]
        model="tinygpt", messages=MESSAGES, max_tokens=2
    )
    assert raw.headers["x-request-id"]
    assert raw.parse().choices[0].message.content == "Di"


def test_several_choices_with_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(  # type: ignore[call-overload]
        model="tinygpt", messages=MESSAGES, max_tokens=4, n=2, logprobs=True, top_logprobs=3
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert [len(one.top_logprobs) for one in choice.logprobs.content] == [3] * 4
    old = client.completions.create(model="tinygpt", prompt="a", max_tokens=3, logprobs=2)
    assert old.choices[0].logprobs
    assert old.choices[0].logprobs.text_offset == [0, 1, 2]


class Plan(pydantic.BaseModel):
    steps: int
    pace: Literal["slow", "fast"]
    next: Plan | None


def test_a_pydantic_schema_is_followed_and_parsed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tinygpt",
        messages=MESSAGES,  # type: ignore[arg-type]
        response_format=Plan,
        max_tokens=200,
    )
    assert isinstance(answer.choices[0].message.parsed, Plan)


class Weather(pydantic.BaseModel):
    city: str


@pytest.fixture
def tool_client(tool_http: httpx.Client) -> Iterator[openai.OpenAI]:
    url = f"{tool_http.base_url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def test_tools_are_called_and_parsed(tool_client: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather, name="weather")]
    fields: dict[str, Any] = {"model": "tinygpt", "messages": MESSAGES, "tools": tools}
    answer = tool_client.chat.completions.parse(**fields, tool_choice="required")
    (call,) = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_streamed_calls_are_put_together_by_the_client(tool_client: openai.OpenAI) -> None:
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
    tools = [openai.pydantic_function_tool(Weather, name="weather")]
    messages: Any = [{"role": "user", "content": f"say:{call}"}]
    with tool_client.chat.completions.stream(
        model="tinygpt", messages=messages, tools=tools
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    (made,) = final.choices[0].message.tool_calls or []
    assert json.loads(made.function.arguments) == {"city": "Köln"}


def test_an_async_client_streams_with_a_helper(server: Server) -> None:
    async def test() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            async with client.chat.completions.stream(
                model="tinygpt",
                messages=[{"role": "user", "content": "say:hällo"}],
            ) as stream:
                text = "".join([e.delta async for e in stream if e.type == "content.delta"])
            final = await stream.get_final_completion()
            assert text == final.choices[0].message.content == "hällo"

    asyncio.run(test())
