"""What a drafter is taught: the target's states and laws on texts, computed as they are needed and never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterFile, DrafterSpec, Join

from ..chunked_loss import CHUNK, Slopes, foreseen
from ..rows import PaddedBatch
from ..teacher import Teacher
from ..token_corpus import TokenCorpus
from . import confidence
from .adversary import Adversary
from .block_forward import BlockForward
from .chimera import ChimeraForward
from .sequential import Sequential
from .shifted import ParallelHeads, Recurrence, own_head
from .standalone_drafter import Alone
from .unroll import Unroll


class Forward(Protocol):
    """A drafter's forward over whole texts while it is trained."""

    def places(self, width: int) -> Any:
        """Where in rows of this width it guesses; None if everywhere."""

    def __call__(
        self, of: Mapping[str, Tensor], tokens: Tensor, states: Tensor, depth: int, places: Any
    ) -> Iterator[Tensor]:
        """What its head reads [rows, width, dim] at each of so many steps: at t of step s, to guess token t + 2 + s."""


FORWARDS: Mapping[Join, Callable[[DrafterSpec, Tensor], Forward]] = {
    "attend": Unroll,
    "project": Unroll,
    "context": BlockForward,
    "heads": ParallelHeads,
    "recurrent": Recurrence,
    "add": Unroll,
    "cross": Unroll,
    "trigram": ChimeraForward,
    "cells": Sequential,
    "alone": Alone,
}


@dataclass(frozen=True)
class TargetOutputs:
    """Texts with the target's states, and its laws behind tokens (row, place) whose next one is in an answer."""

    tokens: Tensor
    states: Tensor
    last: Tensor  # states behind the last norm at these places
    row: Tensor
    place: Tensor
    laws: Tensor


class Guesses(NamedTuple):
    """What is foreseen at one depth: what a head reads, the head, the laws that it is to give, and from where.

    The law behind place j is what depth s foresees from place j − 1 − s of its row; `which` are those laws in a lesson.
    """

    x: Tensor
    head: Tensor
    laws: Tensor
    row: Tensor
    at: Tensor
    which: Tensor


class Teaching:
    """The target, what a drafter reads of it, and which of its tokens that drafter guesses."""

    def __init__(self, teacher: Teacher, numbers: tuple[int, ...], ids: Tensor | None) -> None:
        self.teacher, self.numbers, self.ids = teacher, numbers, ids

    def lesson(self, batch: PaddedBatch) -> TargetOutputs:
        """A batch as the target reads it."""
        noted = self.teacher.noted(batch.tokens, self.numbers)
        row, place = batch.answers().unbind(1)
        last = noted[self.teacher.frozen.shape.layers][row, place]
        states = torch.cat([noted[number] for number in self.numbers], -1) if self.numbers else last[:0]
        return TargetOutputs(batch.tokens, states, last, row, place, self.teacher.laws(last, self.ids))

    def best(self, lesson: TargetOutputs) -> Tensor:
        """The target's likeliest token behind each of these places."""
        found = [functional.linear(some, self.teacher.head).argmax(1) for some in torch.split(lesson.last, CHUNK)]
        return torch.cat(found) if found else lesson.row


