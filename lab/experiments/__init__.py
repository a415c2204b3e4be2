"""The experiments, by number: each predicts first, then measures, then reads the gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lab.experiments.base import Experiment
from lab.experiments.batch import Batch
from lab.experiments.batching import BatchingModes
from lab.experiments.context import Context
from lab.experiments.kv_cache import KVCache
from lab.experiments.prefill import Prefill
from lab.experiments.reference import Reference
from lab.experiments.saturation import Saturation
from lab.experiments.widths import Widths

EXPERIMENTS: Final[Sequence[type[Experiment]]] = (
    Reference,
    KVCache,
    BatchingModes,
    Batch,
    Context,
    Widths,
    Prefill,
    Saturation,
)
