"""Plain decoding in plain Python: the truth that claims are held against.

It shares no law, warp, stop, table or loop with what is proved: weights are numbers in lists, and each warp is a line
or two that says what its name says. The tests hold these lines, and the warps that decoders use, against the processors
of transformers on laws of real size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from ..core.asks import Done
from ..core.chance import At, Every, Role

if TYPE_CHECKING:
    from .case import Case

Tokens: TypeAlias = tuple[int, ...]
Scores: TypeAlias = list[float]  # logits: logarithms of weights, −∞ where a token cannot follow
Shaping: TypeAlias = Callable[[Scores, Tokens, Tokens], Scores]  # given the scores, the prompt, and what was written

NEVER = -math.inf
EMPTY = Done((), "empty")
"""What becomes of a text after which no token is left: the request fails, whatever had been written."""


# ---- one line for each warp


def no_less(scores: Scores, border: float) -> Scores:
    """The scores from a border on; no token below it can follow."""
    return [score if score >= border else NEVER for score in scores]


def keep(scores: Scores, kept: Callable[[int], bool]) -> Scores:
    """The scores of the tokens that are kept; no other token can follow."""
    return [score if kept(token) else NEVER for token, score in enumerate(scores)]


def chances(scores: Scores) -> list[float] | None:
    """The probabilities; None if no token is left."""
    top = max(scores)
    if top == NEVER:
        return None
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def temperature(t: float) -> Shaping:
    """Divide all scores."""
    return lambda scores, prompt, written: [score / t for score in scores]


def greedy(scores: Scores, prompt: Tokens, written: Tokens) -> Scores:
    """Only the best token, of several the first."""
    best = scores.index(max(scores))
    return keep(scores, lambda token: token == best)


def top_k(k: int) -> Shaping:
    """All that are no worse than the k-th best."""
    return lambda scores, prompt, written: no_less(scores, sorted(scores)[-min(k, len(scores))])


def top_p(mass: float) -> Shaping:
    """The best tokens that together reach this mass, and whatever ties with the last of them."""

    def shape(scores: Scores, prompt: Tokens, written: Tokens) -> Scores:
        p = chances(scores)
        if p is None:
            return scores
        reached, border = 0.0, 0.0
        for border in sorted(p, reverse=True):
            reached += border
            if reached >= mass:
                break
        return keep(scores, lambda token: p[token] >= border)

    return shape


def min_p(share: float) -> Shaping:
    """All that have at least this share of the best one's probability."""
    return lambda scores, prompt, written: no_less(scores, max(scores) + math.log(share))


def repetition(penalty: float) -> Shaping:
    """What stands in the text or prompt: positive scores divided, negative ones multiplied."""

    def shape(scores: Scores, prompt: Tokens, written: Tokens) -> Scores:
        said = {*prompt, *written}
        changed = [score * penalty if score < 0 else score / penalty for score in scores]
        return [changed[token] if token in said else score for token, score in enumerate(scores)]

    return shape


def frequency(penalty: float) -> Shaping:
    """Less for every time that a token was written; the prompt does not count."""
    return lambda scores, prompt, written: [s - penalty * written.count(x) for x, s in enumerate(scores)]


def presence(penalty: float) -> Shaping:
    """Less for having been written at all."""
    return lambda scores, prompt, written: [s - penalty * (x in written) for x, s in enumerate(scores)]


def bias(added: dict[int, float]) -> Shaping:
    """A number added to some scores."""
    return lambda scores, prompt, written: [s + added.get(x, 0.0) for x, s in enumerate(scores)]


def no_repeat(scores: Scores, prompt: Tokens, written: Tokens) -> Scores:
    """No pair of tokens that the text has already."""
    text = (*prompt, *written)
    pairs = set(pairwise(text))
    return keep(scores, lambda token: (text[-1], token) not in pairs)


def bad_words(first: int, then: int) -> Shaping:
    """Never the one after the other."""
    return lambda scores, prompt, written: keep(scores, lambda x: x != then or (*prompt, *written)[-1] != first)


def min_tokens(n: int, end: int) -> Shaping:
    """No end before n tokens were written."""
    return lambda scores, prompt, written: keep(scores, lambda x: x != end or len(written) >= n)


def brackets(scores: Scores, prompt: Tokens, written: Tokens) -> Scores:
    """0 opens, 1 closes, two deep at most, and nothing else outside of brackets."""
    depth = written.count(0) - written.count(1)
    return keep(scores, lambda token: depth < 2 if token == 0 else depth > 0)


def dead_end(scores: Scores, prompt: Tokens, written: Tokens) -> Scores:
    """Nothing after 1 1."""
    return keep(scores, lambda token: written[-2:] != (1, 1))


CONSTRAINTS = brackets, dead_end

