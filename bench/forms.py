"""What a constrained text is asked for: schemas of JSONSchemaBench and some other forms, each with its own validator.

Part of bench/constrained.py. The validators share nothing with what enforces the forms: jsonschema, Python's `re`, its
parser, and plain look-ups.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema
from canvas_json import sampled

from unspool.core.errors import BadRequest
from unspool.rules.constrain import Form, choices, grammar, json_schema, keywords, regex
from unspool.rules.constrain.form import FormVocabulary

SCHEMA, REGEX, SUM, LISTS, CHOICES, KEYWORDS = "schema", "regex", "sum", "lists", "choices", "keywords"
ASK = "Answer with JSON only. The answer must follow this JSON schema:\n"
LONGEST = 700  # characters of a schema that a model of this size can still read
GRAMMARS = {
    SUM: 'start: term (("+"|"-") term)*\nterm: atom (("*"|"/") atom)*\natom: /[1-9][0-9]{0,3}/ | "(" start ")"',
    LISTS: 'root ::= list\nlist ::= "[" (item (", " item)*)? "]"\nitem ::= [1-9] [0-9]? | list',
}
CAPITALS = ("Paris", "Rome", "Madrid", "Berlin", "Vienna", "Lisbon", "Warsaw", "Dublin")


@dataclass(frozen=True)
class Item:
    """A form to keep to, and what to ask the model."""

    name: str
    kind: str
    source: Any
    prompt: str

    def form(self, most: int) -> Form:
        """What is enforced; all but keywords, which nothing can force to appear, end within `most` tokens."""
        match self.kind:
            case "schema":
                return json_schema(self.source).within(most)
            case "regex":
                return regex(self.source).within(most)
            case "choices":
                return choices(*self.source).within(most)
            case "keywords":
                return keywords(*self.source)
        return grammar(GRAMMARS[self.kind]).within(most)

    def valid(self, text: str) -> bool:
        """What the validator says of a finished text."""
        match self.kind:
            case "schema":
                return _valid_json(text, self.source)
            case "regex":
                return re.fullmatch(self.source, text) is not None
            case "choices":
                return text in self.source
            case "keywords":
                return all(word in text for word in self.source)
            case "sum":
                return _is_sum(text)
        return isinstance(json.loads(text), list)


OTHERS = (
    Item("date", REGEX, r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "When did people first land on the moon? Give the date."),
    Item("telephone", REGEX, r"\([0-9]{3}\) [0-9]{3}-[0-9]{4}", "Invent a telephone number."),
    Item("address", REGEX, r"[a-z]{2,12}(\.[a-z]{2,12})?@[a-z]{3,12}\.(com|org)", "Invent an e-mail address."),
    Item("colour", REGEX, r"#[0-9a-f]{6}", "Which colour has the sky, in hexadecimal notation?"),
    Item("words", REGEX, r"([a-z]{2,12}, ){2,6}[a-z]{2,12}", "Name some animals, in lower case, with commas."),
    Item("sum", SUM, "", "Write a long sum of products of whole numbers."),
    Item("sum again", SUM, "", "Write 24 as a sum in brackets."),
    Item("lists", LISTS, "", "Write a list of lists of small numbers."),
    Item("capital", CHOICES, list(CAPITALS), "What is the capital of Italy?"),
    Item("another", CHOICES, list(CAPITALS), "What is the capital of Poland?"),
    Item("dog and ball", KEYWORDS, ["dog", "ball"], "Write one short sentence with the words dog and ball."),
    Item("sun and rain", KEYWORDS, ["sun", "rain"], "Write one short sentence with the words sun and rain."),
)


def chosen(folder: Path, words: FormVocabulary, most: int, limit: int) -> tuple[list[Item], dict[str, int]]:
    """`limit` forms, all of `OTHERS` among them, and how many schemas were left out for which reason."""
    items, left_out = list[Item](), Counter[str]()
    for name, schema in sampled(folder):
        if len(items) + len(OTHERS) == limit:
            break
        source = json.dumps(schema)
        item = Item(name, SCHEMA, schema, ASK + source)
        if len(source) > LONGEST:
            left_out[f"longer than {LONGEST} characters"] += 1
            continue
        try:
            json_schema(schema).fit(words)
        except BadRequest:
            left_out["cannot be enforced"] += 1
            continue
        try:
            item.form(most).fit(words)
        except BadRequest:
            left_out[f"no text of {most} tokens was found"] += 1
            continue
        items.append(item)
    step = max(1, len(items) // len(OTHERS))
    for i, other in enumerate(OTHERS):  # among the schemas, so that batches are mixed
        items.insert(min(len(items), i * (step + 1)), other)
    return items[:limit], dict(left_out)


def saved(path: Path, items: list[Item], left_out: dict[str, int], most: int) -> None:
    """Write the forms, so that another machine need not choose them."""
    record = {"most": most, "left_out": left_out, "items": [asdict(item) for item in items]}
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")


def opened(path: Path, most: int) -> tuple[list[Item], dict[str, int]]:
    """The forms that were written."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["most"] != most:
        raise SystemExit(f"{path} holds forms for texts of {record['most']} tokens, not of {most}; choose them anew")
    return [Item(**item) for item in record["items"]], record["left_out"]


def _valid_json(text: str, schema: Any) -> bool:
    """What jsonschema says, formats included; the year 0000, which RFC 3339 has and Python has not, is let pass."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        errors = kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(json.loads(text))
        return not [e for e in errors if e.validator != "format" or not str(e.instance).startswith("0000-")]
    except ValueError:
        return False


def _is_sum(text: str) -> bool:
    """True for whole numbers in brackets and the four operations, as Python reads them."""
    known = (ast.Expression, ast.BinOp, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div)
    try:
        return all(isinstance(node, known) for node in ast.walk(ast.parse(text, mode="eval")))
    except SyntaxError:
        return False
