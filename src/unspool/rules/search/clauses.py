"""Clauses: what the texts of a search have said of what they must say."""

from __future__ import annotations

from collections.abc import Sequence

from ..constrain.form import spelt
from ..constrain.lexical import ClauseState, Lexical
from .ahead import Chain, WatchedChains
from .search_text import Text


class Clauses:
    """Keeps account of all texts, each from what is known of its beginning."""

    def __init__(self, lexical: Lexical | None) -> None:
        self.lexical = lexical
        self._known: dict[tuple[int, ...], ClauseState] = {}
        self._chains: dict[bytes, tuple[Chain, ...]] = {}

    def within(self, texts: list[Text], tolerance: int) -> list[Text]:
        """Those that have said nearly as many clauses as any; a text that is cut off early only if none is whole."""
        most = max((self.met(text) for text in texts), default=0)
        whole_one = any(text.reason and not self.unsaid(text) for text in texts)
        near = [text for text in texts if self.met(text) >= most - tolerance]
        return [text for text in near if not (whole_one and text.reason and self.unsaid(text))]

    def in_turn(self, texts: Sequence[Text], ranks: Sequence[float]) -> list[Text]:
        """The best of every set of clauses, then the second best of each, and so on."""
        groups: dict[int, list[int]] = {}
        for i in sorted(range(len(texts)), key=lambda i: -ranks[i]):
            groups.setdefault(self._have(texts[i]), []).append(i)
        turns = range(max(map(len, groups.values()), default=0))
        return [texts[group[turn]] for turn in turns for group in groups.values() if turn < len(group)]

    def met(self, text: Text) -> int:
        """How many clauses a text has said."""
        return self._have(text).bit_count()

    def unsaid(self, text: Text) -> bool:
        """Whether there is something left to say."""
        return self.lexical is not None and self._have(text) != self.lexical.all

    def advances(self, text: Text, token: int) -> bool:
        """Whether a token says a phrase that was not said, or all of it belongs to one that it begins or continues."""
        state, lexical = self._state(text), self.lexical
        if state is None or lexical is None or token in lexical.words.eos:
            return False
        piece = lexical.words.piece(token)
        node, have = lexical.read(state.node, state.have, piece)
        size = len(piece.lstrip())
        return have != state.have or (
            size > 0 and any(lexical.under_way(node, phrase) >= size for phrase in lexical.unmet(have))
        )

    def view(self, text: Text) -> WatchedChains:
        """The phrases that a text has not said, and what is missing of those that it has begun."""
        state, lexical = self._state(text), self.lexical
        assert state is not None
        assert lexical is not None  # there are clauses if something is unsaid
        unmet = lexical.unmet(state.have)
        begun = [(phrase, size) for phrase in unmet if (size := lexical.under_way(state.node, phrase))]
        now = [chain for phrase, size in begun for chain in self._spelt(phrase[size:])[:1]]
        return WatchedChains(text, now, [chain for phrase in unmet for chain in self._spelt(phrase)])

    def _spelt(self, phrase: bytes) -> tuple[Chain, ...]:
        """A phrase in tokens, as it stands and as a word of its own."""
        if phrase not in self._chains:
            assert self.lexical is not None
            text = phrase.decode("utf-8", "ignore")
            both = [spelt(written, self.lexical.words) for written in (text, f" {text}") if text]
            self._chains[phrase] = tuple(dict.fromkeys(chain for chain in both if chain))
        return self._chains[phrase]

    def _have(self, text: Text) -> int:
        state = self._state(text)
        return 0 if state is None else state.have

    def _state(self, text: Text) -> ClauseState | None:
        """What was found in a text, from what was found in its beginning."""
        if self.lexical is None:
            return None
        if text.tokens not in self._known:
            here = self._known.get(text.tokens[:-1], ClauseState(self.lexical, 0, 0))
            rest = text.tokens[-1:] if text.tokens[:-1] in self._known else text.tokens
            data = b"".join(map(self.lexical.words.piece, rest))
            self._known[text.tokens] = ClauseState(self.lexical, *self.lexical.read(here.node, here.have, data))
        return self._known[text.tokens]
