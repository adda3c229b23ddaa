"""Response formats: what the text of an answer must be, as OpenAI's clients say it and a little more."""

from __future__ import annotations

from ...rules.constrain import Form, choices, grammar, json_schema, regex
from .fields import Fields, wrong

KINDS = "text, json_object, json_schema, regex, grammar or choices"


def form(given: Fields | None) -> Form | None:
    """The form that a `response_format` asks for; None for any text."""
    kind = None if given is None else given.text("type")
    if given is None or kind == "text":
        return None
    match kind:
        case "json_object":
            return json_schema({"type": "object"})
        case "json_schema":
            inner = given.object("json_schema") or wrong("response_format.json_schema", None, "an object with a schema")
            schema = inner.raw("schema")
            if schema is not None and not isinstance(schema, (dict, bool)):
                wrong("response_format.json_schema.schema", schema, "an object, true or false")
            return json_schema({} if schema is None else schema)
        case "regex":
            return regex(given.text("regex") or wrong("response_format.regex", None, "a regular expression"))
        case "grammar":
            return grammar(given.text("grammar") or wrong("response_format.grammar", None, "a grammar"))
        case "choices":
            return choices(*given.texts("choices"))
    return wrong("response_format.type", kind, KINDS)
