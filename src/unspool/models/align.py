"""Two vocabularies side by side: whether one model can draft for another, and through which tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from ..core.canvas import HOLE
from ..core.errors import BadRequest
from .vocabulary import Vocabulary

LEAST = 0.1  # of the draft's tokens must be the target's too; below, hardly any draft of tokens could ever stand
WRITABLE = 0.9  # of the target's tokens must be made of the draft's, for text to pass between them
BEHIND = 8  # tokens before a border that are cut anew with what follows it


class Kinship(Enum):
    """How two vocabularies are related."""

    SAME = "the same tokens"
    PADDED = "the same tokens, one padded with more"
    SHARED = "different tokens, some of which are spelt the same"
    STRINGS = "different tokens, hardly any spelt the same: only text passes between them"


@dataclass(frozen=True)
class Alignment:
    """The tokens that a target and its draft model share, and how the draft spells those of the target it lacks.

    `shared[x]` is the draft's id of target token x: same bytes, or the same name for control tokens. `coverage` is the
    share of the draft's tokens that the target has too. Text passes in both directions: `read` and `follow` tell the
    draft what the target wrote, `retell` tells the target what the draft wrote.
    """

    target: Vocabulary
    draft: Vocabulary
    kinship: Kinship
    shared: Mapping[int, int]
    coverage: float
    _spelt: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        return self.target.size

    @cached_property
    def strings(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """The bytes of every token that the target writes, and of every token of the draft; none for control tokens."""
        own = _own(self.target)
        return [p if own.get(p) == x else b"" for x, p in enumerate(_strings(self.target))], _strings(self.draft)

    @cached_property
    def ends(self) -> Mapping[int, int]:
        """The draft's control tokens that the target has too, with the target's."""
        return {own: token for token, own in self.shared.items() if token in self.target.special}

    def spell(self, token: int) -> tuple[int, ...]:
        """The draft's tokens for one of the target's; none for a hole or a control token that the draft lacks."""
        if token == HOLE:
            return ()
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

    def follow(self, inner: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        """The draft's tokens for a text that goes on with the target's; its last few are cut anew with what is new."""
        tokens, run = list(inner), b""
        for token in new:
            if token in self.target.special:
                tokens = [*self._recut(tokens, run), *self.spell(token)]
                run = b""
            else:
                run += self.target.piece(token)
        return tuple(self._recut(tokens, run))

    def _recut(self, tokens: list[int], run: bytes) -> list[int]:
        if not run:
            return tokens
        head, size = _behind(tokens, self.draft)
        cut = self._written(head + run)
        if b"".join(map(self.draft.piece, cut)) != head + run:  # a tokenizer that does not keep every byte
            return [*tokens, *self._written(run)]
        return [*tokens[: len(tokens) - size], *cut]

    def retell(self, text: Sequence[int], written: Sequence[int]) -> tuple[int, ...]:
        """The target's tokens for what the draft wrote after a text, up to the first control token.

        They are cut together with the end of the text, and by themselves where no token ends at the border. The bytes
        of a character that is not complete are left out.
        """
        said, end = b"", tuple[int, ...]()
        for token in written:
            if token in self.draft.special:
                end = (self.ends[token],) if token in self.ends else ()
                break
            said += self.draft.piece(token)
        said = said[: _whole(said)]
        head, _ = _behind(text, self.target)
        tokens = _cut(self.target, head + said) or ()
        done, first = 0, 0
        while done < len(head) and first < len(tokens):
            done, first = done + len(self.target.piece(tokens[first])), first + 1
        told = tokens[first:] if done == len(head) and tokens else _cut(self.target, said) or ()
        return (*told, *end)

    def _written(self, piece: bytes) -> tuple[int, ...]:
        """The draft's tokens for some bytes: whole characters as it would cut them, the rest byte by byte."""
        whole = _whole(piece)
        tokens = _cut(self.draft, piece[:whole])
        if tokens is None:  # begins inside a character
            tokens, whole = (), 0
        found = (self.draft.token_of(piece[i : i + 1]) for i in range(whole, len(piece)))
        return (*tokens, *(x for x in found if x is not None))

    def __str__(self) -> str:
        of_target = len(self.shared) / self.target.size
        return (
            f"{self.kinship.value} ({len(self.shared):,} shared: "
            f"{of_target:.0%} of the target's, {self.coverage:.0%} of the draft's)"
        )


