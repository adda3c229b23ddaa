"""llguidance behind the protocol: a vocabulary as it reads it, and grammars compiled over that."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...core.errors import BadRequest
from ...core.extra import brought_by
from .bits import Bits, MaskCache
from .constraint import State
from .cursor import Cursor, Original, VocabularyReader
from .form import FormVocabulary, spelt
from .trial import on_trial, try_first

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLParserLimits

LONGEST = 2_000_000  # characters of a grammar's source
ENDLESS = 4096  # forced tokens in a row after which a grammar counts as one that never ends
THREADS = 32  # that compute masks at most
QUICK = 0.005  # seconds that a grammar may take to compile if texts are to have lexers of their own
LEXERS = 16  # of one grammar at most: each learns for itself what its texts need
KEPT, SHORT = 16, 65_536  # grammars that are remembered, and the characters of one at most


CROWDED = re.compile(r"row has ([0-9]+) items; max is ([0-9]+)")
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
    made: LLParserLimits = engine().LLParserLimits(**LIMITS)
    return made


class Tongue:
    """A vocabulary as llguidance reads it: a trie of all tokens, and how masks become tensors. Cost: 0.2 s, once."""

    def __init__(self, words: FormVocabulary) -> None:
        known = engine()
        if not words.eos:
            raise BadRequest("this vocabulary has no end-of-text token, so a text that meets a grammar could not end")
        self.words = words
        wrapped = known.TokenizerWrapper(_Wrapped(words))
        self.tokens = known.LLTokenizer(wrapped, n_vocab=words.size, eos_token=sorted(words.eos))
        self._masks = MaskCache(words.size)
        self._known: OrderedDict[str, Compiled] = OrderedDict()

    def bits(self, matcher: LLMatcher) -> Bits:
        return self._masks.read(lambda bits: matcher.unsafe_compute_mask_ptr(bits.data_ptr(), bits.nbytes))

    def fill(self, matchers: Sequence[LLMatcher], rows: Sequence[int], out: Tensor) -> None:
        """Of several, on all cores."""
        asked = list(zip(matchers, rows, strict=True))
        _executor().unsafe_compute_mask_ptr(asked, out.data_ptr(), out.stride(0), len(out))

    def consume(self, matchers: Sequence[LLMatcher], tokens: Sequence[int]) -> list[bool]:
        """Of several, on all cores."""
        took: list[bool] = _executor().consume_token_par(list(zip(matchers, tokens, strict=True)))
        return took

    def compile(self, grammar: str, named: str) -> Compiled:
        """The constraint that a grammar in llguidance's own form stands for.

        A grammar of one's own is remembered, with what texts have taught its lexers; one of a stranger is not, since a
        text may make a lexer large.
        """
        if len(grammar) > LONGEST:
            raise BadRequest(f"{named} has {len(grammar)} characters; expected at most {LONGEST}")
        if on_trial() or len(grammar) > SHORT:
            try_first(grammar)
            return self._compiled(grammar, named)
        known = self._known.pop(grammar, None) or self._compiled(grammar, named)
        self._known[grammar] = known
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return known

    def _compiled(self, grammar: str, named: str) -> Compiled:
        def fresh() -> LLMatcher:
            matcher: LLMatcher = engine().LLMatcher(self.tokens, grammar, log_level=0, limits=limits())
            if not matcher.is_error():
                self.bits(matcher)  # what is wrong with a grammar may show only here
            if matcher.is_error():
                raise BadRequest(_refusal(named, matcher.get_error()))
            return matcher

        compiled = Compiled(self, fresh)
        compiled.refuse_endless(named)
        return compiled


@lru_cache
def _executor() -> LLExecutor:
    """The threads that compute masks."""
    made: LLExecutor = engine().LLExecutor(threads())
    return made


def threads() -> int:
    """How many compute masks."""
    return min(os.cpu_count() or 1, THREADS)


@lru_cache(maxsize=4)  # it takes a while, and a process has one vocabulary or two
def tongue(words: FormVocabulary) -> Tongue:
    """The vocabulary as llguidance reads it."""
    return Tongue(words)


class Compiled:
    """A grammar over a vocabulary, ready for any number of texts.

    Copies of a matcher share its lexer, one at a time: the masks of texts that are written together would be computed
    one after the other. So texts take turns with many matchers, where a grammar compiles fast and there are threads.
    """

    def __init__(self, tongue: VocabularyReader, fresh: Callable[[], Any]) -> None:
        self._tongue, self._fresh = tongue, fresh
        began = perf_counter()
        self._originals = [Original(fresh())]
        self._most = LEXERS if perf_counter() - began < QUICK and threads() > 1 else 1
        self._turn = count()

    def start(self) -> State:
        number = next(self._turn) % self._most
        if number >= len(self._originals):
            self._originals.append(Original(self._fresh()))
            number = len(self._originals) - 1
        elif self._originals[number].spent:
            self._originals[number] = Original(self._fresh())
        original = self._originals[number]
        return Cursor(self._tongue, original.matcher.deep_copy(), original).path[0]

    def refuse_endless(self, named: str) -> None:
        """Refuse a grammar that forces one token after the other for ever."""
        matcher, written = self._originals[0].matcher.deep_copy(), 0
        while forced := matcher.compute_ff_tokens():
            written += len(forced)
            if written > ENDLESS:
                raise BadRequest(
                    f"{named} cannot be met: it forces more than {ENDLESS} tokens one after the other, or never ends"
                )
            if not matcher.consume_tokens(forced):  # it allows what it forces, so a limit was what ended it
                why = (matcher.get_error().splitlines() or ["the engine gives no reason"])[0]
                if crowded := CROWDED.search(why):
                    raise BadRequest(
                        f"{named} lets too much follow in one place, behind its first {written} tokens: {crowded[1]} "
                        f"parts of its grammar, and {crowded[2]} are allowed. An optional property counts as four, so "
                        "one object may have about 490 of them: make others required, or group them in objects"
                    )
                raise BadRequest(
                    f"{named} cannot be followed beyond its first {written} tokens: {why}. "
                    "Simplify it: name fewer optional properties in one object, or fewer alternatives in one place"
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
    return f"{named} cannot be used: " + "\n".join(line[:400] for line in lines[:12]).strip()  # it quotes the source


def engine() -> Any:
    """The package that compiles grammars."""
    return brought_by("grammar", "llguidance", "a grammar, a regular expression or a JSON schema")
