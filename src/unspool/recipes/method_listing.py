"""The list of all rules as data, so that they can be listed and searched without importing them, and torch with them.

`index.json` is written from the registry by `scripts/methods`, and a test holds it against that.
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .. import recipes
from ..core.claim import Entry
from ..core.option import options, products
from .aliases import KNOWN_AS
from .names import plainly

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INDEX = Path(__file__).parent / "index.json"
MEANINGS = INDEX.with_name("meanings.toml")


@dataclass(frozen=True)
class MethodListing:
    """A rule as it is listed: `fills` says that it asks a model which fills holes, `text` is its docstring."""

    name: str
    family: str
    claim: str
    note: str
    paper: str
    systems: tuple[str, ...]
    needs: tuple[str, ...]
    options: dict[str, Any]
    ranges: dict[str, str]
    together: tuple[str, ...]
    summary: str
    runnable: bool
    fills: bool
    text: str
    recipe: str

    @property
    def promise(self) -> str:
        """The claim as it is shown to people."""
        return f"{self.claim} {self.note}".rstrip()

    @property
    def aliases(self) -> tuple[str, ...]:
        """What else people call it."""
        return tuple(alias for alias, name in KNOWN_AS.items() if name == self.name)

    def has(self, word: str) -> bool:
        """Whether a word occurs in its names, its paper, the systems that have it, or what is said of it."""
        names = (self.name, self.family, self.paper, *self.systems, *self.aliases)
        told = " ".join((self.summary, self.text, self.note)).lower()
        return any(plainly(word) in plainly(name) for name in names) or word.lower() in told


@cache
def listings() -> dict[str, MethodListing]:
    """All rules that come with unspool, by family and name."""
    with INDEX.open(encoding="utf-8") as file:
        data: list[dict[str, Any]] = json.load(file)
    frozen: list[dict[str, Any]] = [
        {k: tuple(v) if isinstance(v, list) else v for k, v in each.items()} for each in data
    ]
    return {each["name"]: MethodListing(**each) for each in frozen}


def listing(entry: Entry) -> MethodListing:
    """A registered rule as it is listed."""
    declared = {} if entry.build is None else options(entry.build)
    return MethodListing(
        entry.name,
        entry.family,
        entry.claim.name,
        entry.note,
        entry.paper,
        entry.systems,
        entry.needs,
        {name: option.default for name, option in declared.items()},
        {name: option.expected for name, option in declared.items()},
        () if entry.build is None else tuple(map(str, products(entry.build))),
        entry.summary,
        entry.build is not None,
        recipes.methods.fills(entry),
        inspect.getdoc(entry.rule) or "",
        "" if entry.build is None else " ".join((inspect.getdoc(entry.build) or "").split()),
    )


def written(entries: list[Entry]) -> str:
    """The list as it is kept: a line for each rule."""
    lines = [json.dumps(asdict(listing(entry)), ensure_ascii=False) for entry in entries]
    return "[\n" + ",\n".join(lines) + "\n]\n"


@cache
def _meanings() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
    return found


def meaning(method: str, option: str) -> str:
    """What an option of a method means, in a few words; "" of one that nobody has described."""
    told = _meanings()
    return str(told["methods"].get(method, {}).get(option) or told["every"].get(option, ""))
