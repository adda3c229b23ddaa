"""Response formats: what the text of an answer must be, as OpenAI's clients say it and a little more."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ...rules.constrain import Form, choices, grammar, json_schema, regex
from .fields import Body

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(fail_fast=True)]


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Body):
    """A JSON Schema; OpenAI's clients give it a name too, which is not used."""

    schema_: dict[str, Any] | bool | None = Field(None, alias="schema", description="an object, true or false")


class JsonSchemaFormat(Body):
    """JSON that meets a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema = Field(description="an object with a schema")


class RegexFormat(Body):
    """Text that a regular expression matches as a whole."""

    type: Literal["regex"]
    regex: Text = Field(description="a regular expression")


class GrammarFormat(Body):
    """Text of a language, by its grammar."""

    type: Literal["grammar"]
    grammar: Text = Field(description="a grammar")


class ChoicesFormat(Body):
    """One of several texts."""

    type: Literal["choices"]
    choices: Text | Texts = Field(description="a list of strings, none of them empty")


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | GrammarFormat | ChoicesFormat,
    Field(discriminator="type"),
]


def form(given: ResponseFormat | None) -> Form | None:
    """The form that a text is to have; None for any."""
    match given:
        case JsonObjectFormat():
            return json_schema({"type": "object"})
        case JsonSchemaFormat(json_schema=NamedSchema(schema_=schema)):
            return json_schema({} if schema is None else schema)
        case RegexFormat(regex=pattern):
            return regex(pattern)
        case GrammarFormat(grammar=rules):
            return grammar(rules)
        case ChoicesFormat(choices=str(text)):
            return choices(text)
        case ChoicesFormat(choices=texts):
            return choices(*texts)
    return None
