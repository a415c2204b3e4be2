"""A server with known answers: programmable delays, chunks, failures and freezes. No model.

`python -m loadgen.mock '{"gap_s": 0.04}'` prints its URL and serves until its input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MODEL = "mock"
WEIGHT_BYTES = 10_000_000
PACKET_GAP_S = 0.002  # apart enough that the parts of a frame arrive one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What the server does. Every `fail_every`-th request ends as `failure` says."""

    first_s: float = 0.0
    gap_s: float = 0.01  # between chunks
    tokens_per_chunk: int = 1
    packets: int = 1  # a frame comes in so many packets
    join: int = 1  # or so many frames come in one
    fail_every: int = 0
    failure: str = "500"  # 500, broken, error, early, hang, empty
    freeze_at_s: float = 0.0  # after the first generation's arrival
    freeze_s: float = 0.0
    running_usage: bool = True
    final_usage: bool = True
    vocab_size: int | None = 1000
    max_model_len: int | None = None
    api_key: str | None = None
    metrics: bool = True
    overcount: int = 0  # tokens by which its counters are wrong


class Mock:
    """One server on one event loop."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []  # of generations, the preflight's too: /bodies
        self._generated = self._prompted = 0
        self._thaws_at: tuple[float, float] | None = None

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _read_head(reader):
                method, path, headers = head
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if not await self._answer(writer, method, path, headers, body):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client hung up, as clients do
        finally:
            writer.close()

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> bool:
        """Answer one request; False closes the connection."""
        key = self.behaviour.api_key
        if key is not None and headers.get("authorization") != f"Bearer {key}":
            return await _send(writer, 401, '{"error": {"message": "wrong key"}}')
        if path == "/v1/models":
            return await _send(writer, 200, json.dumps({"data": [self._card()]}))
        if path == "/bodies":
            return await _send(writer, 200, json.dumps(self.bodies))
        if path == "/metrics" and self.behaviour.metrics:
            return await _send(writer, 200, self._metrics())
        if method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            return await self._generate(writer, json.loads(body), chat="chat" in path)
        return await _send(writer, 404, '{"error": {"message": "no such path"}}')

    def _card(self) -> dict[str, Any]:
        extra = {
            "vocab_size": self.behaviour.vocab_size,
            "max_model_len": self.behaviour.max_model_len,
        }
        return {"id": MODEL, **{name: value for name, value in extra.items() if value}}

    def _metrics(self) -> str:
        wrong = self.behaviour.overcount if len(self.bodies) > 1 else 0
        counts = {
            'tokens_total{kind="prompt"}': self._prompted,
            'tokens_total{kind="generated"}': self._generated + wrong,
            "requests_received_total": len(self.bodies),
            'step_duration_seconds_sum{kind="decode"}': self._generated * 0.010,
            'step_duration_seconds_count{kind="decode"}': self._generated,
            'step_floor_seconds_sum{kind="decode"}': self._generated * 0.004,
            'step_floor_seconds_count{kind="decode"}': self._generated,
            'bytes_moved_total{op="read",component="weights"}': self._generated * WEIGHT_BYTES,
            "flops_total": (self._prompted + self._generated) * WEIGHT_BYTES,
            "kv_bytes_per_token": 1000,
            'peak_bytes_per_second{level="dram"}': WEIGHT_BYTES / 0.004,
            "peak_flops_per_second": 1e12,
        }
        return "".join(f"floorline_{name} {value}\n" for name, value in counts.items())

    async def _generate(
        self, writer: asyncio.StreamWriter, body: dict[str, Any], chat: bool
    ) -> bool:
        mode, now = self.behaviour, asyncio.get_running_loop().time()
        if self._thaws_at is None and mode.freeze_s and body.get("stream"):
            self._thaws_at = (now + mode.freeze_at_s, now + mode.freeze_at_s + mode.freeze_s)
        self.bodies.append(body)
        fails = mode.fail_every and len(self.bodies) % mode.fail_every == 0
        failure = mode.failure if fails else ""
        if failure == "500":
            return await _send(writer, 500, '{"error": {"message": "as told"}}')
        prompt = _prompt_tokens(body)
        tokens = body["max_tokens"] // 2 if failure == "early" else body["max_tokens"]
        self._prompted += prompt
        if not body.get("stream"):
            self._generated += tokens
            return await _send(writer, 200, json.dumps({"choices": [{"text": "x" * tokens}]}))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        frames = list(self._frames(prompt, tokens, chat, failure))
        await self._stream(writer, frames, now + mode.first_s)
        if failure == "hang":
            await asyncio.sleep(3600)
        if failure == "broken":
            return False
        writer.write(b"0\r\n\r\n")
        return True

    def _frames(
        self, prompt: int, tokens: int, chat: bool, failure: str
    ) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """Yield (chunks before it, frame)."""
        mode, sent, chunk = self.behaviour, 0, 0
        if chat:
            yield 0, {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        while sent < tokens and failure != "empty":
            k = min(mode.tokens_per_chunk, tokens - sent)
            sent += k
            said = {"delta": {"content": "x" * k}} if chat else {"text": "x" * k}
            frame: dict[str, Any] = {"choices": [{**said, "token_ids": [1] * k}]}
            if mode.running_usage:
                frame["usage"] = _usage(prompt, sent)
            yield chunk, frame
            chunk += 1
            if failure in ("broken", "error", "hang") and sent * 2 >= tokens:
                if failure == "error":
                    yield chunk, {"error": {"message": "as told"}}
                    yield chunk, "[DONE]"
                return
        last = max(chunk - 1, 0)
        yield last, {"choices": [{"text": "", "delta": {}, "finish_reason": "length"}]}
        if mode.final_usage:
            usage = _usage(prompt, sent)
            yield last, {"choices": [], "usage": usage, "cost": {"cached_tokens": 0}}
        yield last, "[DONE]"

    async def _stream(
        self,
        writer: asyncio.StreamWriter,
        frames: list[tuple[int, dict[str, Any] | str]],
        first_at: float,
    ) -> None:
        """Write each frame at its deadline; a freeze delays all that falls into it."""
        mode, loop = self.behaviour, asyncio.get_running_loop()
        joined = [frames[i : i + mode.join] for i in range(0, len(frames), mode.join)]
        for group in joined:
            due = first_at + group[-1][0] * mode.gap_s
            await asyncio.sleep(max(due - loop.time(), 0))
            if self._thaws_at and self._thaws_at[0] <= loop.time() < self._thaws_at[1]:
                await asyncio.sleep(self._thaws_at[1] - loop.time())
            self._generated += sum(_tokens(frame) for _, frame in group)
            data = b"".join(_event(frame) for _, frame in group)
            size = -(-len(data) // mode.packets)
            for start in range(0, len(data), size):
                if start:
                    await asyncio.sleep(PACKET_GAP_S)
                part = data[start : start + size]
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await writer.drain()


def _event(frame: dict[str, Any] | str) -> bytes:
    text = frame if isinstance(frame, str) else json.dumps(frame)
    return f"data: {text}\n\n".encode()


def _tokens(frame: dict[str, Any] | str) -> int:
    choices = frame.get("choices") or () if isinstance(frame, dict) else ()
    return sum(len(choice.get("token_ids", ())) for choice in choices)


def _usage(prompt: int, output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _prompt_tokens(body: dict[str, Any]) -> int:
    """Count as this server's tokenizer would: an id each, or a word each."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    messages = body.get("messages") or [{"content": prompt}]
    return sum(len(message["content"].split()) for message in messages)


async def _read_head(
    reader: asyncio.StreamReader,
) -> tuple[str, str, dict[str, str]] | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    return method, path, {name.lower(): value.strip() for name, value in pairs}


async def _send(writer: asyncio.StreamWriter, status: int, text: str) -> bool:
    body = text.encode()
    phrase = HTTPStatus(status).phrase
    writer.write(
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    return True


async def _main(behaviour: Behaviour) -> None:
    server = await Mock(behaviour).start()
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_main(Behaviour(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}"))))
