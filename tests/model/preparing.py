"""Prepares a model for the torch path, as the tests of checkpoints and of the cache need it."""

from __future__ import annotations

from collections.abc import Callable

from core.formats import WeightFormat
from core.settings import ModelSettings
from engine.prepare.prepare import PreparedModel, prepare
from engine.prepare.rows import RowPacker


def prepare_rows(
    settings: ModelSettings, progress: Callable[[str], None] = lambda _: None
) -> PreparedModel:
    return prepare(settings, RowPacker(settings.weights or WeightFormat.FP32), progress)
