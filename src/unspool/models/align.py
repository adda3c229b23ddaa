"""Two vocabularies side by side: whether one model can draft for another, and through which tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from unspool.errors import BadRequest
from unspool.models.vocabulary import Vocabulary

LEAST = 0.1  # of the draft's tokens must be the target's too; below, hardly any draft could ever stand


class Kinship(Enum):
    """How two vocabularies are related."""

    SAME = "the same tokens"
    PADDED = "the same tokens, one padded with more"
    SHARED = "different tokens, some of which are spelt the same"


@dataclass(frozen=True)
class Alignment:
    """The tokens that a target and its draft model share, and how the draft spells those of the target it lacks.

    `shared[x]` is the draft's id of target token x: same bytes, or the same name for control tokens. `coverage` is the
    share of the draft's tokens that the target has too.
    """

    target: Vocabulary
    draft: Vocabulary
    kinship: Kinship
    shared: Mapping[int, int]
    coverage: float
    _spelt: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Number of tokens of the target."""
        return self.target.size

    def spell(self, token: int) -> tuple[int, ...]:
        """The draft's tokens for one of the target's; none for a control token that the draft does not know."""
        if token not in self._spelt:
            own = self.shared.get(token)
            self._spelt[token] = (own,) if own is not None else self._written(self.target.piece(token))
        return self._spelt[token]

    def read(self, text: Sequence[int]) -> tuple[int, ...]:
        """The draft's tokens for a whole prompt, as that model itself would have cut it between control tokens."""
        if self.kinship is not Kinship.SHARED:
            return tuple(x for token in text for x in self.spell(token))
        tokens: list[int] = [self.draft.bos] if self.draft.add_bos and self.draft.bos is not None else []
        run = b""
        for token in text:
            if token in self.target.special:
                tokens += (*self._written(run), *self.spell(token))
                run = b""
            else:
                run += self.target.piece(token)
        tokens += self._written(run)
        return tuple(tokens) or (self.draft.bos or 0,)  # a text needs a token to go on from

    def _written(self, piece: bytes) -> tuple[int, ...]:
        try:
            tokens = self.draft.encode(piece.decode(), special=False) if piece else ()
        except UnicodeDecodeError:  # a token that ends inside a character: byte by byte
            found = (self.draft.token_of(piece[i : i + 1]) for i in range(len(piece)))
            return tuple(x for x in found if x is not None)
        return tokens[1:] if self.draft.add_bos else tokens

    def __str__(self) -> str:
        return f"{self.kinship.value} ({len(self.shared):,} shared, {self.coverage:.0%} of the draft's)"


def align(target: Vocabulary, draft: Vocabulary) -> Alignment:
    """How the vocabularies of a target and a draft model are related; refused if they share too little to draft."""
    if target.first_difference(draft) is None:
        kinship = Kinship.SAME if target.size == draft.size else Kinship.PADDED
        same = range(min(target.size, draft.size))
        return Alignment(target, draft, kinship, dict(zip(same, same, strict=True)), len(same) / draft.size)
    named = {draft.name(token): token for token in sorted(draft.special)}
    spelt = {piece: token for token in reversed(range(draft.size)) if (piece := draft.piece(token))}
    shared: dict[int, int] = {}
    for token in range(target.size):
        special = token in target.special
        own = named.get(target.name(token)) if special else spelt.get(target.piece(token))
        if own is not None:
            shared[token] = own
    coverage = len(set(shared.values())) / draft.size
    if coverage < LEAST:
        raise BadRequest(
            f"only {coverage:.1%} of the draft's {draft.size:,} tokens are spelt the same in the target's "
            f"{target.size:,}; expected at least {LEAST:.0%}. Choose a draft model with a related tokenizer."
        )
    return Alignment(target, draft, Kinship.SHARED, shared, coverage)
