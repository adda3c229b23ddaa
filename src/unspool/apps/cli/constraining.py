"""What a text must be, as given on the command line: a schema, an expression, a grammar, a list of texts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ...rules import constrain
from .group import option
from .terminal import STDIN, read_file, utf8

if TYPE_CHECKING:
    from ...rules.constrain import Form

FORCED = "forced"  # the method under a constraint, unless told: the text of plain, without a forward for what is forced


@dataclass(frozen=True)
class Constraining:
    """What the text must be; at most one of these."""

    HEADING = "Structured output"

    json_schema: str | None = option(
        "--json-schema",
        metavar="FILE|JSON",
        help="The text is JSON that this schema accepts: a file, - or '{…}' itself.",
    )
    json_check: bool = option(
        "--json-check", is_flag=True, help="What a grammar cannot enforce of the schema is checked at the end."
    )
    regex: str | None = option("--regex", metavar="REGEX", help="The whole text matches this regular expression.")
    grammar: str | None = option(
        "--grammar", metavar="FILE", help="The text is derived from this grammar (Lark or GBNF); - is stdin."
    )
    items: str | None = option(
        "--items", metavar="FILE", help="The text is one of the lines of this file, of which there may be millions."
    )
    choices: str | None = option("--choices", metavar="A,B,…", help="The text is one of these.")
    within: int | None = option(
        "--within", type=int, metavar="N", help="Close the text within N tokens, so that it is never cut."
    )

    def form(self, most: int) -> Form | None:
        """The one that was given, closed in time if that was asked for; `most` tokens may be written."""
        found = self._form()
        if self.within is None:
            return found
        if found is None:
            raise click.UsageError("--within goes with --json-schema, --regex, --grammar, --items or --choices")
        if self.within > most:
            raise click.UsageError(
                f"--within {self.within} is more than --max-tokens {most}; raise that, or ask for less"
            )
        return found.within(self.within)

    def _form(self) -> Form | None:
        given = [
            name for name in ("json_schema", "regex", "grammar", "items", "choices") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise click.UsageError(f"{flags}: give one of these")
        if self.json_check and self.json_schema is None:
            raise click.UsageError("--json-check goes with --json-schema")
        if self.json_schema is not None:
            inline = self.json_schema.lstrip().startswith("{")
            schema = self.json_schema if inline else _source(self.json_schema)
            return constrain.json_schema(schema, self.json_check)
        if self.regex is not None:
            return constrain.regex(self.regex)
        if self.grammar is not None:
            return constrain.grammar(_source(self.grammar))
        if self.items is not None:
            return constrain.items(self.items)
        return None if self.choices is None else constrain.choices(*self.choices.split(","))

    def reads_stdin(self) -> bool:
        """True if stdin is taken."""
        return STDIN in (self.json_schema, self.grammar)


def _source(path: str) -> str:
    return utf8(sys.stdin.buffer.read(), "stdin") if path == STDIN else read_file(path)
