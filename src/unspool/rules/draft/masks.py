"""The target as its own drafter: what it guesses behind masks, in the forward that checks a draft, is the next one."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Scores
from ...core.canvas import HOLE
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.cost import FREE
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source, check_drafter
from ...loops.speculate import Speculate
from .bigram_recycling import BigramRecycling
from .composite import CompositeDraft, CompositeSource
from .guide import Guide, Kids
from .merge import Merged

TRUST = 0.7  # what a guess behind a mask is believed to be worth before the text has told
WIDTH = 8  # guesses that are kept of each mask


@claims(
    SEED,
    trials=lambda _: [Speculate(Masks(1), budget=5), Speculate(Masks(2, (BigramRecycling(),)), budget=5)],
    systems=("SPACE (masks beside candidates, one call to verify and draft)",),
)
@dataclass(frozen=True)
class Masks(CompositeDraft):
    """Hang `ahead` mask tokens below the text and below every drafted node; the law after each is the next draft.

    One forward scores prefix | M | c₁ M | c₂ M …: it verifies the candidates c, and behind the last one that stands its
    masks have already guessed what follows the token that comes next. The model is one that was trained to fill holes;
    SPACE lets masks of a group see each other, here each sees those before it, as tokens do. What `beside` drafts joins
    the same tree, calibrated as `merge` does it. No law gives a mask a chance, so that none is ever accepted.

    Claim: SEED under sample matching. Cost: one forward per round, over nodes + (nodes + 1)·ahead rows.
    """

    ahead: int = 3
    beside: tuple[Draft, ...] = ()

    def __post_init__(self) -> None:
        if self.ahead < 1:
            raise BadRequest(f"masks:ahead={self.ahead} cannot be used; expected at least 1 mask")
        if not isinstance(self.beside, tuple):
            raise BadRequest(f"masks:beside={self.beside!r} cannot be used; expected a tuple, as (Recall(),)")
        for draft in self.beside:
            check_drafter("masks:beside", draft)

    @property
    def parts(self) -> tuple[Draft, ...]:
        return self.beside

    def holding(self, parts: tuple[Draft, ...]) -> Draft:
        return Masks(self.ahead, parts)

    def begin(self, prefix: Prefix) -> Source:
        guesses = MaskGuide()
        return MasksSource(self, guesses, Merged([*self.sources(prefix), guesses], FREE), len(prefix))


class MaskGuide(Source, Guide):
    """The tokens that were guessed behind masks, by their distance from the end of the text: a guide, and no more."""

    voices = (TRUST, TRUST / 2, TRUST / 4)  # guesses one, two and more places further

    def __init__(self) -> None:
        self.rows: list[list[tuple[int, float]]] = []

    def start(self, prefix: Prefix) -> int:
        return 0

    def below(self, place: int) -> tuple[int, Kids]:
        voice = min(place, len(self.voices) - 1)
        return voice, self.rows[place] if place < len(self.rows) else ()

    def then(self, place: int, token: int) -> int | None:
        return place + 1 if place + 1 < len(self.rows) else None

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """Nothing: it is asked as a guide, and `MasksSource` fills its rows."""
        yield from ()
        return NOTHING


class MasksSource(CompositeSource):
    """The masks of one request, and all that drafts beside them; `seen` is the length of the text when it was learnt.

    It never rests, since the guesses are one of the sources and do not.
    """

    def __init__(self, masks: Masks, guesses: MaskGuide, free: Merged, seen: int) -> None:
        super().__init__((free,))
        self.masks, self.guesses, self.free, self.seen = masks, guesses, free, seen

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        ahead = self.masks.ahead
        real: Tree = yield from self.free.propose(prefix, max(0, (budget - ahead) // (1 + ahead)), chance)
        drawn, parent = list(real.drawn), list(real.parent)
        for node in (ROOT, *range(len(real))):
            if len(drawn) + ahead > budget:
                break
            parent += [node, *range(len(drawn), len(drawn) + ahead - 1)]
            drawn += [chosen(HOLE)] * ahead
        return Tree(tuple(drawn), tuple(parent))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        """Read what was guessed behind the last token that stood, where the tree that was checked has masks there."""
        mask = tree.child(tree.end(prefix.text[self.seen : -1]), HOLE)
        hung: list[int] = []
        while mask is not None:
            hung.append(mask)
            mask = tree.child(mask, HOLE)
        best = scores.best(WIDTH) if hung else []
        self.guesses.rows, self.seen = [best[1 + i] for i in hung], len(prefix)
        super().learn(prefix, tree, scores)
