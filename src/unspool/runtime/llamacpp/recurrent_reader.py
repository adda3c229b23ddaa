"""Models that carry a state from token to token: a sequence can be copied and continued, but never cut."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from ...core.errors import BadRequest, OutOfRoom
from ..engine.contracts import LAST
from ..network.network import NetworkOutputs
from .llama_context import ContextRow, LlamaContext

STATES = 8  # texts whose states are kept, one for each sequence


class RecurrentReader:
    """Reads whole texts, each from the longest beginning whose state is still there.

    A text is read up to the first place that is asked about into one sequence, and from there on into a copy of it.
    So the next text, which goes on from that place after some drafts were rejected, finds the state that it needs.

    Cost: a rejected draft makes the accepted tokens be read a second time; states that are no longer kept, the text.
    """

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self.vocab, self.context = context.vocab, min(context.longest, context.room)
        self._texts: OrderedDict[int, list[int]] = OrderedDict((number, []) for number in range(context.sequences))

    def read(self, texts: Tensor, at: Tensor, want: tuple[int, ...]) -> NetworkOutputs:
        """Read texts of one length; the outputs after the tokens `at` of each, the first text's first."""
        if set(want) - {LAST}:
            raise BadRequest(f"llama.cpp's runtime gives hidden:{LAST} alone. Use another runtime for other layers.")
        rows, places = texts.shape[0] * len(at), at.tolist()
        logits = torch.empty(rows, self.vocab)
        states = torch.empty(rows, self._context.width) if want else None
        for number, text in enumerate(texts.tolist()):
            outputs = {place: number * len(places) + i for i, place in enumerate(places)}
            try:
                self._read(text, outputs, logits, states)
            except OutOfRoom:  # what is kept for later gives way, and the text is read from its start
                for other in self._texts:
                    self._drop(other)
                self._read(text, outputs, logits, states)
        return NetworkOutputs(logits, {} if states is None else {LAST: states})

    def _read(self, text: list[int], outputs: dict[int, int], logits: Tensor, states: Tensor | None) -> None:
        first = min(outputs) + 1
        source = max(self._texts, key=lambda number: self._common(number, text, first - 1))
        at = self._common(source, text, first - 1)
        source = self._extended(source, text, at, first, outputs, logits, states)
        self._extended(source, text, first, len(text), outputs, logits, states)

    def _common(self, number: int, text: list[int], most: int) -> int:
        """How many tokens of a text a sequence has read, if it has read nothing else; 0 if it has."""
        known = self._texts[number]
        return len(known) if len(known) <= most and known == text[: len(known)] else 0

    def _extended(
        self,
        source: int,
        text: list[int],
        start: int,
        end: int,
        outputs: dict[int, int],
        logits: Tensor,
        states: Tensor | None,
    ) -> int:
        """A sequence that has read the text up to `end`, made of one that has read it up to `start`."""
        if start == end:
            return source
        self._texts.move_to_end(source)
        target = next(iter(self._texts))  # the one that was used longest ago
        self._drop(target)
        if start:
            self._context.copy(source, target, -1)
        rows = [ContextRow(text[i], i, (target,), outputs.get(i, -1)) for i in range(start, end)]
        try:
            self._context.compute(rows, logits, states)
        except BaseException:
            self._drop(target)
            raise
        self._texts[target] = text[:end]
        self._texts.move_to_end(target)
        return target

    def _drop(self, number: int) -> None:
        self._context.cut(number, 0)
        self._texts[number] = []
