"""Many drafters on the same texts: the target reads them once, and what it computed stays on the device for all kinds.

Hidden states take count · dim · 2 bytes a token; laws are made anew from the last of them for every step. So a drafter
costs its own forwards alone, and short trainings of every kind fit into minutes. What is trained so has seen few texts
often: its figures compare kinds, they do not say what each can reach.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.models.vocabulary import Vocabulary
from unspool.runtime.network.attention import without_plans

from ..adapt import rate
from ..chunked_loss import LOSSES, Slopes
from ..rows import batches
from ..teacher import Teacher
from ..token_corpus import TokenCorpus
from ..training_network import Frozen
from .acceptance import acceptance
from .beginnings import begun
from .consistency import Consistent
from .drafter_training import learner as learner_of
from .export import DELTA, LLAMA, export, export_model
from .kinds import Asked, DrafterKind
from .target_outputs import TargetOutputs, Teaching, TrainableDrafter, draft_vocabulary

DECAY, LR = 0.8, 1e-3
WARMUP = 20  # steps: there are few


@dataclass(frozen=True)
class TargetReading:
    """A batch as the target has read it: tokens, states by their numbers, and the places whose next one is answered."""

    tokens: Tensor
    noted: dict[int, Tensor]
    row: Tensor
    place: Tensor


class Course:
    """Texts that a target has read, for all kinds; `numbers` are the hidden states that any of them may read."""

    @without_plans()
    def __init__(
        self,
        frozen: Frozen,
        corpus: TokenCorpus,
        numbers: Sequence[int],
        most: int = 16_384,
        count: int = 160,
        known: int = 16_384,
        exam: int = 48,
        seed: int = 0,
    ) -> None:
        device = str(frozen.embedding.device)
        self.frozen, self.corpus, self.teacher, self.device = frozen, corpus, Teacher(frozen), device
        self.among, held = corpus.split(0.01, seed)
        greedy = corpus.greedy[held]
        self.held = {"greedy": held[greedy][:exam], "drawn": held[~greedy][:exam]}
        ids = draft_vocabulary(corpus, self.among, known, frozen.shape.vocab)
        self.ids = None if ids is None else ids.to(device)
        stream = batches(corpus, self.among, np.random.default_rng(seed), 0.5, most, device)
        kept = (*numbers, frozen.shape.layers)
        self.readings: list[TargetReading] = []
        for _ in range(count):
            batch = next(stream)
            noted = self.teacher.noted(batch.tokens, kept)
            self.readings.append(TargetReading(batch.tokens, noted, *batch.answers().unbind(1)))
        self.tokens = sum(reading.tokens.numel() for reading in self.readings)

    def lesson(self, number: int, states: Sequence[int], ids: Tensor | None) -> TargetOutputs:
        """What is taught of a batch, from the states that a drafter reads, for the tokens that it guesses."""
        reading = self.readings[number % len(self.readings)]
        last = reading.noted[self.frozen.shape.layers][reading.row, reading.place]
        side = torch.cat([reading.noted[n] for n in states], -1) if states else last[:0]
        return TargetOutputs(reading.tokens, side, last, reading.row, reading.place, self.teacher.laws(last, ids))

    @without_plans()
    def teach(self, kind: DrafterKind, seconds: float, depth: int, rules: dict[str, Slopes], layers: int = 0) -> Taught:
        """Train a drafter of a kind for so many seconds, and measure its acceptance on texts that were held out.

        A drafter that uses the target's whole head learns the tokens that answers use most, and is measured on all.
        """
        spec = kind.spec(self.frozen.shape, Asked(layers or kind.layers, (), depth, 0))
        file = begun(spec, self.frozen, self.ids if kind.cut else None, 0, layers or kind.layers)
        whole = spec.join == "recurrent" or kind.form == DELTA  # with heads of their own for all tokens
        ids = None if whole else self.ids
        learner = learner_of(kind, file, self.teacher, depth, 0)
        if isinstance(learner, TrainableDrafter) and not kind.cut and ids is not None:
            learner.head = self.teacher.head[ids]
        tensors = list(learner.tensors.values())
        optimiser = torch.optim.AdamW(tensors, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=self.device != "cpu")
        order = np.random.default_rng(1).permutation(len(self.readings))
        steps, began, losses = 0, time.monotonic(), list[float]()
        while (done := (time.monotonic() - began) / seconds) < 1:
            for group in optimiser.param_groups:
                group["lr"] = rate(LR, steps, WARMUP, done)
            lesson = self.lesson(int(order[steps % len(order)]), spec.states, ids)
            losses = learner.learn(lesson, DECAY, rules[kind.loss])
            torch.nn.utils.clip_grad_norm_(tensors, 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            steps += 1
        spent = time.monotonic() - began
        if isinstance(learner, TrainableDrafter):
            learner.head = self.teacher.head
        size = sum(tensor.numel() for tensor in tensors)
        figures: dict[str, Any] = {"parameters": size, "seconds": round(spent, 1), "steps": steps, "loss": losses}
        taught = Taught(kind, learner, depth, spec.states, figures)
        figures["held_out"] = {
            sort: self.measured(taught, self.corpus, [int(n) for n in documents])
            for sort, documents in self.held.items()
        }
        return taught

    @without_plans()
    def measured(self, taught: Taught, corpus: TokenCorpus, documents: Sequence[int]) -> dict[str, Any]:
        """What a drafter would have accepted of these documents, by the trainer's own forward."""
        asked = Teaching(self.teacher, taught.states, self.ids if taught.kind.cut else None), corpus, list(documents)
        learner = taught.learner
        told = acceptance(learner, *asked) if isinstance(learner, TrainableDrafter) else learner.measure(*asked)
        return told.record()

    def write(self, taught: Taught, folder: Path, base: str, vocabulary: Vocabulary) -> Path:
        """The drafter as a folder, or the file of a change of the target."""
        folder.mkdir(parents=True, exist_ok=True)
        learner = taught.learner
        if isinstance(learner, Consistent):
            learner.write(folder, base)
            return folder / "delta.safetensors"
        if taught.kind.form == LLAMA:
            return export_model(folder, learner.trained(), self.frozen, vocabulary)
        return export(folder, taught.kind.form, learner.trained(), self.frozen.shape, base, taught.depth)


@dataclass(frozen=True)
class Taught:
    """A drafter at the end of a course: what learned, how deep, from which states, and its figures."""

    kind: DrafterKind
    learner: TrainableDrafter | Consistent
    depth: int
    states: tuple[int, ...]
    figures: dict[str, Any]


def compiled(course: Course) -> dict[str, Slopes]:
    """The losses, compiled where that works: they read and write as much as the matrices compute."""
    rules = dict(LOSSES)
    if course.device == "cpu":
        return rules
    made = {name: torch.compile(rule, dynamic=True) for name, rule in LOSSES.items() if name != "tvd"}
    lesson = course.lesson(0, (), course.ids)
    for name, rule in made.items():
        try:
            for some in (256, 300):
                logits = torch.zeros(some, lesson.laws.shape[1], device=course.device, dtype=lesson.laws.dtype)
                rule(logits, lesson.laws[:some], torch.ones(some, device=course.device))
            rules[name] = rule
        except Exception:  # the compiler raises what it likes
            rules[name] = LOSSES[name]
    return rules
