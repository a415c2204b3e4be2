"""The bill: a run's tokens and money, counted by each side, which must agree to the unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.report.measure import Throughput, total
from loadgen.run.record import OK, Record
from loadgen.run.scrape import Scrape, ScrapeWindow, divide

NUSD_PER_USD = 1e9

Ways = dict[str, int | None]  # a count by each way of counting; None where it cannot be compared


@dataclass(frozen=True, slots=True)
class Price:
    window_usd: float
    usd_per_million_tokens: float | None
    usd_per_request: float | None
    usd_per_good_request: float | None


@dataclass(frozen=True, slots=True)
class Bill:
    tokens: dict[str, Ways]  # by "prompt", "output" and "cached"
    nusd: Ways
    balanced: bool | None  # None where no two ways could be compared
    others_on_server: bool | None  # None where the server does not tell
    price: Price | None  # None where no price of an hour was given


def bill_of(
    records: Sequence[Record], scrapes: Sequence[Scrape], exact: bool, price: Price | None = None
) -> Bill:
    """Count by the client, by `usage`, by the `cost` objects and by the counters of /metrics.

    `exact` says that the client knows its prompts' tokens. Ways are None where they cannot be
    compared: the server has no such number, a request ended without its usage, or others used the
    server meanwhile.
    """
    billed = [record for record in records if record.usage]
    window = ScrapeWindow(scrapes[0], scrapes[-1]) if len(scrapes) > 1 else None
    received = window.grew("floorline_requests_received_total") if window else None
    alone = received is not None and round(received) == len(records)
    complete = bool(billed) and all(record.outcome == OK for record in records)

    def grew(name: str, scale: float = 1, **labels: str) -> int | None:
        value = window.grew(name, **labels) if window and alone and complete else None
        return None if value is None else round(value * scale)

    # no request pays for idle time and waste: all that is paid is in these two components
    parts = ("prefill", "decode")
    paid = [grew("floorline_cost_usd_total", NUSD_PER_USD, component=part) for part in parts]
    nusd = {"cost": total(map(_nusd, billed)), "metrics": total(paid)}
    tokens = _tokens(billed, exact)
    for row, kind in (("prompt", "prompt"), ("output", "generated"), ("cached", "cached")):
        tokens[row]["metrics"] = grew("floorline_tokens_total", kind=kind)
    known = [[n for n in ways.values() if n is not None] for ways in (*tokens.values(), nusd)]
    compared = [counts for counts in known if len(counts) > 1]
    return Bill(
        tokens=tokens,
        nusd=nusd,
        balanced=all(len(set(counts)) == 1 for counts in compared) if compared else None,
        others_on_server=None if received is None else not alone,
        price=price,
    )


def _tokens(billed: Sequence[Record], exact: bool) -> dict[str, Ways]:
    """Count what each answer tells."""
    prompt = total(r.asked_prompt_tokens if exact else None for r in billed)
    output = total(r.counted_tokens for r in billed)
    cost = total(r.charged("cached_tokens") for r in billed)
    return {
        "prompt": {"client": prompt, "usage": total(r.used("prompt_tokens") for r in billed)},
        "output": {"client": output, "usage": total(r.output_tokens for r in billed)},
        "cached": {"usage": total(r.cached_tokens for r in billed), "cost": cost},
    }


def _nusd(record: Record) -> int | None:
    usd = record.charged("cost_usd")
    return None if usd is None else round(usd * NUSD_PER_USD)


def price_of(usd_per_hour: float | None, rates: Throughput, good: int) -> Price | None:
    """Price the whole window by what arrived in it, also where others used the server.

    `good` requests ended in it.
    """
    if usd_per_hour is None:
        return None
    usd = usd_per_hour * rates.window_s / 3600
    tokens = total([rates.prompt_tokens, rates.output_tokens])
    return Price(
        window_usd=usd,
        usd_per_million_tokens=divide(usd * 1e6, tokens),
        usd_per_request=divide(usd, rates.answered),
        usd_per_good_request=divide(usd, good),
    )
