"""A server with known answers: programmable delays, chunks, failures and freezes. No model.

`python -m loadgen.run.mock '{"gap_s": 0.04}'` prints its URL and serves until its input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string
from http import HTTPStatus
from typing import Any

MODEL = "mock"
WEIGHT_BYTES = 10_000_000
STEP_S, FLOOR_S = 0.010, 0.004  # of a step, as its counters tell; a token is a step
PRICE_NUSD = 3  # per output token
PACKET_GAP_S = 0.002  # apart enough that the parts of a frame arrive one by one

Frame = tuple[int, int, Any]  # chunks before it, its tokens, what it says


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
    models_status: int = 200  # of /v1/models
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
            while True:
                first, _, rest = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")
                headers, route = message_from_string(rest), first.rpartition(" ")[0]
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await self._answer(writer, route, headers.get("authorization"), body)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client hung up, as clients do, or is hung up on, as told
        finally:
            writer.close()

    async def _answer(self, writer: StreamWriter, route: str, key: str | None, body: bytes) -> None:
        mode = self.behaviour
        limits = {"vocab_size": mode.vocab_size, "max_model_len": mode.max_model_len}
        if mode.api_key and key != f"Bearer {mode.api_key}":
            _send(writer, 401, {"error": {"message": "wrong key"}})
        elif route == "GET /v1/models" and mode.models_status != 200:
            _send(writer, mode.models_status, {"error": {"message": "no list now"}})
        elif route == "GET /v1/models":
            _send(writer, 200, {"data": [{"id": MODEL, **limits}]})
        elif route == "GET /bodies":
            _send(writer, 200, self.bodies)
        elif route == "GET /metrics" and mode.metrics:
            _send(writer, 200, self._metrics())
        elif route in ("POST /v1/completions", "POST /v1/chat/completions"):
            await self._generate(writer, json.loads(body), chat="chat" in route)
        else:
            _send(writer, 404, {"error": {"message": "no such path"}})

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

    async def _generate(self, writer: StreamWriter, body: dict[str, Any], chat: bool) -> None:
        mode, now = self.behaviour, asyncio.get_running_loop().time()
        if self._thaws_at is None and mode.freeze_s and body.get("stream"):
            self._thaws_at = (now + mode.freeze_at_s, now + mode.freeze_at_s + mode.freeze_s)
        self.bodies.append(body)
        fails = mode.fail_every and len(self.bodies) % mode.fail_every == 0
        failure = mode.failure if fails else ""
        if failure == "500":
            _send(writer, 500, {"error": {"message": "as told"}})
            return
        # an id is a token, and so is a word
        prompt, messages = body.get("prompt"), body.get("messages")
        words = (message["content"].split() for message in messages or [{"content": prompt}])
        prompted = len(prompt) if isinstance(prompt, list) else sum(map(len, words))
        tokens = body["max_tokens"] // 2 if failure == "early" else body["max_tokens"]
        self._prompted += prompted
        if not body.get("stream"):
            self._generated += tokens
            _send(writer, 200, {"choices": [{"text": "x" * tokens}]})
            return
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await self._stream(writer, list(self._frames(prompted, tokens, chat, failure)), now)
        if failure == "hang":
            await asyncio.sleep(3600)
        if failure == "broken":
            raise ConnectionAbortedError
        writer.write(b"0\r\n\r\n")

    def _frames(self, prompt: int, tokens: int, chat: bool, failure: str) -> Iterator[Frame]:
        mode, sent, chunk = self.behaviour, 0, 0
        if chat:
            yield 0, 0, {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        while sent < tokens and failure != "empty":
            k = min(mode.tokens_per_chunk, tokens - sent)
            sent += k
            said = {"delta": {"content": "x" * k}} if chat else {"text": "x" * k}
            usage = {"usage": _usage(prompt, sent)} if mode.running_usage else {}
            yield chunk, k, {"choices": [{**said, "token_ids": [1] * k}], **usage}
            chunk += 1
            if failure in ("broken", "error", "hang") and sent * 2 >= tokens:
                if failure == "error":
                    yield chunk, 0, {"error": {"message": "as told"}}
                return
        last = max(chunk - 1, 0)
        yield last, 0, {"choices": [{"text": "", "delta": {}, "finish_reason": "length"}]}
        if mode.final_usage:
            paid = {"floor_ms": sent * FLOOR_S * 1e3, "cost_usd": sent * PRICE_NUSD / 1e9}
            cost = {"cached_tokens": 0, **paid}
            yield last, 0, {"choices": [], "usage": _usage(prompt, sent), "cost": cost}
        yield last, 0, None

    async def _stream(self, writer: StreamWriter, frames: list[Frame], start: float) -> None:
        """Write each frame at its deadline; a freeze delays all that falls into it."""
        mode, loop = self.behaviour, asyncio.get_running_loop()
        for i in range(0, len(frames), mode.join):
            group = frames[i : i + mode.join]
            due = start + mode.first_s + group[-1][0] * mode.gap_s
            await asyncio.sleep(max(due - loop.time(), 0))
            if self._thaws_at and self._thaws_at[0] <= loop.time() < self._thaws_at[1]:
                await asyncio.sleep(self._thaws_at[1] - loop.time())
            self._generated += sum(tokens for _, tokens, _ in group)
            said = (json.dumps(frame) if frame else "[DONE]" for _, _, frame in group)
            data = "".join(f"data: {text}\n\n" for text in said).encode()
            size = -(-len(data) // mode.packets)
            for first in range(0, len(data), size):
                if first:
                    await asyncio.sleep(PACKET_GAP_S)
                part = data[first : first + size]
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await writer.drain()


def _usage(prompt: int, output: int) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": output}
    return {**counts, "prompt_tokens_details": {"cached_tokens": 0}}


def _send(writer: StreamWriter, status: int, answer: Any) -> None:
    body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def _main(behaviour: Behaviour) -> None:
    server = await Mock(behaviour).listen()
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_main(Behaviour(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}"))))
