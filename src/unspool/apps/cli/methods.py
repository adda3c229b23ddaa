"""`unspool methods`: the registry as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ... import recipes
from ...core.claim import Claim
from ...core.option import options, products
from .terminal import dump, table, write

if TYPE_CHECKING:
    from ...core.claim import Entry
    from ...core.option import Option

_HEADS = ("name", "family", "claim", "paper", "options", "systems")


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def methods(name: str | None, as_json: bool) -> None:
    """List every rule: what it does, what it claims, whose paper it is; or NAME alone, and what its options may be.

    Those with options (or "(none)") can be used with --method; "-" marks the parts that methods are made of.
    """
    found = list(recipes.methods.entries().values()) if name is None else [recipes.methods.named(name)]
    if as_json:
        dump([_record(entry) for entry in found])
        return
    lines = table(_HEADS, [_row(entry) for entry in found]).split("\n")
    write(lines[0] + "\n")
    for entry, line in zip(found, lines[1:], strict=True):
        write(f"{line}\n    {entry.summary}\n")
    if name is not None:
        write(_limits(found[0]))
        return
    write("\n" + table(("claim", "promises"), [(claim.name, claim.value) for claim in Claim]) + "\n")


def _record(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "family": entry.family,
        "claim": entry.claim.name,
        "note": entry.note,
        "paper": entry.paper,
        "systems": list(entry.systems),
        "needs": list(entry.needs),
        "options": {option.name: option.default for option in _options(entry)},
        "ranges": {option.name: option.expected for option in _options(entry)},
        "together": _together(entry),
        "summary": entry.summary,
        "runnable": entry.build is not None,
    }


def _row(entry: Entry) -> tuple[str, ...]:
    parts = [",".join(option.spelt for option in _options(entry))]
    parts += [f"--{need} {'FILE' if need == 'heads' else 'MODEL'}" for need in entry.needs]
    shown = " ".join(filter(None, parts)) or "(none)"
    options = "-" if entry.build is None else shown
    return entry.name, entry.family, entry.promise, entry.paper or "-", options, ", ".join(entry.systems)


def _limits(entry: Entry) -> str:
    """What the options of a rule may be, as a table."""
    rows = [(option.name, option.spelt.partition("=")[2] or "-", option.expected) for option in _options(entry)]
    shown = "\n" + table(("option", "default", "what it may be"), rows) + "\n" if rows else ""
    return shown + "".join(f"together: {product}\n" for product in _together(entry))


def _options(entry: Entry) -> list[Option]:
    """What `--method name:option=value` can set."""
    return [] if entry.build is None else list(options(entry.build).values())


def _together(entry: Entry) -> list[str]:
    return [] if entry.build is None else [str(product) for product in products(entry.build)]
