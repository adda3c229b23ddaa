"""xgrammar behind the protocol: JSON by a schema, by another engine and with a check at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...core.extra import brought_by
from .bits import Bits, MaskCache
from .checked_constraint import CheckedConstraint
from .constraint import Constraint
from .form import Form, FormVocabulary
from .matcher import Compiled
from .schema import json_schema, validator

CACHE = 256 << 20  # bytes of compiled parts that are kept, since schemas have most parts in common


@dataclass(frozen=True)
class XGrammarSchema(Form):
    """The text is JSON that a schema accepts, as far as xgrammar enforces it; the rest is checked at the end.

    xgrammar takes nearly every schema, and does not say which keywords it leaves out or reads more narrowly. So the
    text may end only where the package jsonschema finds nothing wrong with it. What is accepted too narrowly stays so.
    It has no limits of time or memory: a string with `maxLength` can take seconds. Not for schemas of strangers.

    Cost: milliseconds to seconds to compile, microseconds per mask.
    """

    source: str

    def fit(self, words: FormVocabulary) -> Constraint:
        return CheckedConstraint(compiled(self.source, words), validator(self.source, words), words)


def xgrammar_schema(schema: Mapping[str, Any] | bool | str | Any) -> XGrammarSchema:
    """JSON that this schema accepts, by xgrammar: a mapping, JSON text, or a class with `model_json_schema`."""
    return XGrammarSchema(json_schema(schema).source)


def compiled(source: str, words: FormVocabulary) -> Compiled:
    """What xgrammar alone makes of a schema, without a check."""
    vocabulary = _vocabulary(words)
    try:
        # strict_mode would forbid what a schema does not name, which JSON Schema allows
        grammar = vocabulary.compiler.compile_json_schema(source, strict_mode=False, max_whitespace_cnt=16)
    except RuntimeError as error:
        why = re.sub(r"^\[[0-9:]+\] \S+ ", "", str(error).strip().splitlines()[-1])  # its own source file and line
        raise BadRequest(f"xgrammar cannot use the JSON schema: {why}") from None
    return Compiled(vocabulary, lambda: _Matcher(vocabulary.engine.GrammarMatcher(grammar)))


class XgrammarVocabulary:
    """A vocabulary as xgrammar reads it. Cost: 0.3 s, once."""

    def __init__(self, words: FormVocabulary) -> None:
        self.engine = _engine()
        if not words.eos:
            raise BadRequest("this vocabulary has no end-of-text token, so a text that meets a grammar could not end")
        self.words = words
        pieces = [words.piece(token) for token in range(words.size)]  # an empty one is a control token to xgrammar
        info = self.engine.TokenizerInfo(pieces, vocab_size=words.size, stop_token_ids=sorted(words.eos))
        self.compiler = self.engine.GrammarCompiler(info, max_threads=1, cache_limit_bytes=CACHE)
        self._masks = MaskCache(words.size)

    def bits(self, matcher: Any) -> Bits:
        return self._masks.read(matcher.fill)

    def fill(self, matchers: Sequence[Any], rows: Sequence[int], out: Tensor) -> None:
        for matcher, row in zip(matchers, rows, strict=True):
            matcher.fill(out[row].view(torch.int32))

    def consume(self, matchers: Sequence[Any], tokens: Sequence[int]) -> list[bool]:
        return [m.try_consume_tokens([token]) == 1 for m, token in zip(matchers, tokens, strict=True)]


class _Matcher:
    """A matcher of xgrammar with the verbs of llguidance's, so that both can be moved alike."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def deep_copy(self) -> _Matcher:
        return _Matcher(self._matcher.fork())

    def fill(self, bits: Tensor) -> None:
        self._matcher.fill_next_token_bitmask(bits[None])

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)

    def try_consume_tokens(self, tokens: Sequence[int]) -> int:
        for done, token in enumerate(tokens):
            if not self._matcher.accept_token(token):
                return done
        return len(tokens)

    def validate_tokens(self, tokens: Sequence[int]) -> int:
        done = self.try_consume_tokens(tokens)
        if done:
            self._matcher.rollback(done)
        return done

    def compute_ff_tokens(self) -> list[int]:
        return []  # xgrammar forces bytes, and how a model would spell them is another question

    def is_accepting(self) -> bool:
        return bool(self._matcher.is_completed())

    def is_stopped(self) -> bool:
        return False

    def is_error(self) -> bool:
        return False


@lru_cache(maxsize=2)
def _vocabulary(words: FormVocabulary) -> XgrammarVocabulary:
    return XgrammarVocabulary(words)


def _engine() -> Any:
    return brought_by("xgrammar", "xgrammar", "a JSON schema by xgrammar")
