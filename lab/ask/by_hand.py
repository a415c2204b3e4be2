"""A model given by hand: which sizes go together, and that they can be one model's."""

from __future__ import annotations

from typing import Final

from core.errors import SettingsError
from costmodel.planning.sizes import Size
from lab.ask import values
from lab.ask.options import HandGiven

_OTHERS: Final = (
    *("active_params", "experts", "layers", "heads", "kv_heads", "head_dim"),
    *("hidden", "vocab", "tied"),
)


def size_of(given: HandGiven, model: str | None) -> Size | None:
    """Take the sizes that were given; None where none was.

    Raises:
        SettingsError: one that needs another, or is at odds with it.
    """
    named = [_flag(name) for name in _OTHERS if getattr(given, name)]
    if given.params is None:
        if named:
            raise SettingsError(f"{', '.join(named)} go with --params")
        return None
    if model:
        raise SettingsError(f"--params and the model {model}: one of them")
    size = Size(
        parameters=given.params,
        active=given.active_params,
        layers=given.layers or 0,
        heads=given.heads or given.kv_heads or 0,
        kv_heads=given.kv_heads or 0,
        head_dim=given.head_dim or 0,
        vocab=given.vocab or 0,
        hidden=given.hidden or 0,
        tied=given.tied,
        top_k=values.experts(given.experts)[0] if given.experts else 0,
        experts=values.experts(given.experts)[1] if given.experts else 0,
    )
    _check(given, size)
    return size


def _check(given: HandGiven, size: Size) -> None:
    shape = (size.layers, size.kv_heads, size.head_dim)
    if (size.heads or any(shape)) and not all(shape):
        raise SettingsError(
            "--layers, --kv-heads and --head-dim are given together, or not at all;"
            " --heads only with them"
        )
    if size.kv_heads and size.heads % size.kv_heads:
        raise SettingsError(f"--heads {size.heads}: no multiple of --kv-heads {size.kv_heads}")
    if size.vocab and not size.hidden:
        raise SettingsError("--vocab goes with --hidden")
    if size.tied and not size.vocab:
        raise SettingsError("--tied goes with --vocab and --hidden")
    if size.active is not None and size.active > size.parameters:
        raise SettingsError(f"--active-params {size.active}: of --params {size.parameters} in all")
    if size.experts and size.active is None:
        raise SettingsError("--experts goes with --active-params")
    if size.layer_parameters < 1:
        raise SettingsError(
            f"--vocab {size.vocab} × --hidden {size.hidden}: more than the parameters that are read"
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
