"""Says how likely the model found tokens: log-softmax of raw logits. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from core.request import RequestId
from core.wire import TokenLogprobs

LEAST: Final = -9999.0  # what OpenAI documents for a token out of reach; JSON has no infinity


@dataclass(frozen=True, slots=True)
class Ask:
    """One row whose logprobs are asked for."""

    row: int  # of the logits
    id: RequestId
    position: int  # of the token, in the request
    token: int
    top: int  # how many of the likeliest tokens to show beside it


def logprobs(logits: torch.Tensor, asks: Sequence[Ask]) -> tuple[TokenLogprobs, ...]:
    """Read the asked rows of raw logits [R, V]; each of them must be finite.

    Cost: a copy of the asked rows, and a partial sort where one shows the likeliest tokens.
    """
    if not asks:
        return ()
    values = logits[[ask.row for ask in asks]].log_softmax(dim=-1).clamp_(min=LEAST)  # [A, V]
    tokens = torch.tensor([ask.token for ask in asks])[:, None]
    chosen = values.gather(1, tokens).squeeze(1).tolist()
    width = min(max(ask.top for ask in asks), values.shape[1])
    best, ids = (side.tolist() for side in values.topk(width, dim=-1))  # [A, width]
    return tuple(
        TokenLogprobs(
            ask.id,
            ask.position,
            ask.token,
            chosen[at],
            tuple(zip(ids[at][: ask.top], best[at][: ask.top], strict=True)),
        )
        for at, ask in enumerate(asks)
    )
