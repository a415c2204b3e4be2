"""The bytes and FLOPs that steps have to move, by component: counted in `costmodel/sums.py`.

Activations and logits are left out: a perfect implementation need not move them, so that what is
counted is a true lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.split import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What each of some steps moves, as columns; what is a slice's own is kept by slice too.

    A block that several slices read is moved once, and its read split evenly among them.
    """

    tokens: Ints  # that ran
    weights_bytes: Ints
    lm_head_bytes: Ints
    embedding_bytes: Ints
    kv_read_bytes: Ints
    kv_read_bytes_by_slice: Ints
    kv_write_bytes: Ints
    linear_flops: Ints
    attention_flops: Ints
    lm_head_flops: Ints

    @property
    def bytes_read(self) -> Ints:
        return self.weights_bytes + self.lm_head_bytes + self.embedding_bytes + self.kv_read_bytes

    @property
    def bytes_total(self) -> Ints:
        return self.bytes_read + self.kv_write_bytes

    @property
    def flops(self) -> Ints:
        return self.linear_flops + self.attention_flops + self.lm_head_flops
