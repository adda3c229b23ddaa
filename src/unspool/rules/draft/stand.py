"""Stochastic n-gram drafting: draw trees without replacement from laws that the target showed after these n-grams."""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from ...core.asks import Scores, Tops
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.law import NEVER, Drawn, Law
from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Memory, Proposing, Source
from ...loops.speculate import Speculate
from ..verify.rejection import rejection


class Few(Law):
    """The law proportional to a few positive weights; every other token is impossible.

    Cost: of the few tokens, not of the vocabulary. `like` tells the vocabulary and device, where they are known.
    """

    def __init__(self, weights: Mapping[int, float], like: Law | None = None) -> None:
        self.weights = {x: weights[x] for x in sorted(weights) if weights[x] > 0}
        self._like, self._total = like, sum(self.weights.values())

    @property
    def scores(self) -> Tensor:
        """Log-weights over the whole vocabulary, made only if somebody insists on seeing them."""
        if self._like is None:
            raise TypeError("this law does not know its vocabulary; use spread(like)")
        return self.spread(self._like).log()

    @property
    def best(self) -> int:
        return max(self.weights, key=self.weights.__getitem__)

    def spread(self, like: Law) -> Tensor:
        p = torch.zeros_like(like.scores)
        p[list(self.weights)] = torch.tensor(list(self.weights.values()), dtype=p.dtype, device=p.device) / self._total
        return p

    def logprob(self, token: int) -> float:
        weight = self.weights.get(token, 0.0)
        return math.log(weight / self._total) if weight > 0 else NEVER

    @cached_property
    def steps(self) -> list[tuple[int, float]]:
        ends = list(accumulate(self.weights.values()))
        return [(x, end / ends[-1]) for x, end in zip(self.weights, ends, strict=True)]

    def invert(self, uniform: float) -> int:
        at = bisect_right(self.steps, uniform, key=lambda step: step[1])
        return self.steps[min(at, len(self.steps) - 1)][0]

    def without(self, *tokens: int) -> Law:
        return Few({x: w for x, w in self.weights.items() if x not in tokens}, self._like)

    def is_empty(self) -> bool:
        return not self.weights

    def __repr__(self) -> str:
        shown = ", ".join(f"{x}: {w / self._total:.3g}" for x, w in self.weights.items())
        return f"Few({{{shown}}})"


@dataclass
class Mean:
    """The running mean of the laws seen after one n-gram, its largest entries only."""

    visits: int = 0
    weights: dict[int, float] = field(default_factory=dict)

    def see(self, law: dict[int, float], width: int) -> None:
        """mean ← k/(k+1)·mean + 1/(k+1)·law on the k-th visit; what is absent counts 0."""
        k = self.visits
        old = self.weights
        mixed = {x: (k * old.get(x, 0.0) + law.get(x, 0.0)) / (k + 1) for x in {*old, *law}} if old else law
        self.weights = dict(sorted(mixed.items(), key=lambda item: (-item[1], item[0]))[:width])
        self.visits = k + 1


class NgramLaws(Memory):
    """Mean laws after n-grams of several lengths; at most `most` n-grams, the least recently renewed out.

    Give one to `Stand` to let the samples of one problem learn from each other; without one, each request has its own.
    """

    def __init__(self, orders: tuple[int, ...] = (4, 3, 2), width: int = 10, most: int = 1 << 18) -> None:
        if not orders or min(orders) < 1 or width < 1 or most < 1:
            raise BadRequest(
                f"Grams(orders={orders}, width={width}, most={most}) cannot be used; expected numbers from 1 on"
            )
        self.orders, self.width, self.most = tuple(sorted(orders, reverse=True)), width, most
        self._means: OrderedDict[tuple[int, ...], Mean] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._means)

    def state(self) -> list[tuple[tuple[int, ...], int, dict[int, float]]]:
        with self._lock:
            return [(gram, mean.visits, mean.weights) for gram, mean in self._means.items()]

    def restore(self, state: list[tuple[tuple[int, ...], int, dict[int, float]]]) -> None:
        kept = state[-self.most :]
        means = {tuple(map(int, gram)): Mean(int(n), {int(x): float(p) for x, p in w.items()}) for gram, n, w in kept}
        with self._lock:
            self._means = OrderedDict(means)

    def after(self, text: Sequence[int]) -> dict[int, float]:
        """The mean law after the longest known n-gram that ends this text; empty if none is known."""
        for n in self.orders:
            mean = self._means.get(tuple(text[-n:])) if len(text) >= n else None
            if mean is not None:
                return mean.weights
        return {}

    def see(self, text: Sequence[int], law: dict[int, float]) -> None:
        """Take note of the law after this text, for all n-grams that end it."""
        with self._lock:
            for n in self.orders:
                if len(text) >= n:
                    gram = tuple(text[-n:])
                    self._means.setdefault(gram, Mean()).see(law, self.width)
                    self._means.move_to_end(gram)
            while len(self._means) > self.most:
                self._means.popitem(last=False)


