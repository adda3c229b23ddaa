"""Lookahead decoding: Jacobi trajectories grow beside the text and leave n-grams, which are tried as drafts."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.tree import ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from .ngram_pool import NgramPool, TreeBuilder


@claims(
    SEED,
    trials=lambda _: [Speculate(Lookahead(1, 2, 1), budget=2), Speculate(Lookahead(2, 3, 2), budget=8)],
    paper="2402.02057",
    systems=("Lookahead decoding",),
)
@dataclass(frozen=True)
class Lookahead(Draft):
    """Draft up to `guesses` n-grams that begin with the last token, beside a `window` of trajectories that make them.

    Column i of the window is (yᵢ, …, yᵢ₊ₙ₋₂), the values of ngram − 1 rounds; its next value is argmax P after the path
    y₀ … yᵢ, yᵢ₊₁, …: row 0 up to i, then down the column. That is what a tree node sees, so the window is a chain with
    one branch per column, and needs no mask of its own. A column with `ngram` values goes to the pool as an n-gram, and
    its oldest value goes.

    Other than in the paper sample matching may follow the window's nodes too, at no cost; n-grams of the prompt and of
    the text always enter the pool (an option there); the window starts with the last tokens of the prompt (random ones
    there). As in the authors' code, as far as remembered, it stays as it is when a round accepts several tokens.

    Claim: SEED under sample matching, ARGMAX under greedy.
    Cost: no model; (window + guesses) · (ngram − 1) nodes in every forward, ngram − 2 more while the window fills; one
    argmax per column. The paper's window 7, ngram 5, guesses 7 are for a GPU with nothing else to do.
    """

    window: int = 4
    ngram: int = 4
    guesses: int = 4

    def __post_init__(self) -> None:
        if self.window < 1 or self.ngram < 2 or self.guesses < 0:
            raise BadRequest(
                f"lookahead:window={self.window},ngram={self.ngram},guesses={self.guesses} cannot be used; "
                "expected window ≥ 1, ngram ≥ 2 and guesses ≥ 0"
            )

    @property
    def nodes(self) -> int:
        """The most nodes that it drafts."""
        columns = self.window + self.ngram - 2
        filling = max((columns - i) * (i + 1) for i in range(self.ngram - 1))
        return filling + self.guesses * (self.ngram - 1)

    def begin(self, prefix: Prefix) -> Source:
        columns = self.window + self.ngram - 2
        start = (prefix.text * (columns // len(prefix) + 1))[-columns:]
        pool = NgramPool(self.ngram - 1, self.guesses)
        pool.read(prefix.text)
        return Trajectories(self, pool, [(x,) for x in start], len(prefix))


@dataclass
class Trajectories(Source):
    """The window and the pool of one request."""

    lookahead: Lookahead
    pool: NgramPool
    columns: list[tuple[int, ...]]
    seen: int

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """The pool's n-grams and the window; where the budget narrows, as near the end, so does the window for good."""
        yield from ()
        trie, row = TreeBuilder(budget), ROOT
        for guess in self.pool.after(prefix.text[-1]):
            trie.add(guess)
        while self.columns and not self._fits(budget - len(trie), prefix):
            self.columns.pop()
        for first, *rest in self.columns:
            (row,) = trie.add((first,), row)
            trie.add(rest, row)
        return trie.tree()

    def _fits(self, nodes: int, prefix: Prefix) -> bool:
        deepest = len(self.columns) - 1 + len(self.columns[-1])
        return sum(map(len, self.columns)) <= nodes and prefix.ahead(deepest) == deepest

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Give every column its next value; whole n-grams go to the pool, as do those of the new text."""
        self.pool.read(prefix.text, self.seen)
        self.seen = len(prefix)
        ends = self._ends(tree)
        if not ends or len(ends) < len(self.columns):
            return  # no window is left, or others have drafted and it was not scored
        grown = [(*column, scores.law(end).best) for column, end in zip(self.columns, ends, strict=True)]
        if len(grown[0]) < self.lookahead.ngram:
            self.columns = grown[1:]  # the text moved on by one, and so does a window that only fills
            return
        for token, *phrase in grown:
            self.pool.add(token, phrase)
        self.columns = [column[1:] for column in grown]

    def _ends(self, tree: Tree) -> list[int]:
        ends, row = [], ROOT
        for first, *rest in self.columns:
            node = below = tree.child(row, first)
            for token in rest:
                node = None if node is None else tree.child(node, token)
            if below is None or node is None:
                break
            row = below
            ends.append(node)
        return ends
