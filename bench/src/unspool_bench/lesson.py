"""The lesson: how the pupil learns the list tasks, from drawn questions with drawn answers and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from unspool.core.asks import Look
from unspool.core.canvas import Canvas
from unspool.runtime.engine.contracts import Infill, LookRequest

from .pupil import MASK, PupilNetwork, stacked
from .tasks import TASKS, Task, answers, oracle

SIZES = range(3, 9)  # items of a question


@dataclass(frozen=True)
class Lesson:
    """Fill the holes of answers with a uniform number of holes: the loss of an any-order model.

    E over the number m of holes, which ones, and the answer, of the mean −ln p(yᵢ | x, what stands) over the holes.
    """

    steps: int = 6000
    batch: int = 96
    rate: float = 3e-3
    warm: int = 100
    seed: int = 0

    def begin(self) -> PupilNetwork:
        """A network that knows nothing yet; the seed decides its weights."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return PupilNetwork()

    def __call__(self, network: PupilNetwork) -> Iterator[float]:
        """Teach a network, and tell the loss of every step; it may be left at any of them."""
        random = Random(self.seed)
        learner = torch.optim.AdamW(network.parameters(), self.rate, betas=(0.9, 0.98), weight_decay=0.01)
        for step in range(self.steps):
            for group in learner.param_groups:
                group["lr"] = self.rate * self._share(step)
            loss = self._loss(network, random)
            learner.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            learner.step()
            yield float(loss.detach())

    def _share(self, step: int) -> float:
        """Of the full rate: a linear start, then half a cosine down to nothing."""
        if step < self.warm:
            return (step + 1) / self.warm
        return 0.5 + 0.5 * math.cos(math.pi * (step - self.warm) / max(1, self.steps - self.warm))

    def _loss(self, network: PupilNetwork, random: Random) -> Tensor:
        texts, prompts, wanted, weights = [], [], [], []
        n = random.choice(SIZES)  # one length for all, so that little is padded
        for prompt, answer in (question(n, random) for _ in range(self.batch)):
            holes = set(random.sample(range(len(answer)), random.randint(1, len(answer))))
            texts.append([*prompt, *(MASK if i in holes else x for i, x in enumerate(answer))])
            prompts.append(len(prompt))
            wanted += [(len(texts) - 1, len(prompt) + i, answer[i]) for i in sorted(holes)]
            weights += [1 / len(holes) / self.batch] * len(holes)
        tokens, places = stacked(texts, prompts)
        text, place, truth = torch.tensor(wanted).T
        each = cross_entropy(network(tokens, places)[text, place], truth, reduction="none")
        return each @ torch.tensor(weights)


def question(n: int, random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt of any task about n items, fewer where the task cannot have so many, and one of its answers."""
    task = random.choice(list(TASKS.values()))
    prompt = task.prompt(min(n, task.most), random)
    return prompt, answers(prompt).draw(random)


def error(model: Infill, task: Task, n: int, random: Random, texts: int = 200) -> float:
    """The model's error: the mean KL(exact ‖ its own law) over the holes of half-filled answers, in nats per hole."""
    looks = []
    for _ in range(texts):
        prompt = task.prompt(n, random)
        answer = answers(prompt).draw(random)
        holes = set(random.sample(range(len(answer)), random.randint(1, len(answer))))
        canvas = Canvas.blank(prompt, len(answer))
        looks.append(Look(canvas.fill({len(prompt) + i: x for i, x in enumerate(answer) if i not in holes})))
    asked = [LookRequest(None, look) for look in looks]
    gaps = []
    for true, own in zip(oracle().look(asked), model.look(asked), strict=True):
        p, q = true.scores.log_softmax(1), own.scores.log_softmax(1)
        gaps.append(float(torch.where(p.isfinite(), p.exp() * (p - q), 0.0).sum(1).mean()))
    return math.fsum(gaps) / len(gaps)
