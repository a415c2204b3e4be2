"""The page that explains bills explains each field of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from telemetry.bill.cost import CostObject

PAGE = Path(__file__).parents[3] / "docs/cost-model.md"


def test_each_field_of_the_cost_object_is_explained_once() -> None:
    section = PAGE.read_text("utf-8").split("## The `cost` object")[1].split("\n## ")[0]
    named = [
        name
        for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    ]
    assert sorted(named) == sorted(field.name for field in fields(CostObject))