def _strings(vocabulary: Vocabulary) -> list[bytes]:
    return [b"" if x in vocabulary.special else vocabulary.piece(x) for x in range(vocabulary.size)]


def _own(vocabulary: Vocabulary) -> dict[bytes, int]:
    """For every string that is a token, the one that the vocabulary itself writes; some have bytes as tokens too."""
    alike: dict[bytes, list[int]] = {}
    for token, piece in enumerate(_strings(vocabulary)):
        if piece:
            alike.setdefault(piece, []).append(token)
    return {piece: _written_one(vocabulary, piece, tokens) for piece, tokens in alike.items()}


def _written_one(vocabulary: Vocabulary, piece: bytes, tokens: list[int]) -> int:
    cut = _cut(vocabulary, piece) if len(tokens) > 1 else None
    return cut[0] if cut and len(cut) == 1 and cut[0] in tokens else tokens[0]


def _cut(vocabulary: Vocabulary, piece: bytes) -> tuple[int, ...] | None:
    """The tokens of some bytes, without a beginning-of-text token; None if they are no text."""
    try:
        tokens = vocabulary.encode(piece.decode(), special=False) if piece else ()
    except UnicodeDecodeError:
        return None
    return tokens[1:] if tokens and vocabulary.add_bos else tokens


def _behind(tokens: Sequence[int], vocabulary: Vocabulary) -> tuple[bytes, int]:
    """The bytes of the last few tokens since a control token, beginning with a whole character; and how many tokens."""
    size = 0
    while size < min(BEHIND, len(tokens)) and tokens[-1 - size] not in vocabulary.special:
        size += 1
    pieces = [vocabulary.piece(x) for x in tokens[len(tokens) - size :]]
    while pieces and (not pieces[0] or pieces[0][0] & 0xC0 == 0x80):
        pieces.pop(0)
    return b"".join(pieces), len(pieces)


def _whole(piece: bytes) -> int:
    """How many bytes are left if the last character, should it not be complete, is taken away."""
    for back in range(1, min(3, len(piece)) + 1):
        byte = piece[-back]
        if byte >= 0xC0:  # the first byte of a character tells its length
            return len(piece) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(piece)
        if byte < 0x80:
            break
    return len(piece)


def align(target: Vocabulary, draft: Vocabulary) -> Alignment:
    """How the vocabularies of a target and a draft model are related; refused if they share too little to draft."""
    if target.first_difference(draft) is None:
        kinship = Kinship.SAME if target.size == draft.size else Kinship.PADDED
        same = range(min(target.size, draft.size))
        return Alignment(target, draft, kinship, dict(zip(same, same, strict=True)), len(same) / draft.size)
    named = {draft.name(token): token for token in sorted(draft.special)}
    spelt = _own(draft)
    shared = {token: spelt[piece] for piece, token in _own(target).items() if piece in spelt}
    shared.update({token: named[name] for token in target.special if (name := target.name(token)) in named})
    coverage = len(set(shared.values())) / draft.size
    if coverage >= LEAST:
        return Alignment(target, draft, Kinship.SHARED, shared, coverage)
    writable = _writable(target, spelt)
    if writable >= WRITABLE:
        return Alignment(target, draft, Kinship.STRINGS, shared, coverage)
    raise BadRequest(
        f"only {coverage:.1%} of the draft's {draft.size:,} tokens are spelt the same in the target's "
        f"{target.size:,}, and only {writable:.0%} of those can be written with the draft's; expected at least "
        f"{LEAST:.0%}, or {WRITABLE:.0%}. Choose a draft model with a related tokenizer."
    )


def _writable(target: Vocabulary, spelt: Mapping[bytes, int], most: int = 5000) -> float:
    """The share of the target's tokens, of `most` evenly spread ones, that are made of the draft's."""
    pieces = [piece for piece in _strings(target) if piece]
    pieces = pieces[:: max(1, len(pieces) // most)]
    return sum(_is_made_of(piece, spelt) for piece in pieces) / max(1, len(pieces))


def _is_made_of(piece: bytes, spelt: Mapping[bytes, int]) -> bool:
    ends = {0}
    for end in range(1, len(piece) + 1):
        if any(piece[start:end] in spelt for start in ends):
            ends.add(end)
    return len(piece) in ends
