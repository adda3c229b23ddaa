"""Jacobi decoding: the target's own last guesses at the next positions are the draft, refined in every round."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...core.asks import Ask, GiveWay, Scores
from ...core.chance import Chance, Role
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix, Scored
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate


class SettledAt(NamedTuple):
    """The first round that began with the token in its place for good, and the round that made it certain, from 0.

    A token in place before its predecessors were certain did not need them all. If `stood` is `certain + 1`, nobody had
    guessed it.
    """

    stood: int
    certain: int


@dataclass
class Settling:
    """The guesses of every round of one request, each with the number of tokens that were certain before it."""

    rounds: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def note(self, done: int, guesses: tuple[int, ...]) -> None:
        """Take note of the guesses that the round after `done` tokens begins with."""
        if self.rounds and self.rounds[-1][0] == done:
            self.rounds.pop()
        self.rounds.append((done, guesses))

    def settled(self, tokens: Sequence[int]) -> list[SettledAt]:
        """For each token of the finished text, the round in which it stood for good and the one that made it certain.

        This is the dependency picture of Santilli et al. 2023 (DDGviz), as data.
        """
        return [self._settled(position, token) for position, token in enumerate(tokens)]

    def _settled(self, position: int, token: int) -> SettledAt:
        certain = max(i for i, (done, _) in enumerate(self.rounds) if done <= position)
        stood = certain + 1
        for i in range(certain, -1, -1):
            done, guesses = self.rounds[i]
            at = position - done
            if not (at < len(guesses) and guesses[at] == token):
                break
            stood = i
        return SettledAt(stood, certain)


Fill: TypeAlias = Callable[[tuple[int, ...], int], tuple[int, ...]]


def last_again(text: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The last token, again and again: a guess that costs nothing and knows nothing."""
    return text[-1:] * count


def bigrams(text: tuple[int, ...], count: int) -> tuple[int, ...]:
    """What followed each token the last time it stood in the text; the token itself where it never did."""
    after = dict(pairwise(text))
    filled, token = [], text[-1]
    for _ in range(count):
        token = after.get(token, token)
        filled.append(token)
    return tuple(filled)


class Frame(Protocol):
    """How far ahead to guess."""

    def ahead(self, done: int) -> int:
        """The number of guesses to draft when `done` tokens have been written since the prompt."""


@dataclass(frozen=True)
class Slide:
    """A window of always `window` guesses, which moves on with the text."""

    window: int = 8

    def __post_init__(self) -> None:
        if self.window < 0:
            raise BadRequest(f"jacobi:window={self.window} cannot be used; expected 0 (plain decoding) or more guesses")

    def ahead(self, done: int) -> int:
        return self.window


@claims(
    SEED,
    trials=lambda _: [Speculate(Jacobi(Slide(1)), budget=1), Speculate(Jacobi(Slide(2)), budget=2)],
    paper="2305.10427",
    systems=("Jacobi decoding (sliding window)", "FastCoT (exact mode)"),
)
@dataclass(frozen=True)
class Jacobi(Draft):
    """Draft the tokens that the target itself, in its last forward, guessed at the positions of a window.

    yᵢ ← draw from P(· | y₍<ᵢ₎) with plain decoding's own noise for position i, all i at once; the fixed point of this
    is the text of that seed. After k rounds at least k tokens are final, and a window of n needs at most n.
    New positions of the window are filled by `fill(text and guesses so far, count)`, which also takes a warm start (the
    last action chunk, in PD-VLA; `capped_jacobi` has it, and a cap). `early_answer` is FastCoT's approximate mode.

    `watch` is given the `Settling` of each request: which guess stood where in which round.

    Claim: SEED under sample matching, ARGMAX under greedy.
    Cost: no model; every forward carries the window; one draw per guess that was not accepted.
    """

    frame: Frame = Slide()
    fill: Fill = bigrams
    watch: Callable[[Settling], None] | None = None

    def begin(self, prefix: Prefix) -> Source:
        source = JacobiSource(self, len(prefix), prefix)
        if self.watch is not None:
            self.watch(source.settling)
        return source


class Answered(NamedTuple):
    """What the target has said of a tree that followed `prefix`, and how many tokens have been written since."""

    tree: Tree
    scores: Scores
    prefix: Prefix
    new: int


@dataclass
class JacobiSource(Source):
    """The guesses of one request, for the positions after `prefix`.

    What was learnt is worked on when the next draft is wanted: there a wide window can give way to others.
    """

    jacobi: Jacobi
    prompt: int
    prefix: Prefix
    guesses: tuple[int, ...] = ()
    settling: Settling = field(default_factory=Settling)
    chance: Chance | None = None
    answered: Answered | None = None

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from self._guessed_again()
        self.chance, done = chance, len(prefix) - self.prompt
        size = prefix.ahead(min(self.jacobi.frame.ahead(done), budget))
        missing = size - len(self.guesses)
        if missing > 0:
            self.guesses += tuple(self.jacobi.fill(prefix.text + self.guesses, missing))[:missing]
        self.guesses = self.guesses[:size]
        self.settling.note(done, self.guesses)
        return Tree.chain([chosen(x) for x in self.guesses])

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        for _ in self._guessed_again():  # nothing was drafted in the last round
            pass
        self.answered = Answered(tree, scores, self.prefix, len(prefix) - len(self.prefix))
        self.prefix = prefix
        self.settling.note(len(prefix) - self.prompt, ())  # a round begins here even if nothing is drafted in it

    def _guessed_again(self) -> Generator[Ask, Any, None]:
        """Guess each position behind the new text again, from the law after the guess before it.

        In a tree that others have drafted, guesses that were not scored stay as they were.
        """
        if self.answered is None:
            return
        (tree, scores, before, new), self.answered = self.answered, None
        scored = Scored(tree, before, scores.leaf[0], scores.after)
        guesses, node = list(self.guesses[new:]), ROOT
        for i, token in enumerate(self.guesses, 1):  # the law after this token guesses position i
            kid = tree.child(node, token)
            if kid is None or self.chance is None:
                break
            node = kid
            if i < new:
                continue
            if scored.ends(node):  # after a wrong guess warps may leave nothing; that ends the window, not the request
                del guesses[i - new :]
                break
            guesses[i - new : i - new + 1] = [scored.law(node).draw(self.chance, scored.at(Role.PICK, node)).token]
            yield GiveWay()
        self.guesses = tuple(guesses)
