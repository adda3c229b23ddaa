"""Regular expressions and context-free grammars."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...core.errors import BadRequest
from ...core.option import expect
from .constraint import Constraint
from .form import Form, FormVocabulary, refuse_half_characters
from .matcher import engine, tongue
from .rules import endless


@dataclass(frozen=True)
class Regex(Form):
    """The whole text matches a regular expression, in the syntax of Rust's regex crate; no look-around.

    Cost: under a millisecond to compile, tens of microseconds per mask.
    """

    pattern: str

    def __post_init__(self) -> None:
        expect(isinstance(self.pattern, str) and self.pattern != "", "regex", self.pattern, "a regular expression")
        refuse_half_characters("regex", self.pattern)

    def fit(self, words: FormVocabulary) -> Constraint:
        grammar = engine().LLMatcher.grammar_from_regex(self.pattern)
        return tongue(words).compile(grammar, f"the regular expression {_short(self.pattern)!r}")


@dataclass(frozen=True)
class Grammar(Form):
    """The whole text is derived from a context-free grammar, in Lark's notation or in GBNF (`root ::= …`).

    Left recursion and ambiguity are fine: the parser is Earley's. Cost: milliseconds to compile, tens of microseconds
    per mask; ambiguity costs more.
    """

    source: str

    def __post_init__(self) -> None:
        expect(isinstance(self.source, str) and self.source.strip() != "", "grammar", self.source, "rules")
        refuse_half_characters("grammar", self.source)

    def fit(self, words: FormVocabulary) -> Constraint:
        llguidance = engine()
        try:
            lark = llguidance.gbnf_to_lark.any_to_lark(_renamed(self.source))
        except Exception as error:  # the converter has errors of its own, and raises plain ones too
            raise BadRequest(
                f"the grammar cannot be read: {error}. Expected Lark's notation (start: …) or GBNF (root ::= …)"
            ) from None
        if rules := endless(lark):
            shown = ", ".join(rules[:4]) + (" …" if len(rules) > 4 else "")
            raise BadRequest(
                f"the grammar cannot be met: it never ends, since these rules always need another of themselves: "
                f"{shown}. Give one of them an alternative that does not."
            )
        return tongue(words).compile(llguidance.LLMatcher.grammar_from_lark(lark), "the grammar")


def regex(pattern: str) -> Regex:
    """Texts that match a regular expression as a whole."""
    return Regex(pattern)


def grammar(source: str) -> Grammar:
    """Texts that a grammar derives, in Lark's notation or in GBNF."""
    return Grammar(source)


_WORDS = re.compile(r"""("(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*)|(?<![\w-])(start)(?![\w-])""", re.IGNORECASE)


def _renamed(source: str) -> str:
    """GBNF whose own rule `start` is called otherwise: the converter gives that name to `root`."""
    if not re.search(r"(?m)^\s*root\s*::=", source):
        return source
    return _WORDS.sub(lambda found: found[1] or "start-of-text", source)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[:most] + "…"
