"""Reads the numbers of a model's description, each within what a model can have. No files here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.errors import ModelError
from core.model import ModelConfig, TensorRole

MOST_LAYERS: Final = 10_000
MOST_WIDTH: Final = 2**24  # heads, features, and ids of a vocabulary
MOST_POSITIONS: Final = 2**31


class Numbers:
    """Numbers by key; `value_of` gives what the file says, None where it says nothing."""

    def __init__(self, where: str, value_of: Callable[[str], Any]) -> None:
        self._where, self._value_of = where, value_of

    def whole(self, key: str, default: int | None = None, most: int = MOST_WIDTH) -> int:
        """Give a whole number from 1 to `most`.

        Raises:
            KeyError: the file says nothing, and there is no default.
            ModelError: it says something else than such a number.
        """
        value = self._said_or(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ModelError(
                f"{self._where}: {key} is {_shown(value)}, not a whole number from 1 to {most}"
            )
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """Give a finite number above 0; raises as `whole` does."""
        value = self._said_or(key, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 0:
            raise ModelError(f"{self._where}: {key} is {_shown(value)}, not a number above 0")
        return float(value)

    def said(self, key: str) -> Any:
        """Give what the file says, whatever it is; None if it says nothing."""
        return self._value_of(key)

    def _said_or(self, key: str, default: float | None) -> Any:
        value = self.said(key)
        if value is None and default is None:
            raise KeyError(key)
        return default if value is None else value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def ids(where: str, key: str, value: object) -> list[int]:
    """Read a special token's id, or several of them, or none.

    Raises:
        ModelError: they are no ids.
    """
    listed: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    if any(not isinstance(id, int) or isinstance(id, bool) for id in listed):
        raise ModelError(f"{where}: {key} is {_shown(value)}, not a token id or a list of them")
    return listed


def check_heads(config: ModelConfig) -> None:
    """Hold the width of a head against its rotary positions.

    Raises:
        ModelError: it has no pairs, or not as many as there are factors.
    """
    dim = config.head_dim
    if dim % 2:
        raise ModelError(f"{config.name}: head_dim is {dim}; rotary positions turn pairs")
    factors = len(config.rope.factors)
    if factors not in (0, dim // 2):
        raise ModelError(f"{config.name}: {factors} rope factors for {dim // 2} pairs of a head")


def check_shapes(
    config: ModelConfig,
    shapes: Mapping[str, tuple[int, ...]],
    name_of: Callable[[str], str],
    where: str,
) -> None:
    """Hold the header of every tensor against the config; `shapes` are by the file's own names.

    Raises:
        ModelError: a tensor is missing, or has another shape, or is none that the config knows.
    """
    specs = {name_of(spec.name): spec for spec in config.tensors()}
    missing = [spec.name for name, spec in specs.items() if name not in shapes]
    if missing:
        raise ModelError(f"{where}: {len(missing)} tensors are missing, first {missing[0]}")
    for name, spec in specs.items():
        vector = spec.role is TensorRole.VECTOR
        wanted = (spec.columns,) if vector else (spec.rows, spec.columns)
        if shapes[name] != wanted:
            raise ModelError(
                f"{where}: {spec.name}: shape {shapes[name]}, the config says {wanted}"
            )
    unknown = sorted(shapes.keys() - specs.keys())
    if unknown:
        raise ModelError(
            f"{where}: {len(unknown)} tensors belong to no part of the model that we know, "
            f"first {unknown[0]}"
        )
