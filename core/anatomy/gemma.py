"""What Gemma 3n and Gemma 4 have beyond a plain decoder: tables by layer, shared stores.

Source: transformers' Gemma3nTextModel and Gemma4TextModel.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.anatomy.fields import MOST_HEADS, MOST_LAYERS, MOST_WIDTH, MOST_WORDS, Fields
from core.anatomy.layers import HeadShape, Tensors, matrix, vector
from core.anatomy.shape import FULL, DecoderShape, Mixture
from core.model import TensorRole, TensorSpec


def stores_of(fields: Fields, shape: DecoderShape) -> Sequence[int]:
    """Say of each layer whose store it reads: the last ones may read an earlier one of their kind.

    Raises:
        ModelError: no layer is left that could have written it.
    """
    shared = fields.count("num_kv_shared_layers", most=MOST_LAYERS, least=0, default=0)
    first = shape.layers - shared
    own = list(shape.kinds[: max(first, 0)])
    if set(shape.kinds) - set(own):
        raise fields.wrong(
            "num_kv_shared_layers", f"fewer than the layers of each kind, of {shape.layers}"
        )
    last = {kind: max(i for i, other in enumerate(own) if other == kind) for kind in set(own)}
    return [layer if layer < first else last[kind] for layer, kind in enumerate(shape.kinds)]


def heads_of(fields: Fields, shape: DecoderShape, layer: int) -> HeadShape:
    """Give a layer's key-value heads and their width; Gemma 4's full layers have their own.

    A file that transformers 5.24 wrote has them by layer.
    """
    plain = HeadShape(shape.kv_heads, shape.head_dim)
    if by_layer := fields.part("per_layer_config"):
        own = by_layer.part(str(layer).zfill(len(str(shape.layers - 1))))
        if own is None:
            return plain
        return HeadShape(
            own.count("num_key_value_heads", most=MOST_HEADS, default=plain.kv_heads),
            own.count("head_dim", most=MOST_WIDTH, default=plain.dim),
        )
    if shape.kinds[layer] != FULL:
        return plain
    dim = fields.count("global_head_dim", most=MOST_WIDTH, default=512)
    kv_heads = shape.kv_heads
    if fields.flag("attention_k_eq_v"):
        kv_heads = fields.count(
            "num_global_key_value_heads", most=MOST_HEADS, default=shape.kv_heads
        )
    return HeadShape(kv_heads, dim)


def table_tensors(fields: Fields, shape: DecoderShape) -> Tensors:
    """Yield the table that each layer looks a row of its token up in, and its projection."""
    width = fields.count("hidden_size_per_layer_input", most=MOST_WIDTH, least=0, default=256)
    if not width:
        return
    words = fields.count("vocab_size_per_layer_input", most=MOST_WORDS, default=shape.vocab)
    columns = shape.layers * width
    yield TensorSpec("layer_tables", words, columns, TensorRole.TABLE)
    yield from matrix("layer_inputs_proj", columns, shape.hidden)
    yield vector("layer_inputs_norm", width)
    for layer in range(shape.layers):
        prefix = f"layers.{layer}."
        yield from matrix(f"{prefix}input_gate", width, shape.hidden)
        yield from matrix(f"{prefix}input_proj", shape.hidden, width)
        yield vector(f"{prefix}layer_input_norm", shape.hidden)


def altup_tensors(fields: Fields, shape: DecoderShape) -> Tensors:
    """Yield Gemma 3n's alternating updates and its low-rank residuals."""
    streams = fields.count("altup_num_inputs", most=100, default=4)
    rank, hidden = fields.count("laurel_rank", most=MOST_WIDTH, default=64), shape.hidden
    for other in range(1, streams):
        yield from matrix(f"altup_in.{other}", hidden, hidden)
        yield from matrix(f"altup_out.{other}", hidden, hidden)
    for layer in range(shape.layers):
        prefix = f"layers.{layer}."
        yield from matrix(f"{prefix}laurel_left", rank, hidden)
        yield from matrix(f"{prefix}laurel_right", hidden, rank)
        yield vector(f"{prefix}laurel_norm", hidden)
        yield vector(f"{prefix}altup_scale", hidden)
        yield from matrix(f"{prefix}altup_correct", streams, streams)
        yield from matrix(f"{prefix}altup_predict", streams**2, streams)
        yield from matrix(f"{prefix}altup_router", streams, hidden)
        yield vector(f"{prefix}altup_norm", hidden)


def mixture_tensors(prefix: str, shape: DecoderShape, mixture: Mixture) -> Tensors:
    """Yield what Gemma 4 has around the experts that stand beside the dense MLP."""
    yield vector(f"{prefix}router.scale", shape.hidden)
    yield vector(f"{prefix}router.expert_scale", mixture.count)
    for place in ("post_mlp_norm_1", "post_mlp_norm_2", "pre_mlp_norm_2"):
        yield vector(f"{prefix}{place}", shape.hidden)
