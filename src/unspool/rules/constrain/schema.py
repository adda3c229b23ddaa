"""JSON Schema: what of it a grammar enforces, what can only be checked at the end, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...core.errors import BadRequest
from ...core.extra import brought_by
from ...core.option import expect
from .checked_constraint import CheckedConstraint
from .constraint import Constraint
from .finite import endless
from .form import Form, FormVocabulary
from .keyword import ENFORCED, FORMATS, KNOWN_FORMATS, SILENT, UNENFORCED, idle, inside, pointless, reference_alone
from .matcher import engine, tongue
from .schema_formats import COUNTED, Use, checker, relax, spell_out
from .trial import try_first

UNTOLD = ("format",)  # what no check at the end could tell either: jsonschema lets most formats pass
SPACE = r"(\n {0,16}| )?"  # a line break with some indentation, or one blank: no model can write blanks for ever


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

    def fit(self, words: FormVocabulary) -> Constraint:
        checked = self.report.checked
        compiled = tongue(words).compile(self.enforceable(), "the JSON schema")
        return CheckedConstraint(compiled, validator(self.source, words, checked), words) if checked else compiled

    def enforceable(self) -> str:
        """The grammar in llguidance's own form; BadRequest if the schema asks for what it cannot enforce."""
        report, grammar = self._verdict
        if report.refused:
            listed = ", ".join(map(str, report.refused[:8])) + (" …" if len(report.refused) > 8 else "")
            raise BadRequest(
                f"the JSON schema cannot be enforced as it stands: {listed}. Rewrite it without, or let the finished "
                "text be checked instead: check=True, on the command line --json-check"
            )
        return grammar

    @property
    def report(self) -> Report:
        """What becomes of every keyword."""
        return self._verdict[0]

    @cached_property
    def _verdict(self) -> tuple[Report, str]:
        """The report, and the grammar in llguidance's own form."""
        schema = json.loads(self.source)
        uses = list(_uses(schema))
        unknown = tuple(use for use in uses if use.keyword not in ENFORCED | UNENFORCED) + tuple(_overridden(schema))
        beyond = [use for use in uses if use.keyword in UNENFORCED] + list(_loose(schema))
        grammar, error = self._compiled(schema, lenient=False)
        if error and not beyond:
            beyond = _blamed(error, uses) or relax(json.loads(json.dumps(schema)), error, _readable)
            if not beyond:  # broken or unsatisfiable: nothing to check at the end
                raise BadRequest(f"the JSON schema cannot be used: {error:.1000}")
        if parts := endless(_plain(schema)):
            shown = ", ".join(parts[:4]) + (" …" if len(parts) > 4 else "")
            raise BadRequest(
                "the JSON schema cannot be met: nothing finite does, since these parts are false or always need "
                f"another of themselves: {shown}. Let one of them end: make a property optional, or allow null."
            )
        enforced = tuple(use for use in uses if use.keyword in ENFORCED and use not in beyond)
        if not beyond:
            return Report(enforced, unknown=unknown), grammar
        if not self.check:
            return Report(enforced, refused=tuple(beyond), unknown=unknown), grammar
        left = json.loads(json.dumps(schema))
        beyond += [use for use in relax(left, COUNTED, _readable) if use not in beyond]
        grammar, error = self._compiled(left, lenient=True)
        while error and (more := relax(left, error, _readable)):
            beyond += [use for use in more if use not in beyond]
            grammar, error = self._compiled(left, lenient=True)
        if error:
            raise BadRequest(f"the JSON schema cannot be used, not even with a check at the end: {error:.1000}")
        refused = tuple(use for use in beyond if use.keyword in UNTOLD)
        enforced = tuple(use for use in enforced if use not in beyond)
        return Report(enforced, tuple(use for use in beyond if use not in refused), refused, unknown), grammar

    def _compiled(self, schema: Any, lenient: bool) -> tuple[str, str]:
        """The grammar of a schema, and what is wrong with it if something is."""
        matcher = engine().LLMatcher
        # the last word over what the schema itself may ask of the compiler
        options = {"whitespace_pattern": self.space, "lenient": lenient, "coerce_one_of": lenient}
        own = {"item_separator": ",", "key_separator": ":", "whitespace_flexible": True, **options}
        try:
            grammar = matcher.grammar_from_json_schema(json.dumps(_plain(schema)), overrides=own)
        except ValueError as error:  # what it cannot even read, such as very deep nesting
            return "", str(error)
        try_first(grammar)
        return grammar, str(matcher.validate_grammar(grammar)).strip()


