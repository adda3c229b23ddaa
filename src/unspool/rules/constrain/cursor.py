"""The place of a matcher in its text: one matcher per text, moved to whichever prefix is asked about."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Protocol

from torch import Tensor

from ...core.errors import BadRequest
from .bits import Bits
from .constraint import Binds, State, dead, over
from .form import FormVocabulary

KEPT = 64  # masks remembered per text: a drafted tree looks at a few prefixes again and again
STRETCH = 4  # tokens read between two masks: only a mask gives the lexer new fuel, and without it would fail in silence
TIRED = 0.002  # seconds of the same: all its fuel is more than ten times as much


class VocabularyReader(Protocol):
    """A vocabulary as an engine reads it."""

    @property
    def words(self) -> FormVocabulary:
        """The vocabulary."""

    def bits(self, matcher: Any) -> Bits:
        """Which tokens may follow where this matcher stands."""

    def fill(self, matchers: Sequence[Any], rows: Sequence[int], out: Tensor) -> None:
        """Put the same of several matchers into rows of a uint8 [rows, bytes], each a mask in words of 32 bits."""

    def consume(self, matchers: Sequence[Any], tokens: Sequence[int]) -> list[bool]:
        """Have each of several matchers read a token; whether it could."""


class Original:
    """A matcher that texts have copies of; they share its lexer and all that it has learnt."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher
        self.spent = False  # a text went beyond the limits, which leaves every copy unusable


