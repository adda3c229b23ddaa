"""JSON Schema: what of it a grammar enforces, what can only be checked at the end, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import BadRequest, MissingExtra
from ..warp.limits import expect
from .checked import Checked
from .constraint import Constraint
from .form import Form, Words
from .keyword import ENFORCED, FORMATS, KNOWN_FORMATS, SILENT, UNENFORCED, inside, pointless
from .matcher import engine, tongue

SPACE = r"(\n {0,16}| )?"  # a line break with some indentation, or one blank: no model can write blanks for ever


class Use(NamedTuple):
    """A keyword, and where in the schema it stands, as a JSON pointer."""

    keyword: str
    at: str

    def __str__(self) -> str:
        return f"{self.keyword!r} at {self.at or 'the top'}"


@dataclass(frozen=True)
class Report:
    """What becomes of every keyword of a schema.

    `enforced`: no text can break it. `checked`: the finished text is tested, because the user asked for that.
    `refused`: the schema is not used at all. `unknown`: JSON Schema gives it no meaning, so nothing follows from it.
    """

    enforced: tuple[Use, ...] = ()
    checked: tuple[Use, ...] = ()
    refused: tuple[Use, ...] = ()
    unknown: tuple[Use, ...] = ()

    def __str__(self) -> str:
        parts = [("enforced", self.enforced), ("checked at the end", self.checked)]
        parts += [("refused", self.refused), ("unknown to JSON Schema", self.unknown)]
        return "\n".join(f"{name}: {', '.join(map(str, uses))}" for name, uses in parts if uses)


@dataclass(frozen=True)
class JsonSchema(Form):
    """The text is JSON that a schema accepts.

    Keywords that the grammar cannot enforce make the schema refused, unless `check`: then they are left out of the
    grammar, and the text may end only where the package jsonschema finds nothing wrong with it. Properties come in the
    order in which the schema names them. `space` is a regular expression for what may stand between two parts.

    Cost: milliseconds to compile, tens of microseconds per mask.
    """

    source: str
    check: bool = False
    space: str = SPACE

    def fit(self, words: Words) -> Constraint:
        """The schema over these tokens."""
        report, grammar = self._verdict
        if report.refused:
            listed = ", ".join(map(str, report.refused[:8])) + (" …" if len(report.refused) > 8 else "")
            raise BadRequest(
                f"the JSON schema cannot be enforced as it stands: {listed}. Rewrite it without, or let the finished "
                "text be checked instead: check=True, on the command line --json-check"
            )
        compiled = tongue(words).compile(grammar, "the JSON schema")
        return Checked(compiled, _validator(self.source), words) if report.checked else compiled

    @property
    def report(self) -> Report:
        """What becomes of every keyword."""
        return self._verdict[0]

    @cached_property
    def _verdict(self) -> tuple[Report, str]:
        """The report, and the grammar in llguidance's own form."""
        schema = json.loads(self.source)
        uses = list(_uses(schema))
        unknown = tuple(use for use in uses if use.keyword not in ENFORCED | UNENFORCED)
        beyond = [use for use in uses if use.keyword in UNENFORCED] + list(_loose(schema))
        grammar, error = self._compiled(schema, lenient=False)
        if error and not beyond:
            blamed = _blamed(error, uses)
            if not blamed:  # broken or unsatisfiable: nothing to check at the end
                raise BadRequest(f"the JSON schema cannot be used: {error}")
            beyond = blamed
        enforced = tuple(use for use in uses if use.keyword in ENFORCED and use not in beyond)
        if not beyond:
            return Report(enforced, unknown=unknown), grammar
        if not self.check:
            return Report(enforced, refused=tuple(beyond), unknown=unknown), grammar
        grammar, error = self._compiled(schema, lenient=True)
        if error:
            raise BadRequest(f"the JSON schema cannot be used, not even with a check at the end: {error}")
        return Report(enforced, checked=tuple(beyond), unknown=unknown), grammar

    def _compiled(self, schema: Any, lenient: bool) -> tuple[str, str]:
        """The grammar of a schema, and what is wrong with it if something is."""
        matcher = engine().LLMatcher
        # the last word over what the schema itself may ask of the compiler
        options = {"whitespace_pattern": self.space, "lenient": lenient, "coerce_one_of": lenient}
        own = {"item_separator": ",", "key_separator": ":", "whitespace_flexible": True, **options}
        grammar = matcher.grammar_from_json_schema(json.dumps(_plain(schema)), overrides=own)
        return grammar, str(matcher.validate_grammar(grammar)).strip()


def json_schema(schema: Mapping[str, Any] | bool | str | Any, check: bool = False, space: str = SPACE) -> JsonSchema:
    """JSON that this schema accepts: a mapping, JSON text, or a class with `model_json_schema` (pydantic's)."""
    made = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
    try:
        made = json.loads(made) if isinstance(made, str) else made
        source = json.dumps(made)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the JSON schema is not JSON: {error}") from None
    expect(isinstance(made, (Mapping, bool)), "a JSON schema", made, "an object, true or false")
    if made is False:
        raise BadRequest("the JSON schema is false, which nothing meets; give one that accepts something")
    return JsonSchema("{}" if made is True else source, check, space)


def _uses(schema: Any) -> Iterator[Use]:
    """Every keyword that asks something of a text, with its place."""
    for at, part in inside(schema):
        for keyword in part:
            if keyword not in SILENT and not pointless(keyword, part):
                yield Use(keyword, at)


def _loose(schema: Any) -> Iterator[Use]:
    """What the grammar knows by name and yet not well enough."""
    for at, part in inside(schema):
        if part.get("format") in FORMATS - KNOWN_FORMATS:
            yield Use("format", at)
        least = part.get("minProperties", 0)
        if isinstance(least, int) and least > 1 and least > len(part.get("required", ())):
            yield Use("minProperties", at)  # a name that comes twice would count twice


def _plain(schema: Any) -> Any:
    """The schema without what asks nothing: a keyword that is switched off, a format that nobody defines."""
    copy = json.loads(json.dumps(schema))
    for _, part in inside(copy):
        for keyword in [k for k in part if pointless(k, part)]:
            del part[keyword]
    return copy


def _blamed(error: str, uses: list[Use]) -> list[Use]:
    """The uses that an error of the compiler is about, where it is about something it could do without."""
    signs = {"oneOf": "oneOf", "patternProperty": "patternProperties", "min/maxProperties": "inProperties"}
    wanted = [part for sign, part in signs.items() if sign in error]
    wanted += ["pattern"] if "regex" in error and not wanted else []
    return [use for use in uses if any(use.keyword.endswith(part) for part in wanted)]


def _validator(source: str) -> Any:
    """What tells whether a finished text is right."""
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
    except ImportError:
        raise MissingExtra("jsonschema", "grammar", "checking a JSON text at its end") from None
    schema = json.loads(source)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise BadRequest(f"the JSON schema is broken: {error.message}") from None
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def valid(text: str) -> bool:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    return valid
