"""The logits processors of transformers as a warp: each tree node, beam and batch row is processed as if alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.errors import BadRequest
from ...core.law import Law
from ...core.warp.warp import Warp

# These remember, from one call to the next, a text that only grows; the nodes of a tree are no such text.
STATEFUL = ("UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor")
# These keep the prompts of the whole batch, by row.
BATCHED = ("EncoderNoRepeatNGramLogitsProcessor", "EncoderRepetitionPenaltyLogitsProcessor")


@dataclass(frozen=True)
class Processed(Warp):
    """Scores go through `processors`, called with the row so far, [1, n], and its scores, [1, vocabulary].

    `padding` is what stands before the prompt in a padded batch: transformers shows it to processors, so it is shown
    here. Cost: one call of the list per law that somebody looks at.
    """

    processors: Any
    padding: tuple[int, ...] = ()

    def start(self, text: Sequence[int]) -> tuple[int, ...]:
        return (*self.padding, *text)

    def step(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return (*state, token)

    def __call__(self, state: tuple[int, ...], law: Law) -> Law:
        """The law of the processed scores, in float32 as `generate` gives them."""
        scores = law.scores.to(torch.float32, copy=True)[None]  # a copy: processors may write into it
        row = torch.tensor([state], device=scores.device)
        return Law(self.processors(row, scores)[0])


def for_row(processors: Any, row: int, rows: int) -> list[Any]:
    """The processors for one row of a batch; BadRequest for one that cannot be called row by row or out of order."""
    return [_for_row(processor, row, rows) for processor in processors]


def _for_row(processor: Any, row: int, rows: int) -> Any:
    name = type(processor).__name__
    if name in STATEFUL:
        raise BadRequest(
            f"{name} remembers the text from call to call, and drafted tokens are no such text. Leave it out "
            "(guidance_scale, watermarking_config), or call generate without custom_generate."
        )
    if name in BATCHED and rows > 1:
        raise BadRequest(f"{name} keeps all prompts of a batch; give one prompt at a time, or leave it out.")
    if name == "PrefixConstrainedLogitsProcessor":  # it counts rows to know which one it is asked about
        allowed = processor._prefix_allowed_tokens_fn
        return type(processor)(lambda _, tokens: allowed(row, tokens), 1)
    return processor
