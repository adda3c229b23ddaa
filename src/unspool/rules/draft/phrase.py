"""Phrases: longer drafts for free, made of what the target said about drafts that were thrown away."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.asks import Scores
from ...core.chance import Chance
from ...core.claim import LAW, Method, claims
from ...core.errors import BadRequest
from ...core.tree import ROOT, Tree
from ...core.verifier import sample_match
from ...core.warp.warp import Prefix
from ...loops.drafter import (
    Draft,
    Memory,
    Memoryless,
    MemoryOfParts,
    Nothing,
    Proposing,
    Source,
    begun,
    check_drafter,
)
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .cascade import Cascade
from .chain import DRAFT, Chain
from .composite import CompositeDraft, CompositeSource, proposed
from .ngram_pool import NgramPool, TreeBuilder


@dataclass(frozen=True)
class FromPool(Memoryless):
    """The phrases of a pool that followed the last token, in one tree."""

    pool: NgramPool

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        trie = TreeBuilder(budget)
        for phrase in self.pool.after(prefix.text[-1]):
            trie.add(phrase)
        return trie.tree()


@dataclass(frozen=True)
class PooledChain(Memoryless):
    """A chain of `depth` tokens of the draft model, for which the pool of a `Phrase` drafts; without one, a `Chain`."""

    depth: int = 4

    def drawing_on(self, pool: NgramPool) -> Draft:
        """The same with this pool."""
        return Cascade(FromPool(pool), sample_match, self.depth)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        return (yield from Chain(self.depth).propose(prefix, budget, chance))


def _trials(_: type[Phrase]) -> list[Method]:
    return [
        Speculate(Phrase(Chain(1), 2, 1), rejection, budget=3),
        Speculate(Phrase(Nothing(), 2, 2), sample_match),
        Speculate(Phrase(PooledChain(2), 1, 1), rejection, budget=3),
    ]


@claims(LAW, trials=_trials, paper="2402.13720", systems=("Ouroboros (phrase pool)",), needs=(DRAFT,))
@dataclass(frozen=True)
class Phrase(CompositeDraft):
    """Hang up to `phrases` phrases of `length` tokens that followed the draft's last token below its deepest node.

    A phrase of node n is the run of the target's most probable tokens from n on, for as long as they were drafted, and
    one more; every node of every tree gives one, accepted or not, and so does the text. So of a phrase that failed the
    target's own version is tried next. Requests that are given one `pool` share it (the paper's warm start).

    With `PooledChain` as `draft` the draft model is itself sped up by the pool, as in the paper: phrases that followed
    its last token are drafts for it, of which it keeps what it would have drawn. With `Chain` it drafts one token per
    forward; any drafter can stand there.

    Claim: LAW under rejection; SEED under sample matching. Cost: that of `draft`; one argmax per node.
    """

    draft: Draft = Chain()  # noqa: RUF009  (frozen)
    phrases: int = 3
    length: int = 4
    pool: NgramPool | None = None

    def __post_init__(self) -> None:
        check_drafter("phrase:draft", self.draft)
        if self.phrases < 0 or self.length < 1:
            raise BadRequest(
                f"phrase:phrases={self.phrases},length={self.length} cannot be used; expected phrases ≥ 0, length ≥ 1"
            )

    @property
    def parts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    @property
    def warm(self) -> int:
        return super().warm + (0 if self.pool is None else len(self.pool))

    def memory(self, most: int) -> Memory:
        return MemoryOfParts(NgramPool(self.length, self.phrases, most), self.draft.memory(most))

    def sharing(self, memory: MemoryOfParts) -> Draft:
        pool, inner = memory.parts
        assert isinstance(pool, NgramPool)  # as `memory` makes it
        return replace(self, draft=self.draft if inner is None else self.draft.sharing(inner), pool=pool)

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return replace(self, draft=parts[0])

    def begin(self, prefix: Prefix) -> Source:
        pool = NgramPool(self.length, self.phrases) if self.pool is None else self.pool
        pool.read(prefix.text)
        draft = self.draft.drawing_on(pool) if isinstance(self.draft, PooledChain) else self.draft
        return Phrases(self, (begun(draft, prefix),), pool, len(prefix))


class Phrases(CompositeSource):
    """The inner source of one request and its pool."""

    def __init__(self, phrase: Phrase, inner: tuple[Source, ...], pool: NgramPool, seen: int) -> None:
        super().__init__(inner)
        self.phrase, self.pool, self.seen = phrase, pool, seen

    def rest(self, prefix: Prefix) -> int:
        """Never: the pool may know a phrase though the inner source rests."""
        return 0

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        (inner,) = self.sources
        tree: Tree = yield from proposed(inner, prefix, budget, chance)
        end = max(range(len(tree)), key=tree.depth, default=ROOT)
        last = tree.drawn[end].token if end >= 0 else prefix.text[-1]
        trie = TreeBuilder(budget, tree)
        for phrase in self.pool.after(last)[: self.phrase.phrases]:
            trie.add(phrase[: self.phrase.length], end)
        return trie.tree()

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        for node, drawn in enumerate(tree.drawn):
            self.pool.add(drawn.token, self._run(node, tree, scores))
        self.pool.read(prefix.text, self.seen)
        self.seen = len(prefix)
        super().learn(prefix, tree, scores)

    def _run(self, node: int | None, tree: Tree, scores: Scores) -> list[int]:
        run: list[int] = []
        while node is not None and len(run) < self.phrase.length:
            run.append(scores.law(node).best)
            node = tree.child(node, run[-1])
        return run
