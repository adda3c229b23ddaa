"""llguidance behind the protocol: one matcher per text, moved to whichever prefix is asked about."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from ...core.errors import BadRequest, MissingExtra
from .bits import Bits, MaskCache
from .constraint import Binds, State, dead, over
from .form import FormVocabulary, spelt
from .trial import try_first

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits

LONGEST = 2_000_000  # characters of a grammar's source
KEPT = 64  # masks remembered per text: a drafted tree looks at a few prefixes again and again
ENDLESS = 4096  # forced tokens in a row after which a grammar counts as one that never ends
STRETCH = 4  # tokens read between two masks: only a mask gives the lexer new fuel, and without it would fail in silence


LIMITS = {
    "max_items_in_row": 2_000,
    "initial_lexer_fuel": 1_000_000,  # about 20 ms
    "step_lexer_fuel": 1_000_000,  # about 75 ms for one mask
    "step_max_items": 50_000,  # about 3 ms for one mask
    "max_lexer_states": 250_000,  # 1 to 2 kB each
    "max_grammar_size": 500_000,
    "verbose_errors": False,  # no state of the parser in a message to users
}
"""How much work a grammar may make: counted in steps, so that a refusal does not depend on the machine."""


def limits() -> LLParserLimits:
    """The same, as llguidance takes them."""
    from llguidance import LLParserLimits

    return LLParserLimits(**LIMITS)


class VocabularyReader(Protocol):
    """A vocabulary as an engine reads it."""

    @property
    def words(self) -> FormVocabulary:
        """The vocabulary."""

    def bits(self, matcher: Any) -> Bits:
        """Which tokens may follow where this matcher stands."""


class Tongue:
    """A vocabulary as llguidance reads it: a trie of all tokens, and how masks become tensors. Cost: 0.2 s, once."""

    def __init__(self, words: FormVocabulary) -> None:
        try:
            from llguidance import LLTokenizer, TokenizerWrapper
        except ImportError:
            raise MissingExtra("llguidance", "grammar", "a grammar, a regular expression or a JSON schema") from None
        if not words.eos:
            raise BadRequest("this vocabulary has no end-of-text token, so a text that meets a grammar could not end")
        self.words = words
        self.tokens = LLTokenizer(TokenizerWrapper(_Wrapped(words)), n_vocab=words.size, eos_token=sorted(words.eos))
        self._masks = MaskCache(words.size)

    def bits(self, matcher: LLMatcher) -> Bits:
        return self._masks.read(lambda bits: matcher.unsafe_compute_mask_ptr(bits.data_ptr(), bits.nbytes))

    def compile(self, grammar: str, named: str) -> Compiled:
        """The constraint that a grammar in llguidance's own form stands for."""
        from llguidance import LLMatcher

        if len(grammar) > LONGEST:
            raise BadRequest(f"{named} has {len(grammar)} characters; expected at most {LONGEST}")
        try_first(grammar)

        def fresh() -> LLMatcher:
            matcher = LLMatcher(self.tokens, grammar, log_level=0, limits=limits())
            if not matcher.is_error():
                self.bits(matcher)  # what is wrong with a grammar may show only here
            if matcher.is_error():
                raise BadRequest(_refusal(named, matcher.get_error()))
            return matcher

        compiled = Compiled(self, fresh)
        compiled.refuse_endless(named)
        return compiled


@lru_cache(maxsize=4)  # it takes a while, and a process has one vocabulary or two
def tongue(words: FormVocabulary) -> Tongue:
    """The vocabulary as llguidance reads it."""
    return Tongue(words)


