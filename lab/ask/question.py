"""What a plan is asked: every option read into one value. Nothing is computed here."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from core.anatomy.parts import Anatomy
from core.errors import SettingsError
from core.formats import WeightFormat
from costmodel.planning.datasheet import Device
from costmodel.planning.scenario import Scenario, Speculation
from costmodel.planning.sizes import Size, Width
from lab.ask import values
from lab.ask.by_hand import size_of
from lab.ask.hardware import arithmetic_of, devices_of, prices_of
from lab.ask.model import Described, find_model
from lab.ask.options import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_MODEL,
    HandGiven,
    OnDevice,
    StoredAs,
    Wanted,
    gather,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One plan. `devices` are several for a comparison; `prices` are as many, or none.

    `longest` is the model's own limit on context, None where it is not known.
    """

    name: str
    model: Anatomy | Size
    weights: Width
    kv: Width
    arithmetic: str
    devices: tuple[Device, ...]
    context: int
    longest: int | None = None
    concurrency: int = 1
    itl_goal_s: float | None = None
    ttft_goal_s: float | None = None
    prices: tuple[float | None, ...] = field(default=(None,))
    speculation: Speculation | None = None
    measured_tokens_per_s: float | None = None

    def scenario(self, device: Device) -> Scenario:
        return Scenario(
            model=self.model,
            weights=self.weights,
            kv=self.kv,
            device=device,
            context=self.context,
            arithmetic=self.arithmetic,
        )

    @staticmethod
    def read(given: argparse.Namespace) -> Question:
        """Read the options; a model that is not there is told before all else.

        Raises:
            SettingsError: the first that cannot be used, by its flag.
        """
        by_hand, wanted = gather(HandGiven, given), gather(Wanted, given)
        size = size_of(by_hand, given.model)
        name = given.model or DEFAULT_MODEL
        place = find_model(name) if size is None else None
        goals = values.goals(wanted.slo) if wanted.slo else {}
        hardware = gather(OnDevice, given)
        devices = devices_of(hardware)
        prices = prices_of(wanted.price_per_hour, len(devices))
        stored = gather(StoredAs, given)
        text = _one_width(stored)
        described = place.described(text in (None, WeightFormat.NATIVE)) if place else None
        weights = _weights(text, described, "--weights" if stored.weights else "--dtype")
        longest = described.model.longest if described else None
        asked = wanted.context
        if asked and longest and asked > longest:
            raise SettingsError(f"--context {asked}: {name} was made for at most {longest} tokens")
        kv = stored.kv_dtype or (weights.storage.usual_kv if weights.storage else "bf16")
        model = described.model if described else size
        assert model is not None, "one of the two is asked about"
        return Question(
            name=name if described else "given by hand",
            model=model,
            weights=weights,
            kv=Width.parse(kv),
            arithmetic=arithmetic_of(stored.arithmetic, weights.name),
            devices=devices,
            context=asked or min(DEFAULT_CONTEXT_TOKENS, longest or DEFAULT_CONTEXT_TOKENS),
            longest=longest,
            concurrency=wanted.concurrency,
            itl_goal_s=goals.get("itl"),
            ttft_goal_s=goals.get("ttft"),
            prices=prices,
            speculation=values.draft(wanted.draft) if wanted.draft else None,
            measured_tokens_per_s=wanted.measured,
        )


def _one_width(stored: StoredAs) -> str | None:
    if None not in (stored.weights, stored.dtype) and stored.weights != stored.dtype:
        raise SettingsError(f"--weights {stored.weights} and --dtype {stored.dtype} differ")
    return stored.weights or stored.dtype


def _weights(text: str | None, described: Described | None, flag: str) -> Width:
    if text is None:
        return described.usual if described else Width.parse("bf16")
    if text != WeightFormat.NATIVE:
        return Width.parse(text)
    if described is None:
        raise SettingsError(f"{flag} native: there is no checkpoint; with --params name a width")
    return described.own
