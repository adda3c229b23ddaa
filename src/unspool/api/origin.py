"""Where each token of a text came from: the round that made it certain, and what was guessed in its place before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.chance import Chance
from ..core.claim import Method
from ..core.tree import Tree
from ..core.warp.warp import Prefix
from ..loops.drafter import Draft, Proposing, Source, check_drafter
from ..loops.speculate import Speculate
from ..recipes.methods import fitted
from ..rules.draft.composite import CompositeDraft, CompositeSource

if TYPE_CHECKING:
    from .lm import LM, Prompt
    from .settings import Settings
    from .writer import Event, Output


@dataclass(frozen=True)
class Watched(CompositeDraft):
    """`draft`, with every tree it proposes handed to `note(prefix, tree)`."""

    draft: Draft
    note: Callable[[Prefix, Tree], None]

    def __post_init__(self) -> None:
        check_drafter("watched:draft", self.draft)

    @property
    def parts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return Watched(parts[0], self.note)

    def begin(self, prefix: Prefix) -> Source:
        return _Watching(self.sources(prefix), self.note)


class _Watching(CompositeSource):
    def __init__(self, sources: tuple[Source, ...], note: Callable[[Prefix, Tree], None]) -> None:
        super().__init__(sources)
        self.note = note

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        (source,) = self.sources
        tree = yield from source.propose(prefix, budget, chance)
        self.note(prefix, tree)
        return tree


@dataclass(frozen=True)
class Origin:
    """The origin of one token. Rounds count from 1.

    `round` made it certain, and `drafted` says whether it had been drafted then; if not, the target added it.
    `guesses[r]` are the tokens that were drafted for its place in round r.
    """

    token: int
    round: int
    drafted: bool
    guesses: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def stood(self) -> int | None:
        """The first round from which on the token was among the guesses, up to the one that made it certain.

        None if it was not guessed in that one. A token that stood in an earlier round did not need the tokens that
        became certain in between: this is the dependency picture of Santilli et al. 2023 (DDGviz), as data.
        """
        first = None
        for number in range(self.round, 0, -1):
            if self.token not in self.guesses.get(number, ()):
                break
            first = number
        return first


@dataclass
class DraftWatcher:
    """Watches the drafts of one text: trees by the number of tokens that were there before."""

    trees: dict[int, Tree] = field(default_factory=dict)

    def over(self, method: Method) -> Method:
        """The method, watched; one that does not draft is left as it is."""
        if not isinstance(method, Speculate):
            return method
        return replace(method, draft=Watched(method.draft, self._note))

    def _note(self, prefix: Prefix, tree: Tree) -> None:
        self.trees[len(prefix)] = tree


def origins(events: Sequence[Event], trees: Mapping[int, Tree], prompt: int) -> list[Origin]:
    """The origin of every token, given what was drafted after a prompt of `prompt` tokens."""
    began: dict[int, int] = {}  # round -> tokens written before it
    for done, event in enumerate(events):
        began.setdefault(event.round, done)
    guesses: list[dict[int, tuple[int, ...]]] = [{} for _ in events]
    for number, done in began.items():
        for depth, tokens in _levels(trees.get(prompt + done, Tree())).items():
            if done + depth <= len(events):
                guesses[done + depth - 1][number] = tokens
    return [Origin(e.token, e.round, e.drafted, seen) for e, seen in zip(events, guesses, strict=True)]


def trace(lm: LM, prompt: Prompt, settings: Settings, method: str | Method) -> tuple[Output, list[Origin]]:
    """A text, and where each of its tokens came from."""
    watch = DraftWatcher()
    tokens = lm.encode(prompt)
    output = lm.generate(tokens, settings, watch.over(fitted(method, lm.vocabulary, lm.models())))
    return output, origins(output.events, watch.trees, len(tokens))


def _levels(tree: Tree) -> dict[int, tuple[int, ...]]:
    """The different tokens at each depth of a tree, in draft order."""
    levels: dict[int, dict[int, None]] = {}
    for node, drawn in enumerate(tree.drawn):
        levels.setdefault(tree.depth(node), {})[drawn.token] = None
    return {depth: tuple(tokens) for depth, tokens in levels.items()}