class Compiled:
    """A grammar over a vocabulary, ready for any number of texts."""

    def __init__(self, tongue: VocabularyReader, fresh: Callable[[], Any]) -> None:
        self._tongue, self._fresh = tongue, fresh
        self._matcher = fresh()
        self.spent = False  # a text went beyond the limits, which leaves every copy of its matcher unusable

    def start(self) -> State:
        if self.spent:
            self._matcher, self.spent = self._fresh(), False
        return Cursor(self._tongue, self._matcher.deep_copy(), self).path[0]

    def refuse_endless(self, named: str) -> None:
        """Refuse a grammar that forces one token after the other for ever."""
        matcher, count = self._matcher.deep_copy(), 0
        while forced := matcher.compute_ff_tokens():
            count += len(forced)
            if count > ENDLESS:
                raise BadRequest(
                    f"{named} cannot be met: it forces more than {ENDLESS} tokens one after the other, or never ends"
                )
            if not matcher.consume_tokens(forced):  # it allows what it forces, so a limit was what ended it
                why = (matcher.get_error().splitlines() or ["the engine gives no reason"])[0]
                raise BadRequest(
                    f"{named} cannot be followed beyond its first {count} tokens: {why}. "
                    "Simplify it: name fewer optional properties in one object, or fewer alternatives in one place"
                )


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
        return MatcherState(self.cursor, self, token)

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

    def __init__(self, tongue: VocabularyReader, matcher: Any, whole: Compiled) -> None:
        self.tongue, self.matcher = tongue, matcher
        self.path = [MatcherState(self, None, -1)]
        self._whole = whole
        self._read = 0  # tokens since the last mask
        self._known: OrderedDict[MatcherState, Bits] = OrderedDict()

    def move(self, place: MatcherState) -> bool:
        """Stand at a prefix; False if it breaks the grammar."""
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

    def bits(self, place: MatcherState) -> Bits:
        """What may follow a prefix; computed once."""
        known = self._known.get(place)
        if known is None:
            if self.move(place):
                known = self._known[place] = self._looked()
            else:
                known = self._known[place] = Bits.none(self.tongue.words.size)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return known

    def _looked(self) -> Bits:
        """What may follow where the matcher stands, computed now, which also gives its lexer new fuel."""
        bits, self._read = self.tongue.bits(self.matcher), 0
        self._refuse_failed()
        return bits

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
            self._whole.spent = True
            reason = self.matcher.get_error().splitlines()[0]
            raise BadRequest(
                f"the grammar cannot be followed any further after {len(self.path) - 1} tokens: {reason}. Simplify it: "
                "nested repetitions with long bounds and heavy ambiguity are what costs most"
            )


class _Wrapped:
    """What llguidance asks of a tokenizer."""

    def __init__(self, words: FormVocabulary) -> None:
        self._words = words
        pieces = [words.piece(token) for token in range(words.size)]
        control = [token for token, piece in enumerate(pieces) if not piece]
        # a control token needs a name that no text spells; their own names are unknown here
        self.tokens = [piece or f"<|control {token}|>".encode() for token, piece in enumerate(pieces)]
        self.special_token_ids = sorted({*control, *words.eos})
        self.eos_token_id = min(words.eos)
        self.bos_token_id = None
        self._known = {piece: token for token, piece in reversed(list(enumerate(pieces))) if piece}
        self._longest = max(map(len, self._known), default=1)

    def __call__(self, text: bytes | str) -> list[int]:
        """The tokens of a text whose bytes are these, in the model's own spelling if that adds nothing."""
        data = text if isinstance(text, bytes) else text.encode()
        try:
            tokens: Sequence[int] = spelt(data.decode(), self._words)
        except (UnicodeDecodeError, BadRequest):
            tokens = ()
        if b"".join(map(self._words.piece, tokens)) == data:
            return list(tokens)
        return self._greedy(data)

    def _greedy(self, data: bytes) -> list[int]:
        """The longest token that fits, again and again; it ends early where no token fits."""
        tokens: list[int] = []
        while data:
            sizes = range(min(self._longest, len(data)), 0, -1)
            size = next((n for n in sizes if data[:n] in self._known), None)
            if size is None:
                break
            tokens.append(self._known[data[:size]])
            data = data[size:]
        return tokens


def _refusal(named: str, error: str) -> str:
    lines = [line for line in error.splitlines() if not line.startswith("<")]
    if not lines or lines[0].startswith("NoExtension"):
        return f"{named} cannot be met: no text, not even the empty one, can follow it to its end"
    return f"{named} cannot be used: " + "\n".join(lines).strip()


def engine() -> Any:
    """The package that compiles grammars."""
    try:
        import llguidance
    except ImportError:
        raise MissingExtra("llguidance", "grammar", "a grammar, a regular expression or a JSON schema") from None
    return llguidance
