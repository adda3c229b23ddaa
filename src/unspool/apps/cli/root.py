"""The command `unspool`: subcommands are imported when they are used, and every failure ends in one line."""

from __future__ import annotations

import difflib
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import click

from ...core.bounded_file import SETTINGS, read_text
from ...core.errors import BadRequest, MissingDistribution, UnspoolError
from ...core.version import VERSION
from .terminal import BROKEN_PIPE, INTERRUPTED, close, prepare, report

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GROUP = "unspool.commands"
_ALL = "defaults"  # the table of the user's file whose options hold for every command that has them
OWN = ("run", "chat", "serve", "batch", "which", "methods", "trace", "prove", "compare", "plan", "store", "pull")


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


class Commands(click.Group):
    """Subcommands by name: `run` is the function `run` of the module `run` beside this one; others are plug-ins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names: ours in the order of use rather than of the alphabet, then those of other distributions."""
        return list(dict.fromkeys((*OWN, *KNOWN, *installed())))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        if cmd_name not in OWN:
            return added(cmd_name)
        command = getattr(import_module(f".{cmd_name}", __package__), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand, whose return value is the exit status; a reader that leaves (`| head`) just ends it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return BROKEN_PIPE

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand of these arguments, or an error that names the nearest one."""
        name = args[0]
        if name not in OWN and not name.startswith("-") and name not in (there := self.list_commands(ctx)):
            near = difflib.get_close_matches(name, there, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(there)}."
            raise click.UsageError(f"there is no command {name!r}.{hint}", ctx)
        found = super().resolve_command(ctx, args)
        if found[1] is not None and not isinstance(found[1], click.Group) and (said := _config()):
            ctx.default_map = {str(found[0]): _defaults(found[1], said)}
        return found


def _place() -> Path | None:
    """Where the file is: $UNSPOOL_CONFIG, else unspool/config.toml in $XDG_CONFIG_HOME or ~/.config; "" is none."""
    chosen = os.environ.get("UNSPOOL_CONFIG")
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    file = Path(folder).expanduser() / "unspool" / "config.toml"
    return file if file.is_file() else None


def _config() -> dict[str, dict[str, Any]]:
    """What it says, by table; BadRequest if it cannot be read."""
    if (file := _place()) is None:
        return {}
    try:
        found: dict[str, dict[str, Any]] = tomllib.loads(read_text(file, SETTINGS))
    except (OSError, ValueError) as error:
        raise BadRequest(f"{file} cannot be read as a file of defaults: {error}") from None
    for name, options in found.items():
        if not isinstance(options, dict):
            raise BadRequest(f"{file}: {name!r} stands alone; put options into a table, as in [{_ALL}] or [run]")
    return found


def _defaults(command: click.Command, said: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the file says of one command's options; a name under the command itself that it has not is refused."""
    names = {_spelt(flag): each.name for each in command.params if isinstance(each, click.Option) for flag in each.opts}
    own = {_spelt(name): value for name, value in said.get(command.name or "", {}).items()}
    unknown = sorted(set(own) - set(names))
    if unknown:
        raise BadRequest(f"{_place()}: unspool {command.name} has no option --{unknown[0]}")
    shared = {_spelt(name): value for name, value in said.get(_ALL, {}).items() if _spelt(name) in names}
    return {str(names[name]): value for name, value in {**shared, **own}.items()}


def _spelt(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


@click.command(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name="unspool", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Decode language models by any method; what a method calls exact can be enumerated.

    \b
      unspool run "Write a haiku about rain."
      unspool run --method lookup --file notes.txt
      unspool compare lookup
      unspool prove
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 bad request, 3 cut before it had its form, 130 interrupted."""
    prepare()
    try:
        # Without click's own handling of errors, which prints them in another form than ours.
        code = root.main(args=argv, prog_name="unspool", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        code = report(error)
    sys.exit(close(code if isinstance(code, int) else 0))
