"""Commands that other distributions add to `unspool`: their entry points of the group `unspool.commands`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

import click

from ...core.errors import MissingDistribution, UnspoolError

GROUP = "unspool.commands"


@dataclass(frozen=True)
class Known:
    """A command of a distribution that stands in the same repository as unspool."""

    distribution: str
    folder: str


_BENCH, _TRAIN = Known("unspool-bench", "bench"), Known("unspool-train", "packages/train")
KNOWN = {"auto-tune": _BENCH, "bench": _BENCH, "report": _BENCH, "train": _TRAIN}


def installed() -> list[str]:
    """The names of all commands that are added here."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def added(name: str) -> click.Command | None:
    """A command that another distribution adds, imported now.

    One of ours that is not installed is a command that says so, and one that cannot be imported says why, so that
    neither is in the way of the others. Who else gives a command the name of one of ours does not replace it. None if
    nobody knows the name.
    """
    known = KNOWN.get(name)
    for point in entry_points(group=GROUP, name=name):
        if known is not None and (point.dist is None or point.dist.name != known.distribution):
            continue
        try:
            command = point.load()
        except Exception as error:
            return _unusable(name, f"importing it failed with {type(error).__name__}: {error}", point.value)
        if isinstance(command, click.Command):
            return command
        return _unusable(name, f"expected a click.Command, found a {type(command).__name__}", point.value)
    if known is None:
        return None
    lacking = MissingDistribution(known.distribution, known.folder, f"`unspool {name}`")
    return _refusing(name, lacking, f"(not installed: it comes with {known.distribution})")


def _unusable(name: str, why: str, place: str) -> click.Command:
    told = f"`unspool {name}` is added by another package, as {place}, and cannot be used: {why}. Update that package."
    return _refusing(name, UnspoolError(told), "(cannot be used)")


def _refusing(name: str, error: UnspoolError, short_help: str) -> click.Command:
    """A command that takes any arguments, --help too, and only raises an error."""

    def refuse(rest: tuple[str, ...]) -> None:
        raise error

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        short_help=short_help,
    )
