"""Small models that fill canvases, and what a method makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import torch

from unspool.core.asks import GiveWay, Look
from unspool.core.canvas import HOLE, Field
from unspool.core.chance import Every, Philox
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import Same, Temperature
from unspool.rules.decode import Denoise
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

GREEDY, SAME = Temperature(0.0), Same()


def table(vocab: int = 3, seed: int = 3) -> Table:
    """A model whose laws differ after every text."""
    return Table(vocab, lambda text: [1 + (hash((seed, text, x)) % 97) ** 2 for x in range(vocab)])


def told(method, model, prompt=(0,), chance=None, warp=GREEDY, stop=None):
    """What a method writes, how many looks it takes, and the canvases it shows."""
    engine = Engine({"target": model})
    job = engine.submit(method, prompt, chance or Philox(7), warp, stop or Stop(most=64))
    engine.run()
    done = job.result()
    return done.tokens, job.trace.forwards["target"], [emit.canvas for emit in job.emitted if emit.canvas]


def law_of(method, model, prompt=(0,), most=None, warp=SAME) -> Mapping[tuple[int, ...], float]:
    """The exact law of what a method writes."""
    engine = Engine({"target": model})

    def text(chance):
        job = engine.submit(method, prompt, chance, warp, Stop(most=most))
        engine.run()
        return job.result().tokens

    return Every().law(text)


class Scripted:
    """A model that answers its n-th look with the n-th list of (token, probability) per place; then the last."""

    def __init__(self, *looks: Mapping[int, tuple[int, float]], vocab: int = 6, even: float = 0.2) -> None:
        self.vocab, self.looks, self.even = vocab, looks, even
        self.asked: list[Look] = []

    def look(self, asked):
        answers = []
        for ask in asked:
            told = self.looks[min(len(self.asked), len(self.looks) - 1)]
            self.asked.append(ask.look)
            answers.append(Field({i: self._law(*told.get(i, (5, self.even))) for i in ask.look.places}, 1))
        return answers

    def _law(self, token: int, p: float) -> Law:
        rest = (1 - p) / (self.vocab - 1)
        return Law.of([p if x == token else rest for x in range(self.vocab)])


def same(mine: Denoise, base: Denoise, seed: int = 0) -> None:
    """Both write the same from the same random numbers, in as many looks."""
    for prompt in ((0,), (1, 2), (2, 2, 0)):
        model = table(seed=seed)
        ours, theirs = (told(m, model, prompt, Philox(5), Same())[:2] for m in (mine, base))
        assert ours == theirs


class Noise(Table):
    """A model of nothing but noise that reads and fills: nearly all it proposes is wrong, and it is often sure of it.

    The same canvas is answered with the same laws, as a model would.
    """

    def __init__(self, vocab: int, seed: int) -> None:
        super().__init__(vocab, lambda text: self._told(hash((-7, *text))))
        self.seed = seed

    def look(self, asked):
        self.forwards += 1
        return [self._field(ask.look) for ask in asked]

    def _field(self, look: Look) -> Field:
        tokens = look.canvas.tokens
        rows = []
        for n, place in enumerate(look.places):
            hidden = set(look.along[n:]) | {place}
            seen = tuple(HOLE if i in hidden else x for i, x in enumerate(tokens))
            rows.append(self._told(hash((place, *seen))))
        scores = torch.tensor(rows, dtype=torch.float64).log()
        return Field.of(look.places, scores, rows=len(tokens)) if rows else Field({})

    def _told(self, key: int) -> list[float]:
        random = Random(key ^ self.seed)
        sure = random.choice((1.0, 4.0, 12.0))
        return [1e-9 + random.random() ** sure for _ in range(self.vocab)]


def counted(method, most):
    """The method, which fails if it asks or tells more than `most` times: one that never asks a model does not end."""

    def decode(text, chance, warp, stop):
        decoding, reply = method(text, chance, warp, stop), None
        asked = 0
        while asked < 2 * most:  # a look, and what came of it
            try:
                ask = decoding.send(reply)
            except StopIteration as end:
                return end.value
            asked += not isinstance(ask, GiveWay)
            reply = yield ask
        raise AssertionError(f"not at an end after {most} looks")

    return decode
