"""The largest remainder, a step's regime and charges, written out one number at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from core.machine import Peaks
from core.wire import StepReport
from costmodel.account import StepAccounts
from costmodel.charges import WasteCause
from costmodel.floor import Regime, memory_peak
from costmodel.sums import ModelSums


def split(total: int, weights: Sequence[int]) -> list[int]:
    """Share `total`: everybody's whole part, then one each to the largest remainders."""
    if total == 0:
        return [0] * len(weights)
    exact = [Fraction(total * weight, sum(weights)) for weight in weights]
    shares = [int(share) for share in exact]
    left = total - sum(shares)
    for index in sorted(range(len(weights)), key=lambda i: shares[i] - exact[i])[:left]:
        shares[index] += 1
    return shares


def shares(
    sums: ModelSums,
    report: StepReport,
    wasted: Mapping[int, WasteCause],
    account: StepAccounts,
) -> list[tuple[int, ...]]:
    """Charge a step of known work and floor: slice, tokens, then bytes read, written, FLOPs, ns."""
    work, parts = account.work, []
    for index, piece in enumerate(report.slices):
        again = 0 if index in wasted else piece.recomputed
        if 0 < again < piece.length:
            parts.append((index, piece.start, again, 0))
            parts.append((index, piece.start + again, piece.length - again, piece.rows))
        else:
            parts.append((index, piece.start, piece.length, piece.rows))
    tokens, rows = [part[2] for part in parts], [part[3] for part in parts]
    layers = split((work.weights_bytes + work.embedding_bytes).item(), tokens)
    heads = split(work.lm_head_bytes.item(), rows)
    kv = [
        share
        for index, total in enumerate(work.kv_read_bytes_by_slice.tolist())
        for share in split(total, [part[2] for part in parts if part[0] == index])
    ]
    read = list(map(sum, zip(layers, heads, kv, strict=True)))
    written = [count * sums.kv_token_bytes for count in tokens]
    flops = [
        count * sums.linear_flops_per_token
        + row * sums.lm_head_flops_per_row
        + sums.attention_flops(start, count)
        for _, start, count, row in parts
    ]
    by_flops = account.floors.compute_bound.item()
    keys = flops if by_flops else list(map(sum, zip(read, written, strict=True)))
    floor_ns = min(account.floors.ns.item(), report.segments.forward)
    columns = read, written, flops, split(floor_ns, keys), split(account.wall_ns.item(), keys)
    return [
        (part[0], part[2], *own)
        for part, own in zip(parts, zip(*columns, strict=True), strict=True)
    ]


def regime(account: StepAccounts, peaks: Peaks, report: StepReport) -> Regime | None:
    """Name what made a step of known work so slow, and hold its floor against plain division."""
    work, peak = account.work, memory_peak(account.work.bytes_read.item(), peaks)[1]
    if peak is None or peaks.flops is None:
        assert not account.floors.known
        return None
    memory_s = work.bytes_total.item() / peak.per_s
    compute_s = work.flops.item() / peaks.flops.per_s
    assert account.floors.s == max(memory_s, compute_s)
    host_ns = account.wall_ns.item() - report.segments.forward - report.segments.sample
    if host_ns > int(max(memory_s, compute_s) * 1e9):
        return Regime.OVERHEAD
    return Regime.MEMORY if memory_s >= compute_s else Regime.COMPUTE
