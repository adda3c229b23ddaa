"""Decoders of other kinds than the library's, to see that the engine serves any generator that asks."""

from dataclasses import dataclass

import torch

from unspool.core.asks import Done, Emit, Keep, Score
from unspool.core.chance import At, Role
from unspool.core.law import Law
from unspool.core.tree import NOTHING


@dataclass(frozen=True)
class Beam:
    """The `width` most probable prefixes, extended together: several leaves kept at once."""

    width: int
    length: int

    def __call__(self, text, chance, warp, stop):
        leaves = [(0.0, ())]
        for _ in range(self.length):
            scores = yield Score()
            found = [
                (total + law.logprob(x), (*new, x), r)
                for r, ((total, new), law) in enumerate(zip(leaves, scores.leaf, strict=True))
                for x in law.top(self.width)
                if law[x] > 0
            ]
            best = sorted(found, key=lambda c: -c[0])[: self.width]
            yield Keep(NOTHING, tuple(~r for *_, r in best), tuple(new[-1] for _, new, _ in best))
            leaves = [(total, new) for total, new, _ in best]
        yield Emit(leaves[0][1], [scores.leaf[0]] * self.length, [scores.leaf[0]] * self.length)
        return Done(leaves[0][1], "length")


@dataclass(frozen=True)
class Particles:
    """Sequential Monte Carlo with a potential that likes token 1: leaves are copied and dropped at random."""

    count: int
    length: int

    def __call__(self, text, chance, warp, stop):
        texts = [()] * self.count
        yield Keep(NOTHING, (~0,) * self.count, (None,) * self.count)
        for step in range(self.length):
            scores = yield Score()
            new = [
                (*t, law.draw(chance, At(len(text) + step, Role.PICK, i)).token)
                for i, (t, law) in enumerate(zip(texts, scores.leaf, strict=True))
            ]
            yield Keep(NOTHING, tuple(~i for i in range(self.count)), tuple(t[-1] for t in new))
            weights = Law(torch.tensor([1.0 if t[-1] == 1 else 0.0 for t in new], dtype=torch.float64))
            picks = [weights.draw(chance, At(step, Role.ORDER, i)).token for i in range(self.count)]
            yield Keep(NOTHING, tuple(~i for i in picks), (None,) * self.count)
            texts = [new[i] for i in picks]
        yield Emit(texts[0], [scores.leaf[0]] * self.length, [scores.leaf[0]] * self.length)
        return Done(texts[0], "length")