class TrainableDrafter:
    """A drafter that learns: its tensors in float32, and its forward."""

    def __init__(
        self, file: DrafterFile, teacher: Teacher, depth: int, feature: float = 0.0, adversary: Adversary | None = None
    ) -> None:
        self.file, self.depth, self.head = file, depth, teacher.head
        self.feature, self.adversary = feature, adversary
        self.tensors = {
            name: tensor.detach().float().clone().requires_grad_()
            for name, tensor in file.tensors.items()
            if name != "ids"
        }
        self.forward = FORWARDS[file.spec.join](file.spec, teacher.embedding)

    def guesses(self, lesson: TargetOutputs, depth: int) -> Iterator[Guesses]:
        """What it foresees, depth by depth."""
        width = lesson.tokens.shape[1]
        places = self.forward.places(width)
        chosen = torch.ones(width, dtype=torch.bool, device=lesson.place.device)
        if places is not None:
            chosen = torch.zeros_like(chosen).index_fill(0, places, True)
        for s, out in enumerate(self.forward(self.tensors, lesson.tokens, lesson.states, depth, places)):
            at = lesson.place - 1 - s
            which = (at >= 0) & chosen[at.clamp(min=0)]
            if bool(which.all()):
                row, laws, place = lesson.row, lesson.laws, lesson.place
            else:
                row, at, laws, place = lesson.row[which], at[which], lesson.laws[which], lesson.place[which]
            x, head = out[row, at], self.head_of(s)
            if (
                "markov.w1" in self.tensors
            ):  # a token's row of w1, read by w2, is added to what the head says of the next
                x = torch.cat([x, self.tensors["markov.w1"].to(x.dtype)[lesson.tokens[row, place]]], -1)
                head = torch.cat([head, self.tensors["markov.w2"].to(head.dtype)], 1)
            if "selector.before" in self.tensors:  # the same, as far as the place's own state lets it
                word = self.tensors["selector.before"].to(x.dtype)[lesson.tokens[row, place]]
                here = functional.linear(x, self.tensors["selector.state.weight"].to(x.dtype))
                after, ids = self.tensors["selector.after"].to(head.dtype), self.file.tensors.get("ids")
                x, head = torch.cat([x, word * here], -1), torch.cat([head, after if ids is None else after[ids]], 1)
            yield Guesses(x, head, laws, row, at, which)

    def head_of(self, depth: int) -> Tensor:
        """What reads its outputs of a depth: a matrix of its own, or the target's."""
        own = own_head(self.tensors, depth)
        return self.head if own is None else own.to(self.head.dtype)

    def learn(self, lesson: TargetOutputs, decay: float, rule: Slopes) -> list[float]:
        """Add the slopes of Σ_s decay^s · (mean distance of depth s from the target's laws); return these distances.

        With `feature` the distance of what the head reads from what it reads of the target (Huber's) is added.
        """
        loss, found = self.head.new_zeros((), dtype=torch.float32), list[Tensor]()
        taught = 1 if self.file.spec.join == "alone" else self.depth  # to whom all depths are one
        for s, guess in enumerate(self.guesses(lesson, taught)):
            weight = torch.full((len(guess.x),), 1 / max(len(guess.x), 1), device=guess.x.device)
            own = foreseen(guess.x, guess.head, guess.laws, weight, rule)
            loss = loss + decay**s * own
            found.append(own.detach())
            if self.feature and len(guess.x):
                wanted = lesson.last[guess.which]
                loss = loss + decay**s * self.feature * functional.smooth_l1_loss(guess.x.float(), wanted.float())
            if self.adversary is not None and len(guess.x):
                loss = loss + decay**s * self.adversary.surprise(guess.x, guess.head, guess.laws)
            if confidence.has_one(self.tensors) and len(guess.x):
                loss = loss + confidence.surprise(self.tensors, guess.x, guess.head, guess.laws)
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.stack(found).tolist()

    def trained(self) -> DrafterFile:
        """The drafter as it is now."""
        ids = {name: tensor for name, tensor in self.file.tensors.items() if name == "ids"}
        return DrafterFile(self.file.spec, {n: t.detach() for n, t in self.tensors.items()} | ids, self.file.source)


def draft_vocabulary(corpus: TokenCorpus, among: NDArray[np.int64], count: int, vocab: int) -> Tensor | None:
    """The `count` tokens that answers use most, by their numbers; None where that would be all of them."""
    if not 0 < count < vocab:
        return None
    answers = [corpus.tokens[corpus.starts[i] + corpus.prompts[i] : corpus.starts[i + 1]] for i in among]
    seen = np.bincount(np.concatenate(answers), minlength=vocab)
    return torch.from_numpy(np.sort(np.argsort(-seen, kind="stable")[:count]))