def json_schema(schema: Mapping[str, Any] | bool | str | Any, check: bool = False, space: str = SPACE) -> JsonSchema:
    """JSON that this schema accepts: a mapping, JSON text, or a class with `model_json_schema` (pydantic's).

    Objects of a class have its fields and no others, unless it says extra="allow".
    """
    made = _closed(schema.model_json_schema()) if hasattr(schema, "model_json_schema") else schema
    try:
        made = json.loads(made) if isinstance(made, str) else made
        source = json.dumps(made)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the JSON schema is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the JSON schema is nested too deeply to be read; give the parts names under $defs") from None
    expect(isinstance(made, (Mapping, bool)), "a JSON schema", made, "an object, true or false")
    if made is False:
        raise BadRequest("the JSON schema is false, which nothing meets; give one that accepts something")
    return JsonSchema("{}" if made is True else source, check, space)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """A class's own schema, in which objects that do not say so have no more properties than are named."""
    for _, part in inside(schema):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
    return schema


def _uses(schema: Any) -> Iterator[Use]:
    """Every keyword that asks something of a text, with its place."""
    alone = reference_alone(schema)
    for at, part in inside(schema):
        none = idle(part, alone)
        for keyword in part:
            if keyword not in SILENT and keyword not in none and not pointless(keyword, part):
                yield Use(keyword, at)


def _overridden(schema: Any) -> Iterator[Use]:
    """What a reference beside it leaves without meaning."""
    alone = reference_alone(schema)
    for at, part in inside(schema):
        yield from (Use(keyword, at) for keyword in sorted(idle(part, alone) - SILENT))


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
    alone = reference_alone(schema)
    for _, part in list(inside(copy)):
        for keyword in [k for k in part if pointless(k, part) or k in idle(part, alone)]:
            del part[keyword]
        spell_out(part)
    return copy


def _blamed(error: str, uses: list[Use]) -> list[Use]:
    """The uses that an error of the compiler is about, where it is about something it could do without."""
    signs = {"oneOf": "oneOf", "patternProperty": "patternProperties", "min/maxProperties": "inProperties"}
    wanted = [part for sign, part in signs.items() if sign in error]
    wanted += ["pattern"] if "regex" in error and not wanted else []
    return [use for use in uses if any(use.keyword.endswith(part) for part in wanted)]


def _readable(pattern: str) -> bool:
    """True if the compiler can use a regular expression."""
    matcher = engine().LLMatcher
    grammar = matcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    try_first(grammar)
    return not matcher.validate_grammar(grammar)


def validator(source: str, words: FormVocabulary, checked: Sequence[Use] = ()) -> Callable[[str], bool]:
    """What tells whether a finished text is right; of `checked` also what the schema's own draft does not know."""
    jsonschema = brought_by("grammar", "jsonschema", "checking a JSON text at its end")
    seventh, newest = jsonschema.Draft7Validator, jsonschema.Draft202012Validator
    schema = json.loads(source)
    kind = jsonschema.validators.validator_for(schema, default=newest)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise BadRequest(f"the JSON schema is broken: {error.message:.1000}") from None
    every = {**newest.VALIDATORS, **seventh.VALIDATORS}
    asked = {use.keyword for use in checked} & every.keys() - kind.VALIDATORS.keys()
    if asked and reference_alone(schema):  # `if` with `const`, in draft 4: to know one and not the other makes no sense
        asked = seventh.VALIDATORS.keys() - kind.VALIDATORS.keys()
    judge = jsonschema.validators.extend(kind, {name: every[name] for name in asked})(
        schema, format_checker=checker(kind.FORMAT_CHECKER, words)
    )

    def valid(text: str) -> bool:
        try:
            return bool(judge.is_valid(json.loads(text)))
        except ValueError:
            return False

    return valid


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
