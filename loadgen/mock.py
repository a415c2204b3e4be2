"""A server with known answers: programmable delays, chunks, failures and freezes. No model.

`python -m loadgen.mock '{"gap_s": 0.04}'` prints its URL and serves until its input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MODEL = "mock"
WEIGHT_BYTES = 10_000_000
STEP_S, FLOOR_S = 0.010, 0.004  # of a step, as its counters tell; a token is a step
PRICE_NUSD = 3  # per output token
PACKET_GAP_S = 0.002  # apart enough that the parts of a frame arrive one by one

Frame = dict[str, Any] | str


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
    overcharge_nusd: int = 0


class Mock:
    """One server on one event loop."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []  # of generations, the preflight's too: /bodies
        self._generated = self._prompted = 0
        self._thaws_at: tuple[float, float] | None = None

    async def listen(self) -> asyncio.Server:
        """Listen on a free port. Made from host and port, its connections have TCP_NODELAY."""
        return await asyncio.start_server(self.serve, "127.0.0.1", 0)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one connection's requests."""
        try:
            while await self._answer(writer, *await _read(reader)):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client hung up, as clients do
        finally:
            writer.close()

    async def _answer(self, writer: StreamWriter, route: str, key: str, body: bytes) -> bool:
        """Answer one request; False closes the connection."""
        mode = self.behaviour
        if mode.api_key is not None and key != f"Bearer {mode.api_key}":
            return _send(writer, 401, {"error": {"message": "wrong key"}})
        if route == "GET /v1/models":
            limits = {"vocab_size": mode.vocab_size, "max_model_len": mode.max_model_len}
            return _send(writer, 200, {"data": [{"id": MODEL, **limits}]})
        if route == "GET /bodies":
            return _send(writer, 200, self.bodies)
        if route == "GET /metrics" and mode.metrics:
            return _send(writer, 200, self._metrics())
        if route in ("POST /v1/completions", "POST /v1/chat/completions"):
            return await self._generate(writer, json.loads(body), chat="chat" in route)
        return _send(writer, 404, {"error": {"message": "no such path"}})

    def _metrics(self) -> str:
        wrong, tokens = len(self.bodies) > 1, self._generated
        nusd = tokens * PRICE_NUSD + wrong * self.behaviour.overcharge_nusd
        counts = {
            'tokens_total{kind="prompt"}': self._prompted,
            'tokens_total{kind="generated"}': tokens + wrong * self.behaviour.overcount,
            "requests_received_total": len(self.bodies),
            'cost_usd_total{component="prefill"}': 0,
            'cost_usd_total{component="decode"}': nusd / 1e9,
            'step_duration_seconds_sum{kind="decode"}': tokens * STEP_S,
            'step_duration_seconds_count{kind="decode"}': tokens,
            'step_floor_seconds_sum{kind="decode"}': tokens * FLOOR_S,
            'step_floor_seconds_count{kind="decode"}': tokens,
            'bytes_moved_total{op="read",component="weights"}': tokens * WEIGHT_BYTES,
            "flops_total": (self._prompted + tokens) * WEIGHT_BYTES,
            "kv_bytes_per_token": 1000,
            'peak_bytes_per_second{level="dram"}': WEIGHT_BYTES / FLOOR_S,
            "peak_flops_per_second": 1e12,
        }
        return "".join(f"floorline_{name} {value}\n" for name, value in counts.items())

    async def _generate(self, writer: StreamWriter, body: dict[str, Any], chat: bool) -> bool:
        mode, now = self.behaviour, asyncio.get_running_loop().time()
        if self._thaws_at is None and mode.freeze_s and body.get("stream"):
            self._thaws_at = (now + mode.freeze_at_s, now + mode.freeze_at_s + mode.freeze_s)
        self.bodies.append(body)
        fails = mode.fail_every and len(self.bodies) % mode.fail_every == 0
        failure = mode.failure if fails else ""
        if failure == "500":
            return _send(writer, 500, {"error": {"message": "as told"}})
        prompt = _prompt_tokens(body)
        tokens = body["max_tokens"] // 2 if failure == "early" else body["max_tokens"]
        self._prompted += prompt
        if not body.get("stream"):
            self._generated += tokens
            return _send(writer, 200, {"choices": [{"text": "x" * tokens}]})
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        frames = list(self._frames(prompt, tokens, chat, failure))
        await self._stream(writer, frames, now + mode.first_s)
        if failure == "hang":
            await asyncio.sleep(3600)
        writer.write(b"" if failure == "broken" else b"0\r\n\r\n")
        return failure != "broken"

    def _frames(
        self, prompt: int, tokens: int, chat: bool, failure: str
    ) -> Iterator[tuple[int, Frame]]:
        """Yield (chunks before it, frame)."""
        mode, sent, chunk = self.behaviour, 0, 0
        if chat:
            yield 0, {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        while sent < tokens and failure != "empty":
            k = min(mode.tokens_per_chunk, tokens - sent)
            sent += k
            said = {"delta": {"content": "x" * k}} if chat else {"text": "x" * k}
            usage = {"usage": _usage(prompt, sent)} if mode.running_usage else {}
            yield chunk, {"choices": [{**said, "token_ids": [1] * k}], **usage}
            chunk += 1
            if failure in ("broken", "error", "hang") and sent * 2 >= tokens:
                if failure == "error":
                    yield chunk, {"error": {"message": "as told"}}
                    yield chunk, "[DONE]"
                return
        last = max(chunk - 1, 0)
        yield last, {"choices": [{"text": "", "delta": {}, "finish_reason": "length"}]}
        if mode.final_usage:
            yield last, {"choices": [], "usage": _usage(prompt, sent), "cost": _cost(sent)}
        yield last, "[DONE]"

    async def _stream(
        self, writer: StreamWriter, frames: list[tuple[int, Frame]], first_at: float
    ) -> None:
        """Write each frame at its deadline; a freeze delays all that falls into it."""
        mode, loop = self.behaviour, asyncio.get_running_loop()
        for i in range(0, len(frames), mode.join):
            group = frames[i : i + mode.join]
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


def _event(frame: Frame) -> bytes:
    text = frame if isinstance(frame, str) else json.dumps(frame)
    return f"data: {text}\n\n".encode()


def _tokens(frame: Frame) -> int:
    choices = () if isinstance(frame, str) else frame.get("choices", ())
    return sum(len(choice.get("token_ids", ())) for choice in choices)


def _usage(prompt: int, output: int) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return {**counts, "prompt_tokens_details": {"cached_tokens": 0}}


def _cost(output: int) -> dict[str, Any]:
    floor_ms, usd = output * FLOOR_S * 1e3, output * PRICE_NUSD / 1e9
    return {"cached_tokens": 0, "floor_ms": floor_ms, "cost_usd": usd}


def _prompt_tokens(body: dict[str, Any]) -> int:
    """Count as this server's tokenizer would: an id each, or a word each."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    messages = body.get("messages") or [{"content": prompt}]
    return sum(len(message["content"].split()) for message in messages)


async def _read(reader: StreamReader) -> tuple[str, str, bytes]:
    """Read one request: method and path, authorization, body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return first.rpartition(" ")[0], headers.get("authorization", ""), body


def _send(writer: StreamWriter, status: int, answer: Any) -> bool:
    body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return True


async def _main(behaviour: Behaviour) -> None:
    server = await Mock(behaviour).listen()
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_main(Behaviour(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}"))))
