"""`unspool methods`: the registry as a table."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from .record import dump
from .table import table
from .terminal import write

if TYPE_CHECKING:
    from ..claim import Entry

_HEADS = ("name", "family", "claim", "paper", "options", "systems")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def methods(as_json: bool) -> None:
    """List every rule: what it does, what it claims, whose paper it is.

    Those with options (or "(none)") can be used with --method; "-" marks the parts that methods are made of.
    """
    from ..claim import Claim, entries

    found = list(entries().values())
    if as_json:
        dump([_record(entry) for entry in found])
        return
    lines = table(_HEADS, [_row(entry) for entry in found]).split("\n")
    write(lines[0] + "\n")
    for entry, line in zip(found, lines[1:], strict=True):
        write(f"{line}\n    {entry.summary}\n")
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
        "options": dict(_options(entry)),
        "summary": entry.summary,
        "runnable": entry.build is not None,
    }


def _row(entry: Entry) -> tuple[str, ...]:
    parts = [",".join(f"{name}={_spelt(default)}" for name, default in _options(entry))]
    parts += [f"--{need} {'FILE' if need == 'heads' else 'MODEL'}" for need in entry.needs]
    shown = " ".join(filter(None, parts)) or "(none)"
    options = "-" if entry.build is None else shown
    return entry.name, entry.family, entry.promise, entry.paper or "-", options, ", ".join(entry.systems)


def _options(entry: Entry) -> list[tuple[str, Any]]:
    """The names and defaults of what `--method name:option=value` can set."""
    if entry.build is None:
        return []
    parameters = inspect.signature(entry.build).parameters.values()
    return [(p.name, None if p.default is p.empty else p.default) for p in parameters]


def _spelt(default: Any) -> str:
    """A default as it is written on the command line."""
    return "+".join(map(str, default)) if isinstance(default, tuple) else str(default)
