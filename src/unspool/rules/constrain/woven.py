"""JSON by schemas inside a grammar: rules in which `@name` stands for what a schema accepts."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .constraint import Constraint
from .form import Form, FormVocabulary
from .matcher import tongue
from .schema import JsonSchema


@dataclass(frozen=True)
class Woven(Form):
    """The whole text is derived from rules in Lark's notation; `@name` is JSON that the schema of that name accepts.

    As one grammar, so that a token may reach from the rules into the JSON, and references inside a schema mean that
    schema. Cost: milliseconds to compile for each schema, tens of microseconds per mask.
    """

    source: str
    schemas: tuple[tuple[str, JsonSchema], ...]

    def fit(self, words: FormVocabulary) -> Constraint:
        grammars = [{"name": "rules", "lark_grammar": self.source}]
        for name, schema in self.schemas:
            (part,) = json.loads(schema.enforceable())["grammars"]
            grammars.append({**part, "name": name})
        return tongue(words).compile(json.dumps({"grammars": grammars}), "the grammar with its schemas")
