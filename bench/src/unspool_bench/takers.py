"""What is measured: ways to make a constraint of a JSON schema, ours and what others would do alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from unspool.rules.constrain import Constraint, Report, json_schema
from unspool.rules.constrain.form import FormVocabulary
from unspool.rules.constrain.matcher import engine, tongue
from unspool.rules.constrain.xgrammar import compiled


class Taker(Protocol):
    """A way to make a constraint of a schema."""

    def take(self, schema: Any, words: FormVocabulary) -> tuple[Constraint, Report]:
        """The constraint, and what it says becomes of each keyword; BadRequest if the schema is refused."""
        ...

    def refused(self, schema: Any) -> tuple[str, ...]:
        """The keywords for which a schema is refused, as far as they can be told."""
        ...


@dataclass(frozen=True)
class Unspool:
    """`json_schema(schema, check)`."""

    check: bool = False

    def take(self, schema: Any, words: FormVocabulary) -> tuple[Constraint, Report]:
        """The constraint as every user gets it."""
        form = json_schema(schema, self.check)
        return form.fit(words), form.report

    def refused(self, schema: Any) -> tuple[str, ...]:
        """What the report names."""
        return tuple(sorted({use.keyword for use in json_schema(schema, self.check).report.refused}))


@dataclass(frozen=True)
class Llguidance:
    """What llguidance makes of a schema by itself."""

    def take(self, schema: Any, words: FormVocabulary) -> tuple[Constraint, Report]:
        """The grammar of its own front end, with nothing added or refused by us."""
        grammar = engine().LLMatcher.grammar_from_json_schema(json.dumps(schema))
        return tongue(words).compile(grammar, "the JSON schema"), Report()

    def refused(self, schema: Any) -> tuple[str, ...]:
        """Not told by name."""
        return ()


@dataclass(frozen=True)
class XGrammar:
    """What xgrammar makes of a schema by itself."""

    def take(self, schema: Any, words: FormVocabulary) -> tuple[Constraint, Report]:
        """Its grammar, without the check at the end that we put behind it."""
        return compiled(json.dumps(schema), words), Report()

    def refused(self, schema: Any) -> tuple[str, ...]:
        """Not told by name."""
        return ()


TAKERS: Mapping[str, Taker] = {
    "unspool": Unspool(),
    "unspool-check": Unspool(check=True),
    "llguidance": Llguidance(),
    "xgrammar": XGrammar(),
}
