"""Formats of strings, told by the same grammars wherever a text is checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .dates import PATTERNS
from .form import FormVocabulary, spelt
from .keyword import KNOWN_FORMATS
from .matcher import Compiled, engine, tongue

HOSTNAME = 253  # letters that a host name has at most


def checker(known: Any, words: FormVocabulary) -> Any:
    """What the package jsonschema asks about formats: its own checks, and ours where a grammar knows better.

    jsonschema lets a format pass that it has no check for, which without further packages are most of them.
    """
    from jsonschema import FormatChecker

    made = FormatChecker(())
    made.checkers = dict(known.checkers)
    for name in KNOWN_FORMATS:
        made.checks(name)(_check(name, words))
    return made


def spell_out(part: dict[str, Any]) -> None:
    """Say in other keywords what llguidance's own format is too lax about, beside whatever else the schema asks."""
    name = part.get("format")
    if name == "hostname":
        most = part.get("maxLength", HOSTNAME)
        part["maxLength"] = min(most, HOSTNAME) if isinstance(most, int) else most
    elif isinstance(name, str) and name in PATTERNS:
        del part["format"]
        if "pattern" not in part:
            part["pattern"] = PATTERNS[name]
        else:
            part["allOf"] = [*part.get("allOf", ()), {"pattern": PATTERNS[name]}]


def _check(name: str, words: FormVocabulary) -> Callable[[Any], bool]:
    def right(value: Any) -> bool:
        if not isinstance(value, str):
            return True
        state = _compiled(name, words).start()
        for token in spelt(json.dumps(value, ensure_ascii=False), words):
            state = state.step(token)
        return state.complete()

    return right


@lru_cache(maxsize=2 * len(KNOWN_FORMATS))
def _compiled(name: str, words: FormVocabulary) -> Compiled:
    schema = {"type": "string", "format": name}
    spell_out(schema)
    grammar = engine().LLMatcher.grammar_from_json_schema(json.dumps(schema))
    return tongue(words).compile(grammar, f"the format {name}")
