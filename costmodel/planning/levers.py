"""What each lever buys: one change to a scenario at a time, and the term that it reduces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from core.anatomy.parts import Anatomy
from core.model import TensorRole
from costmodel.planning.scenario import Decoding, Scenario, Speculation
from costmodel.planning.sizes import Size, Width

WEIGHT_BYTES: Final = "weight bytes"
KV_BYTES: Final = "KV bytes"
TOKENS_PER_READ: Final = "tokens per weight read"
BANDWIDTH: Final = "time per byte"
FLOPS: Final = "time per FLOP"

EXAMPLE_SPECULATION: Final = Speculation(drafts=4, acceptance=0.7, cost_ratio=0.1)


@dataclass(frozen=True)
class Lever:
    """A changed scenario, and the batch to run it at."""

    name: str
    term: str  # what the change acts on
    scenario: Scenario
    batch: int

    @property
    def decode(self) -> Decoding:
        return self.scenario.decode(self.batch)

    @property
    def fits(self) -> bool | None:
        return self.scenario.fits(self.batch)


def levers(base: Scenario, batch: int, speculation: Speculation | None) -> Iterator[Lever]:
    """Yield every lever that still helps and whose gain is known.

    A width that is already reached does not help. Without KV no gain is known; without the device's
    FLOP/s, that of more of them is not.
    """
    if not base.kv_known:
        return
    for name in ("int8", "int4"):
        changed = replace(base, weights=Width.parse(name))
        if changed.sums.stored_bytes < base.sums.stored_bytes:
            yield Lever(f"weights in {name}", WEIGHT_BYTES, changed, batch)
    eight = Width.parse("int8")
    if eight.bits < base.kv.bits:
        yield Lever("KV in int8", KV_BYTES, replace(base, kv=eight), batch)
    yield from _fewer_kv_heads(base, batch)
    half = replace(base, shared=max(base.context // 2, base.shared))
    yield Lever("prefix reuse: half of the context shared", KV_BYTES, half, batch)
    yield Lever(f"batch {2 * batch:,}", TOKENS_PER_READ, base, 2 * batch)
    drafts = speculation or EXAMPLE_SPECULATION
    name = f"speculation {drafts.drafts},{drafts.acceptance:g},{drafts.cost_ratio:g}"
    yield Lever(name, TOKENS_PER_READ, replace(base, speculation=drafts), batch)
    device = base.device
    wide = replace(device, bytes_per_s=2 * device.bytes_per_s)
    yield Lever("twice the bandwidth", BANDWIDTH, replace(base, device=wide), batch)
    if base.flops_known:
        quick = replace(device, flops_per_s=2 * device.flops_per_s)
        yield Lever("twice the FLOP/s", FLOPS, replace(base, device=quick), batch)


def _fewer_kv_heads(base: Scenario, batch: int) -> Iterator[Lever]:
    model = base.model
    if isinstance(model, Size):
        heads = model.kv_heads
    else:
        counts = {store.kv_heads for store in model.stores}
        heads = counts.pop() if len(counts) == 1 else 1  # layers differ, or there are none
    factor = next((factor for factor in (4, 3, 2) if heads % factor == 0), 1)
    if factor > 1:
        name = f"GQA: {heads} → {heads // factor} kv-heads"
        fewer = replace(base, model=_with_fewer_kv_heads(model, factor))
        yield Lever(name, KV_BYTES, fewer, batch)


def _with_fewer_kv_heads(model: Anatomy | Size, factor: int) -> Anatomy | Size:
    """Divide the kv-heads, and with them the rows of the keys' and values' matrices."""
    if isinstance(model, Size):
        return replace(model, kv_heads=model.kv_heads // factor)
    names = ("k_proj", "v_proj", "k_proj.bias", "v_proj.bias")
    weights = []
    for spec in model.weights:
        if spec.name.endswith(names):
            size = "columns" if spec.role is TensorRole.VECTOR else "rows"
            spec = replace(spec, **{size: getattr(spec, size) // factor})
        weights.append(spec)
    stores = tuple(replace(s, kv_heads=s.kv_heads // factor) for s in model.stores)
    return replace(model, weights=tuple(weights), stores=stores)