class MatcherState(Binds):
    """A prefix of a text, as the tokens that lead to it; nothing is computed before somebody asks."""

    __slots__ = ("ahead", "broken", "cursor", "depth", "parent", "token")

    def __init__(self, cursor: Cursor, parent: MatcherState | None, token: int) -> None:
        self.cursor, self.parent, self.token = cursor, parent, token
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.broken = False  # known to break the grammar
        self.ahead: tuple[int, ...] | None = None  # what must follow, once it is known

    def step(self, token: int) -> State:
        words = self.cursor.tongue.words
        if token in words.eos:
            return over(words) if self.complete() else dead(words)
        path = self.cursor.path
        if len(path) > self.depth + 1 and path[self.depth] is self and path[self.depth + 1].token == token:
            return path[self.depth + 1]  # the matcher has been there
        return MatcherState(self.cursor, self, token)

    @classmethod
    def step_all(cls, states: Sequence[MatcherState], tokens: Sequence[int]) -> list[Any]:
        """Each after a token that may follow it; matchers that stand there read it, on all cores."""
        after = [state.step(token) for state, token in zip(states, tokens, strict=True)]
        moving: dict[VocabularyReader, list[MatcherState]] = {}
        for state, new in zip(states, after, strict=True):
            if isinstance(new, MatcherState) and state.cursor.path[-1] is state:
                moving.setdefault(state.cursor.tongue, []).append(new)
        for tongue, news in moving.items():
            took = tongue.consume([each.cursor.matcher for each in news], [each.token for each in news])
            for each, read in zip(news, took, strict=True):
                each.cursor.read(each, read)
        return after

    @classmethod
    def fill(cls, states: Sequence[MatcherState], rows: Sequence[int], out: Tensor) -> None:
        """Look at all of these at once, on all cores; one by one where texts share a matcher, or sizes differ."""
        wide = 4 * ((states[0].cursor.tongue.words.size + 31) // 32)
        if len({id(state.cursor) for state in states}) < len(states) or out.stride() != (wide, 1):
            super().fill(states, rows, out)
            return
        standing: dict[VocabularyReader, list[tuple[Cursor, int]]] = {}
        for state, row in zip(states, rows, strict=True):
            if state.cursor.move(state):
                standing.setdefault(state.cursor.tongue, []).append((state.cursor, row))
            else:
                out[row] = 0
        for tongue, there in standing.items():
            tongue.fill([cursor.matcher for cursor, _ in there], [row for _, row in there], out)
            for cursor, _ in there:
                cursor.looked()

    @classmethod
    def accept_all(cls, states: Sequence[MatcherState], ranked: Sequence[Sequence[int]]) -> list[tuple[int, Any]]:
        """Read of each the first token that may follow."""
        return [state.cursor.accept(state, tokens) for state, tokens in zip(states, ranked, strict=True)]

    def follows(self, tokens: Sequence[int]) -> int:
        return self.cursor.follows(self, tokens)

    def mask(self) -> Tensor:
        return self.cursor.bits(self).mask()

    def bind(self, scores: Tensor) -> Tensor:
        return self.cursor.bits(self).bind(scores)

    def octets(self) -> Tensor:
        """The same as bits."""
        return self.cursor.bits(self).octets

    def allows(self, token: int) -> bool:
        if token in self.cursor.tongue.words.eos:
            return self.complete()
        return self.cursor.move(self) and self.cursor.can_read(token)

    def forced(self) -> tuple[int, ...]:
        return self.cursor.forced(self)

    def complete(self) -> bool:
        return self.cursor.move(self) and bool(self.cursor.matcher.is_accepting())


class Cursor:
    """One matcher and the prefix where it stands; it moves by taking tokens back and reading others.

    All prefixes of one text share it, so that a fork costs nothing and a look at a neighbour costs the tokens between.
    """

    def __init__(self, tongue: VocabularyReader, matcher: Any, original: Original) -> None:
        self.tongue, self.matcher = tongue, matcher
        self.path = [MatcherState(self, None, -1)]
        self._original = original
        self._read, self._seconds = 0, 0.0  # tokens since the last mask, and what reading some of them took
        self._known: OrderedDict[MatcherState, Bits] = OrderedDict()

    def move(self, place: MatcherState) -> bool:
        """Stand at a prefix; False if it breaks the grammar."""
        if self.path[-1] is place:
            return True
        ahead: list[MatcherState] = []
        while place.depth >= len(self.path) or self.path[place.depth] is not place:
            ahead.append(place)
            assert place.parent is not None  # the root is always on the path
            place = place.parent
        if any(new.broken for new in ahead):
            return False
        if back := len(self.path) - 1 - place.depth:
            self.matcher.rollback(back)
            del self.path[place.depth + 1 :]
        for i, new in enumerate(reversed(ahead)):
            if not (self.can_read(new.token) and self.matcher.try_consume_tokens([new.token]) == 1):
                for broken in ahead[: len(ahead) - i]:
                    broken.broken = True
                return False
            self.path.append(new)
        return True

    def can_read(self, token: int) -> bool:
        """True if this token may follow where the matcher stands; as in a mask, forced text has one spelling."""
        if self._read >= STRETCH:
            self._looked()
        self._read += 1
        known = self._known.get(self.path[-1])
        if known is not None:
            return token in known
        if forced := self._forced():
            return forced[0] == token
        if self.matcher.validate_tokens([token]) == 1:
            return True
        self._looked()  # it says so if the limits were what ended it
        return False

    def follows(self, place: MatcherState, tokens: Sequence[int]) -> int:
        """How many of these tokens may follow a prefix, one after the other."""
        if not self.move(place):
            return 0
        for count, token in enumerate(tokens):
            if token in self.tongue.words.eos:
                return count + bool(self.matcher.is_accepting())
            if not (self.can_read(token) and self.matcher.try_consume_tokens([token]) == 1):
                return count
            self.path.append(MatcherState(self, self.path[-1], token))
        return len(tokens)

    def accept(self, place: MatcherState, tokens: Sequence[int]) -> tuple[int, State]:
        """The first of these tokens that may follow a prefix, which is read, and the state after it; −1 if none may.

        Fuel that is used up would make a token fail in silence. Long before that a mask gives the lexer new one, by the
        time that reading took.
        """
        if not self.move(place):
            return -1, place
        if self._seconds > TIRED:
            self._looked()
        began, words, matcher = perf_counter(), self.tongue.words, self.matcher
        found: tuple[int, State] = -1, place
        forced = self._forced()
        for token in tokens:
            if token in words.eos:
                if matcher.is_accepting():
                    found = token, over(words)
                    break
                continue
            if token < 0 or not (forced[0] == token if forced else matcher.validate_tokens([token]) == 1):
                continue
            if matcher.try_consume_tokens([token]) == 1:
                self.path.append(MatcherState(self, place, token))
                found = token, self.path[-1]
                break
        self._read += 1
        self._seconds += perf_counter() - began
        return found

    def bits(self, place: MatcherState) -> Bits:
        """What may follow a prefix; computed once."""
        if place in self._known:
            return self._known[place]
        self._known[place] = bits = self._looked() if self.move(place) else Bits.none(self.tongue.words.size)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return bits

    def _looked(self) -> Bits:
        """What may follow where the matcher stands, computed now."""
        bits = self.tongue.bits(self.matcher)
        self.looked()
        return bits

    def looked(self) -> None:
        """Take note that a mask was computed where the matcher stands, which gives its lexer new fuel."""
        self._read, self._seconds = 0, 0.0
        self._refuse_failed()

    def read(self, place: MatcherState, took: bool) -> None:
        """Take note that the matcher has read the token that leads to a place, or could not."""
        if not took:
            place.broken = True
            self._refuse_failed()
            return
        self._read += 1
        self.path.append(place)

    def forced(self, place: MatcherState) -> tuple[int, ...]:
        """The tokens that must follow a prefix."""
        if not self.move(place):
            return ()
        if self.matcher.is_stopped():
            eos = self.tongue.words.eos
            return tuple(eos) if len(eos) == 1 else ()
        return self._forced()

    def _forced(self) -> tuple[int, ...]:
        place = self.path[-1]
        if place.ahead is None:  # to find the spelling costs more than all else
            place.ahead = tuple(self.matcher.compute_ff_tokens())
        return place.ahead

    def _refuse_failed(self) -> None:
        if self.matcher.is_error():
            self._original.spent = True
            reason = self.matcher.get_error().splitlines()[0]
            raise BadRequest(
                f"the grammar cannot be followed any further after {len(self.path) - 1} tokens: {reason}. Simplify it: "
                "nested repetitions with long bounds and heavy ambiguity are what costs most"
            )