SAID: dict[str, tuple[Shaping, ...]] = {
    "none": (),
    "temperature 0.6": (temperature(0.6),),
    "top-k 2": (top_k(2),),
    "temperature 1.5, top-p 0.7": (temperature(1.5), top_p(0.7)),
    "min-p 0.45": (min_p(0.45),),
    "repetition 1.6": (repetition(1.6),),
    "frequency 1": (frequency(1.0),),
    "presence 0.8": (presence(0.8),),
    "bias": (bias({0: -0.5, 1: 0.7}),),
    "no bigram twice": (no_repeat,),
    "never 1 after 0": (bad_words(0, 1),),
    "no 1 among the first two": (min_tokens(2, 1),),
    "greedy": (greedy,),
    "brackets": (brackets,),
    "brackets, greedy": (brackets, greedy),
    "brackets, temperature 1.5, top-p 0.7": (brackets, temperature(1.5), top_p(0.7)),
    "dead end": (dead_end,),
    "dead end, greedy": (dead_end, greedy),
    "dead end, temperature 1.5, top-p 0.7": (dead_end, temperature(1.5), top_p(0.7)),
}
"""What each name in `shaping.WARPS` means, first things first."""


# ---- plain decoding


@dataclass(frozen=True)
class Plainly:
    """Plain decoding of a case; `first` and `last` shape before and after the case's own warp, as `greedy` does."""

    case: Case
    last: tuple[Shaping, ...] = ()
    first: tuple[Shaping, ...] = ()

    @property
    def shapings(self) -> tuple[Shaping, ...]:
        """What the case's warp does, first things first."""
        return SAID[self.case.warp]

    @cached_property
    def _known(self) -> dict[Tokens, tuple[list[float], list[float] | None]]:
        return {}

    def around(self, written: Tokens) -> tuple[list[float], list[float] | None]:
        """The model's probabilities after these tokens, and those after all warps: None if these leave nothing."""
        if written not in self._known:
            case, number = self.case, 0
            for token in (*case.prompt, *written):
                number = number * 7 + token + 1
            scores = [math.log(weight) if weight else NEVER for weight in case.target[number % len(case.target)]]
            shaped = scores
            for shape in (*self.first, *self.shapings, *self.last):
                shaped = shape(shaped, case.prompt, written)
            self._known[written] = chances(scores) or [], chances(shaped)
        return self._known[written]

    def ended(self, written: Tokens) -> Done | None:
        """How the text ends with the last of these tokens, if it does."""
        case = self.case
        until = case.until is not None and case.until in "".join("abcde"[token] for token in written)
        trim = len(case.until) if case.until is not None and until else 0  # the text ends before the string
        if written[-1] == case.end:
            return Done(written, "token", trim)
        if until:
            return Done(written, "string", trim)
        return Done(written, "length") if len(written) >= case.most else None

    def law(self) -> dict[Done, float]:
        """The exact joint law of whole texts: the product of what each token has, up to the first end."""
        law: defaultdict[Done, float] = defaultdict(float)

        def visit(written: Tokens, mass: float) -> None:
            p = self.around(written)[1]
            if p is None:
                law[EMPTY] += mass
                return
            for token, share in enumerate(p):
                if share > 0:
                    done = self.ended((*written, token))
                    if done is None:
                        visit((*written, token), mass * share)
                    else:
                        law[done] += mass * share

        visit((), 1.0)
        return dict(law)

    def text(self, every: Every) -> Done:
        """The text of this branch of chance: one PICK at each position, the token whose interval it falls into."""
        written: Tokens = ()
        while True:
            p = self.around(written)[1]
            if p is None:
                return EMPTY
            steps = [(token, math.fsum(p[: token + 1])) for token, share in enumerate(p) if share > 0]
            written = (*written, every.split(steps, At(len(self.case.prompt) + len(written), Role.PICK)))
            done = self.ended(written)
            if done is not None:
                return done


@dataclass(frozen=True)
class Conditioned(Plainly):
    """The law of plain decoding without the case's constraint, given that the whole text meets it.

    Not the law of masked decoding: what a token makes impossible later is weighed here.
    """

    @property
    def shapings(self) -> tuple[Shaping, ...]:
        return tuple(shape for shape in SAID[self.case.warp] if shape not in CONSTRAINTS)

    def law(self) -> dict[Done, float]:
        """The texts that meet the constraint, normalised; all mass on EMPTY if there is none."""
        met = {done: mass for done, mass in super().law().items() if done != EMPTY and self._meets(done)}
        total = math.fsum(met.values())
        return {done: mass / total for done, mass in met.items()} if total else {EMPTY: 1.0}

    def _meets(self, done: Done) -> bool:
        binding = [shape for shape in SAID[self.case.warp] if shape in CONSTRAINTS]
        for shape in binding:
            zeros = [0.0] * self.case.vocab
            for i, token in enumerate(done.tokens):
                if shape(zeros, self.case.prompt, done.tokens[:i])[token] == NEVER:
                    return False
            if shape is brackets and done.tokens.count(0) != done.tokens.count(1):
                return False
        # what a stop string cuts off meets nothing, nor what the length does where a token can end the text
        cut = done.reason == "string" or (self.case.end is not None and done.reason != "token")
        return not (binding and cut)
