"""Jacobi decoding of chunks of a known length that gives up waiting: after so many forwards the guesses stand."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from ...core.asks import Ask, Decoding, Done, Emit, GiveWay, Keep, Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, Method, claims
from ...core.law import Law, chosen
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.tree import Tree
from ...core.warp.warp import Prefix, Warp
from ...loops.drafter import possible
from ..draft.jacobi import bigrams

Start: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], int], tuple[int, ...]]


def last_chunk(text: tuple[int, ...], before: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """The chunk before this one, place by place, as one action is much like the last; `bigrams` where it ends."""
    warm = before[:tokens]
    return warm + bigrams(text + warm, tokens - len(warm))


def from_bigrams(text: tuple[int, ...], before: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """What followed each token the last time it stood in the text."""
    return bigrams(text, tokens)


class Guessed(NamedTuple):
    """What one forward says of the next tokens: those that are certain, then new guesses; and their laws."""

    tokens: tuple[int, ...]
    certain: int
    before: list[Law]
    after: list[Law]


def guessed(prefix: Prefix, guesses: tuple[int, ...], chance: Chance) -> Generator[Ask, Any, Guessed]:
    """Draw each token given the guesses before it, with plain decoding's noise; certain until the first that is new.

    Warps see what was drawn, so that what they forbid is not even guessed.
    """
    tree = Tree.chain([chosen(x) for x in guesses])
    scores: Scores = yield Score(tree)
    tokens, after, certain, agree, here = list[int](), list[Law](), 0, True, prefix
    before = [scores.leaf[0], *scores.after]
    for i, raw in enumerate(before):
        law = possible(here, raw) if i else here.shape(raw)  # behind the first the text may have ended
        if law is None:
            break
        token = law.draw(chance, At(len(here), Role.PICK)).token
        tokens.append(token)
        after.append(law)
        certain += agree
        agree = agree and i < len(guesses) and token == guesses[i]
        here = here.then((token,))
        yield GiveWay()
    return Guessed(tuple(tokens), certain, before[: len(tokens)], after)


def kept(tokens: tuple[int, ...]) -> Keep:
    """Go on after these tokens."""
    return Keep(Tree.chain([chosen(x) for x in tokens[:-1]]), (len(tokens) - 2,), tokens[-1:])


def _trials(rule: type[CappedJacobi]) -> list[Method]:
    return [rule(2, 1), rule(3, 2, from_bigrams)]


@claims(HEURISTIC, name="capped_jacobi", trials=_trials, paper="2503.02310", systems=("PD-VLA (warm start, capped)",))
@dataclass(frozen=True)
class CappedJacobi:
    """Write chunks of `size` tokens by Jacobi iteration, at most `cap` forwards each; what is not certain then stands.

    yᵢ ← draw from P(· | y₍<ᵢ₎), all of the chunk at once. `start` gives the first guesses: `last_chunk` takes those of
    the chunk before, which suits the actions of a robot. cap = 0, or from `size` on, waits until all is certain: that
    is `blocks`. The paper's own cap and start were not found.

    Claim: HEURISTIC. Tokens after the first wrong guess are drawn from laws after a text that is not theirs. Without
    a cap it is plain decoding, seed for seed, as the tests enumerate. Warps and constraints are kept in any case.
    Cost: at most `cap` forwards per chunk, over what is left of it.
    """

    size: int = 8
    cap: int = 4
    start: Start = last_chunk

    def __post_init__(self) -> None:
        expect(whole(self.size, 1), "capped_jacobi:size", self.size, "a whole number of tokens from 1 on")
        expect(whole(self.cap, 0), "capped_jacobi:cap", self.cap, "a whole number of forwards, 0 for no cap")

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail = stop.start()
        prefix = Prefix.of(text, warp, stop.left(tail))
        chunk: tuple[int, ...] = ()
        while True:
            begun, end = len(prefix), len(prefix) + int(min(self.size, prefix.left))
            guesses = self.start(prefix.text, chunk, end - begun)
            for number in count(1):
                guesses = guesses[: int(min(end - len(prefix) - 1, stop.spare))]
                found = yield from guessed(prefix, guesses, chance)
                size = len(found.tokens) if number == self.cap else found.certain
                done, reason, tail, trim = stop.cut(tail, found.tokens[:size])
                new = len(done)
                yield Emit(done, found.before[:new], found.after[:new], len(guesses), min(found.certain, new) - 1)
                prefix = prefix.then(done)
                if reason:
                    return Done(prefix.text[len(text) :], reason, trim)
                yield kept(done)
                guesses = found.tokens[size:]
                if len(prefix) >= end or number == self.cap:
                    break
            chunk = prefix.text[begun:]
