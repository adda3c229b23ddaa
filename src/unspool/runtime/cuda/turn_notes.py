"""What the turns of plain decoding note beside their tokens, and what the host has to say of a turn before the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ...kernels.amend import RANKED, amend, rank
from ...kernels.report import report
from .staging_buffer import ReadBack, StagingBuffer


class TurnNotes:
    """Buffers of so many rows for `turns` turns, made when somebody first asks for what they hold.

    Reports: log-probabilities of the picked token and of some best. Ranks: the best tokens by their scores, which the
    host reads while the next turn runs; where it finds that another than the first had to be taken, the row goes back.
    """

    def __init__(self, turns: int, rows: int, vocab: int, device: torch.device) -> None:
        self._turns, self._rows, self._vocab, self._device = turns, rows, vocab, device
        self._reports: dict[int, tuple[Tensor, Tensor]] = {}  # by how many best tokens: log-probabilities, and ids
        self._ranks = torch.empty(0)  # [turns, rows, 1 + k]
        self._amends: StagingBuffer | None = None
        self._read: ReadBack | None = None

    def make(self, reports: int, ranks: bool) -> None:
        """Make what these steps need."""
        rows, whole, device = self._rows, torch.int32, self._device
        if reports and reports not in self._reports:
            k = min(reports, self._vocab)
            logprobs = torch.zeros(rows, self._turns, 2 + k, dtype=torch.float32, device=device)
            self._reports[reports] = logprobs, torch.zeros(rows, self._turns, k, dtype=whole, device=device)
        if ranks and self._amends is None:
            wide = 1 + min(RANKED, self._vocab)
            self._ranks = torch.zeros(self._turns, rows, wide, dtype=whole, device=device)
            self._amends = StagingBuffer({"back": (whole, (rows,)), "given": (whole, (rows,))}, device)
            self._read = ReadBack((rows, wide), device)

    # ---- inside a step

    def report(self, best: int, logits: Tensor, on: Mapping[str, Tensor], picked: Tensor, logprobs: Tensor) -> None:
        """Note what this turn's law says of its token and of the best."""
        report(logits, on["temperature"], on["count"], picked, logprobs, on["turn"], *self._reports[best])

    def rank(self, scores: Tensor, picked: Tensor, logprobs: Tensor, turn: Tensor) -> None:
        """Note the best tokens of this turn."""
        rank(scores, picked, logprobs, turn, self._ranks)

    def apply(self, on: Mapping[str, Tensor], lines: Tensor | None, texts: Tensor | None) -> None:
        """Let rows that were told to go back do so; and their texts, where warps look back at them."""
        assert self._amends is not None
        told = self._amends.on
        amend(told["back"], told["given"], on["tokens"], on["places"], on["past"], lines, texts)

    # ---- between steps

    def amend(self, back: Sequence[int], tokens: Sequence[int]) -> None:
        """Have rows go on from these tokens in the next turn, so many places less one before it; 0 for as they are."""
        assert self._amends is not None
        self._amends.wait()
        self._amends.put("back", back)
        self._amends.put("given", tokens)
        self._amends.send()

    def send(self, turn: int) -> None:
        """Have the ranks of a turn on their way to the host."""
        assert self._read is not None
        self._read.send(self._ranks[turn])

    def read(self) -> list[list[int]]:
        """Those that were sent last, row by row."""
        assert self._read is not None
        ranks: list[list[int]] = self._read.read()
        return ranks

    def reported(self, best: int, rows: int, turns: int) -> tuple[Tensor, Tensor]:
        """Of every token that each of the first rows has written: log-probabilities as `report` notes them, and ids."""
        logprobs, tokens = self._reports[best]
        return logprobs[:rows, :turns].cpu(), tokens[:rows, :turns].cpu()
