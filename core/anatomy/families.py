"""What the families of decoders do that their `config.json` does not say. Nothing is read here.

Source: the classes of transformers 5.24; each row was compared with the parameters that its class
allocates for a small configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class QKNorm(StrEnum):
    NONE = "none"
    HEAD = "head"  # one weight for each number of a head
    WIDTH = "width"  # one for each number of all heads


class Windows(StrEnum):
    """Which layers have the window that `sliding_window` names, where no list says it."""

    NONE = "none"
    ALL = "all"
    ASKED = "asked"  # from max_window_layers on, and only if use_sliding_window
    PERIOD = "period"  # all but every `period`-th layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The rules of one `model_type`. A bias is there, or not, or as the named field says."""

    norms: int = 2  # of a layer, over the hidden width
    norm_bias: bool = False
    qk_norm: QKNorm = QKNorm.NONE
    qkv_bias: bool | str = "attention_bias"
    output_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = False
    head_bias: bool = False
    gated: bool = True  # an MLP of three matrices; two where it is not
    tied: bool = False  # where `tie_word_embeddings` is not there
    windows: Windows = Windows.NONE
    period: int = 0
    head_dim: int | None = None  # where the field is not there; None is hidden / heads
    output_gate: bool = False  # attention has a gate of the queries' width
    sinks: bool = False
    latent: bool = False  # multi-head latent attention: one shared latent a token
    experts: bool = False
    inner: str = "intermediate_size"  # of an expert
    shared_gate: bool = False  # the shared expert has a gate of its own
    router_bias: bool = False
    expert_bias: bool = False


_LLAMA: Final = Family(mlp_bias="mlp_bias")
_QWEN2: Final = Family(qkv_bias=True, output_bias=False, windows=Windows.ASKED)
_QWEN3: Final = Family(qk_norm=QKNorm.HEAD, windows=Windows.ASKED)
_EXPERTS: Final = Family(experts=True, inner="moe_intermediate_size")
_GEMMA: Final = Family(tied=True, head_dim=256)
_GEMMA3: Final = replace(_GEMMA, norms=4, qk_norm=QKNorm.HEAD, windows=Windows.PERIOD, period=6)
_GATED_DELTA: Final = Family(qk_norm=QKNorm.HEAD, output_gate=True, head_dim=256)
_DELTA_EXPERTS: Final = replace(
    _GATED_DELTA, experts=True, inner="moe_intermediate_size", shared_gate=True
)
_LATENT: Final = replace(_EXPERTS, latent=True, router_bias=True)
_OLMO2: Final = Family(qk_norm=QKNorm.WIDTH)
_GLM: Final = Family(output_bias=False)
_MISTRAL: Final = Family(windows=Windows.ALL)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "llama": _LLAMA,
        "mistral": _MISTRAL,
        "ministral": replace(_MISTRAL, windows=Windows.ALL),
        "ministral3": _MISTRAL,
        "qwen2": _QWEN2,
        "qwen3": _QWEN3,
        "gemma": _GEMMA,
        "gemma2": replace(_GEMMA, norms=4, windows=Windows.PERIOD, period=2),
        "gemma3_text": _GEMMA3,
        "gemma3n_text": replace(_GEMMA3, period=5),
        "gemma4_text": _GEMMA3,
        "phi3": Family(qkv_bias=False, output_bias=False, windows=Windows.ALL),
        "phi": Family(
            norms=1, norm_bias=True, qkv_bias=True, output_bias=True, mlp_bias=True,
            head_bias=True, gated=False,
        ),
        "smollm3": replace(_LLAMA, tied=True),
        "olmo2": _OLMO2,
        "olmo3": replace(_OLMO2, windows=Windows.PERIOD, period=4),
        "granite": _LLAMA,
        "glm": _GLM,
        "glm4": replace(_GLM, norms=4),
        "seed_oss": Family(output_bias="attention_out_bias", mlp_bias="mlp_bias"),
        "exaone4": Family(
            qk_norm=QKNorm.HEAD, qkv_bias=False, output_bias=False, windows=Windows.PERIOD, period=4
        ),
        "cohere2": Family(norms=1, tied=True, windows=Windows.PERIOD, period=4),
        "starcoder2": Family(
            norm_bias=True, qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias",
            gated=False, tied=True, windows=Windows.ALL,
        ),
        "qwen2_moe": replace(
            _EXPERTS, qkv_bias=True, output_bias=False, shared_gate=True, windows=Windows.ASKED
        ),
        "qwen3_moe": replace(_EXPERTS, qk_norm=QKNorm.HEAD, windows=Windows.ASKED),
        "mixtral": Family(experts=True, windows=Windows.ALL),
        "olmoe": Family(experts=True, qk_norm=QKNorm.WIDTH),
        "granitemoe": Family(experts=True),
        "gpt_oss": Family(
            experts=True, sinks=True, router_bias=True, expert_bias=True, head_dim=64,
            windows=Windows.PERIOD, period=2,
        ),
        "deepseek_v2": replace(_LATENT, router_bias=False),
        "deepseek_v3": _LATENT,
        "kimi_k2": _LATENT,
        "glm4_moe": replace(_EXPERTS, output_bias=False, router_bias=True),
        "qwen3_next": _DELTA_EXPERTS,
        "qwen3_5_text": _GATED_DELTA,
        "qwen3_5_moe_text": _DELTA_EXPERTS,
    }
)  # fmt: skip

ARCHITECTURES: Final[Mapping[str, str]] = MappingProxyType(  # where no model_type is named
    {
        "LlamaForCausalLM": "llama",
        "MistralForCausalLM": "mistral",
        "Qwen2ForCausalLM": "qwen2",
        "Qwen3ForCausalLM": "qwen3",
    }
)
SERVED: Final = frozenset(ARCHITECTURES.values())  # what this server runs itself
