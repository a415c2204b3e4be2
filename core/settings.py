"""Every setting, once: its type, default, unit and help. Flags are derived from here.

Nothing is read from the environment or a file here; `None` means "resolved at start".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from core.formats import Backend, KVFormat, WeightFormat
from core.inputs.options import setting

STEPS_KEPT: Final = 1000  # the steps that a server remembers, and shows in /debug/steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model, and how it is stored."""

    model: str = setting(
        "smollm2-135m", "preset (smollm2-135m, tinygpt), directory, GGUF file or hub id"
    )
    served_model_name: str | None = setting(
        None, "name in the API", metavar="NAME", otherwise="the model's own"
    )
    weights: WeightFormat | None = setting(
        None,
        "how weights are stored",
        otherwise="native with the native kernels, else fp32",
    )
    kv_dtype: KVFormat | None = setting(
        None,
        "how keys and values are stored",
        otherwise="fp32 with fp32 weights, else fp16",
    )
    max_model_len: int | None = setting(
        None,
        "context limit",
        "tokens",
        "N",
        otherwise="the model's, capped to the KV pool",
    )
    seed: int = setting(0, "seeds requests that bring no seed, and tinygpt's random weights")


class Batching(StrEnum):
    """Who may join those who run. The last two are there to be compared with."""

    CONTINUOUS = "continuous"  # anybody, in any step
    STATIC = "static"  # nobody, until all who run have ended
    NONE = "none"  # one runs at a time


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Who runs in one step, and how much."""

    batching: Batching = setting(Batching.CONTINUOUS, "who may join those who run")
    kv_cache: Switch = setting(
        Switch.ON, "keep keys and values between steps; off computes all tokens again for each one"
    )
    ageing_tokens: int = setting(
        16384,
        "tokens served to others after which the head of a tenant's queue goes first",
        "tokens",
        "N",
    )
    priority_across_tenants: bool = setting(
        False, "let priority go before tenants' shares; else it orders each tenant's own requests"
    )
    max_num_seqs: int = setting(64, "requests in one step", "requests", "N")
    max_num_batched_tokens: int | None = setting(
        None,
        "tokens in one step; auto keeps the predicted step within the goal of --slo itl=…, "
        "and is 128 without one",
        "tokens",
        "N",
        otherwise="auto",
    )
    itl_goal: float | None = setting(
        None,
        "time between tokens that auto sizes steps for",
        "seconds",
        "S",
        otherwise="that of --slo itl=…",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSettings:
    """How large the KV store is."""

    block_size: int = setting(16, "token slots of a block", "tokens", "N")
    kv_memory: str = setting(
        "512MiB",
        "memory for the KV store, taken at the start; 1MB is 10^6, as 1M, and 1MiB is 2^20",
        "bytes",
        "SIZE",
    )
    num_kv_blocks: int | None = setting(
        None, "blocks in the KV store; overrides --kv-memory", "blocks", "N"
    )
    prefix_caching: bool = setting(
        True, "keep the blocks of known prefixes, and share them within a tenant"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What computes, with how many threads, and how fast it can."""

    model: ModelSettings = field(default_factory=ModelSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    kv: KVSettings = field(default_factory=KVSettings)
    backend: Backend = setting(
        Backend.AUTO, "what computes: the native kernels where they are compiled, else torch"
    )
    threads: int | None = setting(
        None, "threads of the engine", "threads", "N", otherwise="the cores it may use"
    )
    peak_bandwidth: float | None = setting(
        None, "peak memory bandwidth, such as 94GB/s", "bytes/s", "X", otherwise="measured"
    )
    peak_flops: float | None = setting(
        None, "peak arithmetic rate, such as 2TFLOP/s", "FLOP/s", "X", otherwise="measured"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where to listen, and what a client may ask for."""

    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8000, "port to listen on; 0 takes a free one", most=65535)
    api_key: tuple[str, ...] | None = setting(
        None,
        "clients must send it as a bearer token; may be repeated: NAME is the tenant whose key it "
        "is, default without one",
        metavar="[NAME=]KEY",
        otherwise="no key",
    )
    api_key_file: str | None = setting(
        None,
        "file with a [NAME=]KEY on each line, beside or instead of --api-key, which everybody on "
        "the machine can see (ps)",
        metavar="FILE",
        otherwise="none",
    )
    scrape_key: str | None = setting(
        None,
        "opens /metrics, alone, and all of /debug; best given by its variable or the file",
        metavar="KEY",
        otherwise="any API key, or none where there is none",
    )
    access_log: bool = setting(True, "log a line for each request, without prompts and keys")
    max_body: str = setting("8MiB", "largest request body", "bytes", "SIZE")
    max_text: str = setting(
        "1MiB",
        "longest text to encode; a text that the context cannot hold is refused anyway",
        "bytes",
        "SIZE",
    )
    max_queue: int = setting(
        1024,
        "live requests of a tenant beyond which its new ones are refused with 429",
        "requests",
        "N",
    )
    max_queue_tokens: int = setting(
        2**20, "prompt tokens of a tenant that may wait to be admitted", "tokens", "N"
    )
    queue_timeout: float = setting(
        120.0, "time that a request may wait to be admitted", "seconds", "S"
    )
    max_json_depth: int = setting(64, "deepest nesting of a body", "levels", "N")
    max_prompts: int = setting(128, "prompts in one request", "prompts", "N")
    max_n: int = setting(128, "choices per prompt", "choices", "N")
    max_generations: int = setting(256, "prompts times n of one request", "requests", "N")
    max_request_tokens: int = setting(
        2**20, "generations times max_tokens of one request", "tokens", "N"
    )
    max_request_logprobs: int = setting(
        2**21, "logprobs that one request may ask for, over all its tokens", "values", "N"
    )
    max_logprobs: int = setting(20, "likeliest tokens told beside each token", "tokens", "N")
    max_stop: int = setting(4, "stop strings of one request", "strings", "N")
    max_schema_string: int = setting(
        2048,
        "longest text where a JSON schema sets no end to it; 0 leaves texts and integers unbounded",
        "characters",
        "N",
    )
    open_tool_arguments: bool = setting(
        False, "let enforced calls have arguments that the tool's schema does not name"
    )
    header_timeout: float = setting(
        10.0, "time in which a request's head must come", "seconds", "S"
    )
    body_timeout: float = setting(30.0, "time in which a request's body must come", "seconds", "S")
    template_timeout: float = setting(
        2.0, "time in which a chat template must render", "seconds", "S"
    )
    cors_origins: str | None = setting(
        None, "origins whose pages may call, by commas, or *", metavar="ORIGINS", otherwise="none"
    )
    drain_timeout: float = setting(
        30.0, "time that live requests get after SIGTERM", "seconds", "S"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """What is counted, priced and shown."""

    price_per_hour: float | None = setting(
        None, "price of this machine", "USD/h", "X", otherwise="nothing is priced"
    )
    slo: str | None = setting(
        None, "objectives to count requests against, e.g. ttft=500ms,itl=50ms", metavar="SLO"
    )
    metric_aliases: str | None = setting(
        None, "also export under another server's names: vllm", metavar="vllm"
    )
    metric_buckets: str | None = setting(
        None,
        "buckets of histograms, e.g. step_duration_seconds=0.01,0.1,1;step_batch_requests=1,8,64",
        metavar="SPEC",
    )
    response_cost: bool = setting(True, "put a cost object into responses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole tree. Only `server` holds it; what it starts gets a part."""

    engine: EngineSettings = field(default_factory=EngineSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
