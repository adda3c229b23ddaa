"""Constraints of every kind over vocabularies of a few letters, with one and with two tokens that end a text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from letters import Letters

from unspool.rules.constrain import cfg, choices, json_schema, keywords, regex
from unspool.rules.constrain.constraint import Constraint
from unspool.rules.constrain.form import Form

PIECES = ("{", "}", '"', ":", "a", "b", "1", "2", " ", ".", "(", ")", '{"', '":', "ab", "a(", "\n")


@dataclass(frozen=True)
class Spelt(Letters):
    """Letters that can also be asked for the token that a text is."""

    def token(self, text: str) -> int | None:
        return self.pieces.index(text) if text in self.pieces else None


def is_json(text: str) -> bool:
    told = json.loads(text)
    return set(told) == {"a"} and isinstance(told["a"], int)


WORDS = {ends: Spelt(PIECES, controls=1, ends=ends) for ends in (1, 2)}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMS: dict[str, tuple[Form, Callable[[str], object]]] = {  # with what a text of it is recognised by
    "regex": (regex(r"(a\(|\)){2,4}"), lambda text: re.fullmatch(r"(a\(|\)){2,4}", text)),
    "schema": (json_schema(SCHEMA), is_json),
    "choices": (choices("ab", "a(b)", "1.2"), lambda text: text in ("ab", "a(b)", "1.2")),
    "keywords": (keywords("ab", "1"), lambda text: "ab" in text and "1" in text),
    "cfg": (
        cfg({"V": ["{ S : V }", "N"]}, {"S": '"[ab]+"', "N": "[12]+"}, ignore=r"[ \n]+"),
        lambda text: isinstance(json.loads(text), dict | int),
    ),
}
WAYS = [(kind, temperature, ends) for kind in FORMS for temperature in (0.0, 1.0) for ends in WORDS]


@cache
def bound(kind: str, ends: int, most: int | None = None) -> Constraint:
    """A form over the tokens of a vocabulary, made once; a method that reads is told how long its text may be."""
    form = FORMS[kind][0]
    return (form if most is None else form.within(most)).fit(WORDS[ends])


def meets(tokens: tuple[int, ...], kind: str, ends: int) -> bool:
    """Whether a text has its form and ends with its first end token."""
    words = WORDS[ends]
    return bool(FORMS[kind][1](words.decode(tokens))) and not words.eos & set(tokens[:-1])
