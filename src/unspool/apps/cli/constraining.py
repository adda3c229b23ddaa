"""The options that say what a text must be: JSON by a schema, a regular expression, a grammar, a choice."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ...rules import constrain
from .group import option
from .reading_input import STDIN, read_file, utf8

if TYPE_CHECKING:
    from ...rules.constrain import Form


@dataclass(frozen=True)
class Constraining:
    """What the text must be; at most one of these."""

    json_schema: str | None = option(
        "--json-schema", metavar="FILE", help="The text is JSON that this schema accepts; - is stdin."
    )
    json_check: bool = option(
        "--json-check", is_flag=True, help="What a grammar cannot enforce of the schema is checked at the end."
    )
    regex: str | None = option("--regex", metavar="REGEX", help="The whole text matches this regular expression.")
    grammar: str | None = option(
        "--grammar", metavar="FILE", help="The text is derived from this grammar (Lark or GBNF); - is stdin."
    )
    choices: str | None = option("--choices", metavar="A,B,…", help="The text is one of these.")

    def form(self) -> Form | None:
        """The one that was given."""
        given = [name for name in ("json_schema", "regex", "grammar", "choices") if getattr(self, name) is not None]
        if len(given) > 1:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise click.UsageError(f"{flags}: give one of these")
        if self.json_check and self.json_schema is None:
            raise click.UsageError("--json-check goes with --json-schema")
        if self.json_schema is not None:
            return constrain.json_schema(_source(self.json_schema), self.json_check)
        if self.regex is not None:
            return constrain.regex(self.regex)
        if self.grammar is not None:
            return constrain.grammar(_source(self.grammar))
        return None if self.choices is None else constrain.choices(*self.choices.split(","))

    def reads_stdin(self) -> bool:
        """True if stdin is taken."""
        return STDIN in (self.json_schema, self.grammar)


def _source(path: str) -> str:
    return utf8(sys.stdin.buffer.read(), "stdin") if path == STDIN else read_file(path)
