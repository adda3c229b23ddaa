"""Adaptive trigrams: a table of what follows two tokens, bent towards the text at hand, searched as a tree of moves."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.chance import At, Chance, Role
from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.law import Law, chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate

WIDTH = 12  # successors that the table keeps of each pair
RECENT = 16  # tokens at the end of the text whose trigrams gain weight in every round
GAIN, CAP = 0.04, 3.0
Pair = tuple[int, int]


def trigrams(texts: Iterable[Sequence[int]]) -> dict[Pair, dict[int, float]]:
    """The table of a corpus: p(c | a, b), the likeliest successors of each pair. Nothing changes it later."""
    counts: defaultdict[Pair, Counter[int]] = defaultdict(Counter)
    for text in texts:
        for a, b, c in zip(text, text[1:], text[2:], strict=False):
            counts[a, b][c] += 1
    return {pair: {c: n / sum(after.values()) for c, n in after.most_common(WIDTH)} for pair, after in counts.items()}


Successors: TypeAlias = list[tuple[int, float]]  # tokens with their share, likeliest first
Rollout: TypeAlias = Callable[[Successors, Chance, At], tuple[int, float]]


def best_first_rollout(after: Successors, chance: Chance, at: At) -> tuple[int, float]:
    """The likeliest successor."""
    return after[0]


def drawn_rollout(after: Successors, chance: Chance, at: At) -> tuple[int, float]:
    """A successor drawn by its share."""
    return after[chance.choose(Law.of([p for _, p in after]), at)]


def _drawn() -> Method:
    return Speculate(Trigram(2, 2, rollout=drawn_rollout, extended=1), budget=2)


def _with_table() -> Method:
    return Speculate(Trigram(2, 4, trigrams([(0, 1, 0, 0, 1, 1, 0)])), budget=2)


@claims(
    SEED,
    trials=lambda _: [Speculate(Trigram(2, 4), budget=2), _with_table(), _drawn()],
    paper="2407.12021",
    systems=("ADED (Adaptix)",),
)
@dataclass(frozen=True)
class Trigram(Draft):
    """Search the table of trigrams as a game tree, `rounds` times, and draft the moves that were visited most.

    Each round descends by the largest mean + (32 + ln((N + 9)/8)) · p · √N / (1 + n), opens the successors of the move
    it reaches, goes on to `depth` by a roll-out, and backs up 1 + Σ p. `rollout` chooses the successors of a roll-out:
    `best_first_rollout` the likeliest, `drawn_rollout` draws them by their weights, as the paper does. The moves that
    were visited most are drafted, and the last `extended` nodes of a draft are the likeliest successors of its leaves.
    The weights of the text's last trigrams gain 0.04 in every round of decoding, up to 3. In the paper there is always
    a corpus; here `table` is optional, and every trigram of the prompt gains once.

    Claim: SEED under sample matching. Cost: `rounds` descents of a few µs each per round; one entry per new trigram.
    """

    depth: int = 4
    rounds: int = 64
    table: Mapping[Pair, Mapping[int, float]] | None = None
    rollout: Rollout = best_first_rollout
    extended: int = 0

    def __post_init__(self) -> None:
        if self.extended < 0:
            raise BadRequest(f"trigram:extended={self.extended} cannot be used; expected 0 or more nodes")
        if min(self.depth, self.rounds) < 1:
            raise BadRequest(f"trigram:depth={self.depth},rounds={self.rounds} cannot be used; expected both from 1 on")

    def begin(self, prefix: Prefix) -> Source:
        return Bent(self)


class Move:
    """A token that may come next: its share of the weights, and what the search has seen below it."""

    __slots__ = ("gained", "kids", "p", "pair", "visits")

    def __init__(self, pair: Pair, p: float) -> None:
        self.pair, self.p = pair, p
        self.visits, self.gained = 0, 0.0
        self.kids: list[Move] | None = None

    def likeliest(self) -> Move:
        """The kid to descend to."""
        assert self.kids
        push = (32 + math.log((self.visits + 9) / 8)) * math.sqrt(self.visits)
        return max(self.kids, key=lambda kid: kid.gained / (kid.visits or 1) + push * kid.p / (1 + kid.visits))


class Bent(Source):
    """The table as one text has bent it: rows are copied from the shared one when they first change."""

    def __init__(self, rule: Trigram) -> None:
        self.rule, self.seen = rule, 0
        self.rows: dict[Pair, dict[int, float]] = {}
        self.shares: dict[Pair, list[tuple[int, float]]] = {}  # of one round; the weights change with the text

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        text = prefix.text
        self.read(text)
        return self.searched(text, budget, chance) if len(text) > 1 else NOTHING

    def read(self, text: tuple[int, ...]) -> None:
        """Let the last trigrams, and all that are new, gain weight."""
        first = max(0, min(self.seen - 2, len(text) - RECENT))
        for i in range(first, len(text) - 2):
            pair, token = (text[i], text[i + 1]), text[i + 2]
            row = self.rows.setdefault(pair, dict(self._given(pair)))
            row[token] = min(CAP, row.get(token, 0.0) + GAIN)
        self.seen, self.shares = len(text), {}

    def after(self, pair: Pair) -> list[tuple[int, float]]:
        """The successors of a pair, with their share of its weights, heaviest first."""
        if pair not in self.shares:
            row = self.rows.get(pair) or self._given(pair)
            top = sorted(row.items(), key=lambda item: -item[1])[:WIDTH]
            total = sum(weight for _, weight in top)
            self.shares[pair] = [(token, weight / total) for token, weight in top]
        return self.shares[pair]

    def searched(self, text: tuple[int, ...], budget: int, chance: Chance) -> Tree:
        """The moves that were visited most, parents before children, and then what most likely follows the leaves."""
        root = Move((text[-2], text[-1]), 1.0)
        for number in range(self.rule.rounds):
            first = At(len(text), Role.DRAFT, number * self.rule.depth, len(text))
            self._descend(root, chance, first)
        most = min(budget, max(1, budget - self.rule.extended))
        moves = sorted(_below(root, 0), key=lambda found: (-found[0].visits, found[1]))[:most]
        number_of = {id(root): ROOT} | {id(move): i for i, (move, _, _) in enumerate(moves)}
        tokens, parents = [m.pair[1] for m, _, _ in moves], [number_of[id(above)] for _, _, above in moves]
        leaves = [i for i in range(len(moves)) if i not in set(parents)]
        for leaf, (token, _) in ((i, after[0]) for i in leaves if (after := self.after(moves[i][0].pair))):
            if len(tokens) < min(budget, len(moves) + self.rule.extended):
                tokens.append(token)
                parents.append(leaf)
        return Tree(tuple(map(chosen, tokens)), tuple(parents))

    def _descend(self, root: Move, chance: Chance, first: At) -> None:
        path, move = [root], root
        while move.kids and len(path) <= self.rule.depth:
            move = move.likeliest()
            path.append(move)
        if move.kids is None:
            move.kids = [Move((move.pair[1], token), p) for token, p in self.after(move.pair)]
        value, pair = 1.0 + sum(step.p for step in path[1:]), move.pair
        for k in range(self.rule.depth + 1 - len(path)):
            after = self.after(pair)
            if not after:
                break
            token, p = self.rule.rollout(after, chance, first._replace(k=first.k + k))
            pair, value = (pair[1], token), value + p
        for step in path:
            step.visits += 1
            step.gained += value

    def _given(self, pair: Pair) -> Mapping[int, float]:
        return self.rule.table.get(pair, {}) if self.rule.table is not None else {}


def _below(root: Move, depth: int) -> Iterator[tuple[Move, int, Move]]:
    """Every visited move below `root`, with its depth and the move above it."""
    for kid in root.kids or ():
        if kid.visits:
            yield kid, depth + 1, root
            yield from _below(kid, depth + 1)