@claims(
    LAW,
    trials=lambda _: [
        Speculate(Stand((2,), (1,)), rejection, budget=24),
        Speculate(Stand((1, 1), (2, 1)), rejection, budget=24),
    ],
    paper="2506.04708",
    systems=("STAND",),
)
@dataclass(frozen=True)
class Stand(Draft):
    """At level i draw `widths[i]` different tokens below every node from the mean law after its last n-gram.

    The k largest of log q(x) + Gumbel are k draws without replacement, in that order; each carries the law it was drawn
    from. The laws are the target's after all warps where text was accepted, and one-hot where the prompt showed what
    came next. The widths stand in for the paper's tree, which was found offline and is not known to us; nor is the
    paper's rule of verification.

    Claim: LAW under rejection. Cost: no model; warps and a top-k again for the accepted tokens; 10 numbers per n-gram.
    """

    widths: tuple[int, ...] = (3, 2, 1, 1)
    orders: tuple[int, ...] = (4, 3, 2)
    shared: NgramLaws | None = None

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or not self.orders or min(self.orders) < 1:
            shown = ",".join(f"{name}={'+'.join(map(str, getattr(self, name)))}" for name in ("widths", "orders"))
            raise BadRequest(f"stand:{shown} cannot be used; expected numbers from 1 on, as widths=3+2+1,orders=4+3+2")

    @property
    def warm(self) -> int:
        return 0 if self.shared is None else len(self.shared)

    def memory(self, most: int) -> NgramLaws:
        return NgramLaws(self.orders, most=most)

    def sharing(self, memory: NgramLaws) -> Draft:
        return replace(self, shared=memory)

    def begin(self, prefix: Prefix) -> Source:
        grams = NgramLaws(self.orders) if self.shared is None else self.shared
        text, longest = prefix.text, grams.orders[0]
        for i in range(1, len(text)):
            grams.see(text[max(0, i - longest) : i], {text[i]: 1.0})
        return StandSource(self.widths, grams, prefix)


class StandSource(Source):
    """The n-grams of one request, and its text as it was last seen."""

    listens = True

    def __init__(self, widths: tuple[int, ...], grams: NgramLaws, prefix: Prefix) -> None:
        self.widths, self.grams, self.prefix = widths, grams, prefix
        self.like: Law | None = None  # the vocabulary, known once the target has spoken

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        start, longest = len(prefix), self.grams.orders[0]
        drawn: list[Drawn] = []
        parent: list[int] = []
        level = [(ROOT, prefix.text[-longest:])]
        for depth, width in enumerate(self.widths):
            below: list[tuple[int, tuple[int, ...]]] = []
            for node, text in level:
                law: Law = Few(self.grams.after(text), self.like)
                for _ in range(min(width, budget - len(drawn))):
                    if law.is_empty():
                        break
                    kid = law.draw(chance, At(start + depth, Role.DRAFT, len(drawn), start))
                    below.append((len(drawn), (*text, kid.token)[-longest:]))
                    drawn.append(kid)
                    parent.append(node)
                    law = law.without(kid.token)
            level = below
        return Tree(tuple(drawn), tuple(parent))

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        longest = self.grams.orders[0]
        for place, best in sorted(tops.items()):
            self.grams.see(text[max(0, place - longest) : place], dict(best))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """See the target's law at every position that was accepted, and at the one after."""
        self.like = scores.leaf[0]
        here, node = self.prefix, ROOT
        laws: list[Law] = []
        for token in prefix.text[len(here) :]:
            laws.append(here.shape(scores.law(node)))
            here, kid = here.then((token,)), tree.child(node, token)
            if kid is None:
                break
            node = kid
        p, x = torch.stack([law.scores for law in laws]).softmax(-1).topk(min(self.grams.width, self.like.size))
        rows = torch.stack((p.double(), x.double())).tolist()  # one copy to the host
        longest, start = self.grams.orders[0], len(self.prefix)
        for i, (masses, tokens) in enumerate(zip(*rows, strict=True)):
            text = prefix.text[max(0, start + i - longest) : start + i]
            self.grams.see(text, {int(x): p for x, p in zip(tokens, masses, strict=True) if p > 0})
        self.prefix = prefix
