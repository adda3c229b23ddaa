"""The causal contract with no cache at all: every question is answered by reading whole texts from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ...core.asks import Scores
from ...core.errors import BadRequest, OutOfRoom
from ...core.law import Law
from ..engine.contracts import Reader, ScoreRequest, hidden_of, layer_of, named
from ..network.network import NetworkOutputs
from .table_model import TableSession

Text = tuple[int, ...]
_TOGETHER = 16  # texts of one length in one forward: a bound on memory, not on what can be asked


class FullTextModel(Reader, Protocol):
    """A model that reads whole texts."""

    def read(self, texts: Tensor, at: Tensor, want: tuple[int, ...]) -> NetworkOutputs:
        """Read texts of one length, int64 [b, n]; the outputs after the tokens `at` of each, the first text's first."""


class UncachedModel:
    """A causal model without memory: right for any network, whatever state it keeps, and slow.

    A score costs one reading per maximal path of the tree, all its prefixes included; paths of one length are read
    together, without padding. `note` says why the model is run this way.
    """

    room = None

    def __init__(self, reader: FullTextModel, note: str = "") -> None:
        self.reader, self.note = reader, note
        self.vocab, self.context = reader.vocab, reader.context

    def open(self, text: Sequence[int], owner: str = "") -> TableSession:
        if not text:
            raise BadRequest("a text needs at least one token to go on from")
        return TableSession([tuple(text)])

    def forget(self) -> None:
        """Nothing is cached."""

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        layers = named(frozenset(ask.want for ask in asked))
        needed = [_needed(ask) for ask in asked]
        wholes = [maximal(texts) for texts in needed]
        answers = self._read(wholes, layers)
        return [
            _scores(ask, [answers[text] for text in texts], sum(map(len, whole)))
            for ask, texts, whole in zip(asked, needed, wholes, strict=True)
        ]

    def _read(self, wholes: Sequence[Mapping[Text, list[int]]], layers: tuple[int, ...]) -> dict[Text, _Answer]:
        ends: dict[Text, set[int]] = {}  # what several sessions need of one text is read once
        for part in wholes:
            for whole, lengths in part.items():
                ends.setdefault(whole, set()).update(lengths)
        self._refuse_overlong(max(map(len, ends), default=0))
        answers: dict[Text, _Answer] = {}
        for length in sorted({len(whole) for whole in ends}):
            same = [whole for whole in ends if len(whole) == length]
            for start in range(0, len(same), _TOGETHER):
                self._read_together(same[start : start + _TOGETHER], ends, layers, answers)
        return answers

    def _read_together(
        self, wholes: list[Text], ends: Mapping[Text, set[int]], layers: tuple[int, ...], answers: dict[Text, _Answer]
    ) -> None:
        lengths = sorted({length for whole in wholes for length in ends[whole]})
        logits, hidden = self.reader.read(torch.tensor(wholes), torch.tensor(lengths) - 1, layers)
        for i, whole in enumerate(wholes):
            for j, length in enumerate(lengths):
                if length in ends[whole]:
                    row = i * len(lengths) + j
                    states = {layer: rows[row] for layer, rows in hidden.items()}
                    answers[whole[:length]] = _Answer(Law(logits[row]), states)

    def _refuse_overlong(self, longest: int) -> None:
        if self.context is not None and longest > self.context:
            raise OutOfRoom(f"a text of {longest} tokens is longer than the {self.context} that this model reads")


class _Answer(NamedTuple):
    law: Law
    hidden: Mapping[int, Tensor]


def maximal(texts: Sequence[Text]) -> dict[Text, list[int]]:
    """The texts that no other one continues, each with the lengths of those among its prefixes (and itself)."""
    found: dict[Text, list[int]] = {}
    whole: Text = ()
    # Sorted, a text stands right before those that continue it, so backwards each meets the longest first.
    for text in sorted(set(texts), reverse=True):
        if whole[: len(text)] != text:
            whole = text
        found.setdefault(whole, []).append(len(text))
    return found


def _needed(ask: ScoreRequest) -> list[Text]:
    """The texts whose laws are wanted: one per node, then one per leaf."""
    session = ask.session
    assert isinstance(session, TableSession)
    return [*(session.text(ask.tree, node) for node in range(len(ask.tree))), *session.leaves]


def _scores(ask: ScoreRequest, found: Sequence[_Answer], rows: int) -> Scores:
    laws = [answer.law for answer in found]
    hidden = {name: torch.stack([answer.hidden[layer_of(name)] for answer in found]) for name in hidden_of(ask.want)}
    return Scores(laws[: len(ask.tree)], laws[len(ask.tree) :], hidden, rows=rows)
