"""The rows of a batch as they are written: cut by stopping criteria, shown to a streamer column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...core.law import NEVER, Law
from ...core.warp.warp import Warp
from ...runtime.engine.engine import Engine
from ...runtime.engine.job import ENDED, Job
from .generate_call import GenerateCall, Prompt


@dataclass
class GenerationRow:
    """One row: its tokens so far, the model's own laws if anybody looks, and the length at which it is to end."""

    job: Job
    prompt: Prompt
    shaped: Warp
    looks: bool
    tokens: list[int] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    end: int | None = None

    def read(self, criteria: Sequence[Any]) -> None:
        """Take what was emitted; the row ends with the first token after which some criterion holds."""
        while self.job.emitted:
            emit = self.job.emitted.popleft()
            for i, token in enumerate(emit.tokens):
                self.tokens.append(token)
                if self.looks:
                    self.laws.append(emit.before[i])
                if self.end is None and any(self._meets(rule) for rule in criteria):
                    self.end = len(self.tokens)
        if self.job.state == ENDED:
            self.job.result()  # raises what went wrong
            self.end = len(self.tokens) if self.end is None else self.end

    def _meets(self, rule: Any) -> bool:
        row = torch.tensor([[*self.prompt.padding, *self.prompt.tokens, *self.tokens]])
        return bool(torch.as_tensor(rule(row, None)).all())

    def raw(self, place: int) -> Tensor:
        """The model's own scores of the token at a place."""
        return self.laws[place].scores

    def processed(self, place: int) -> Tensor:
        """The scores of the token at a place after all processors."""
        state = self.shaped.start((*self.prompt.tokens, *self.tokens[:place]))
        return self.shaped(state, self.laws[place]).scores


@dataclass
class GenerationRows:
    """All rows of a call, until the last has ended; those that ended before wait behind padding, if there is any."""

    call: GenerateCall
    engine: Engine
    rows: list[GenerationRow]
    streamer: Any
    shown: int = 0

    def run(self) -> None:
        """Write them, and cut them where they end."""
        try:
            more = True
            while more and not self._over:
                more = self.engine.step()
                for row in self.rows:
                    if row.end is None or self.call.pad is None:
                        row.read(self.call.criteria)
                    if row.end is not None and self.call.pad is not None:
                        self.engine.cancel(row.job)
                        del row.tokens[row.end :]
                self._stream()
        finally:
            for row in self.rows:
                self.engine.cancel(row.job)
        for row in self.rows:
            del row.tokens[self.length :]
        if self.streamer is not None:
            self.streamer.end()

    @property
    def length(self) -> int:
        """How long the longest row is; right once all have an end."""
        return max(row.end or 0 for row in self.rows)

    @property
    def _ended(self) -> bool:
        return all(row.end is not None for row in self.rows)

    @property
    def _over(self) -> bool:
        """Where nothing pads, rows go on until all have ended, as in transformers."""
        return self._ended and (self.call.pad is not None or min(len(r.tokens) for r in self.rows) >= self.length)

    def _stream(self) -> None:
        """Show every column in which all rows have a token, or padding for those that have ended."""
        if self.streamer is None:
            return
        padded = self.call.pad is not None
        sure = min(math.inf if padded and row.end is not None else len(row.tokens) for row in self.rows)
        columns = int(min(sure, self.length if self._ended else math.inf))
        for column in range(self.shown, columns):
            self.streamer.put(torch.tensor([self._at(row, column) for row in self.rows]))
        self.shown = max(self.shown, columns)

    def _at(self, row: GenerationRow, column: int) -> int:
        return row.tokens[column] if column < len(row.tokens) else self.call.pad or 0

    def sequences(self, given: Tensor) -> Tensor:
        """The rows as they were given with what was written, [rows, tokens]."""
        new = [[self._at(row, column) for column in range(self.length)] for row in self.rows]
        return torch.cat((given, torch.tensor(new, device=given.device, dtype=given.dtype)), 1)

    def columns(self, of: Callable[[GenerationRow, int], Tensor]) -> tuple[Tensor, ...]:
        """Scores as transformers gives them: one [rows, vocabulary] per new token; padding is certain of itself."""
        found: list[Tensor] = []
        for column in range(self.length):
            here = [of(row, column) if column < len(row.tokens) else None for row in self.rows]
            like = next(scores for scores in here if scores is not None)
            padding = torch.full_like(like, NEVER).index_fill(
                0, torch.tensor(self.call.pad or 0, device=like.device), 0.0
            )
            found.append(torch.stack([padding if scores is None else scores.float() for scores in here]))
        return tuple(found)
