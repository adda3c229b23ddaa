"""The command `unspool`: subcommands are imported when they are used, and every failure ends in one line."""

from __future__ import annotations

import difflib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn

import click

from ...core.errors import BadRequest, MissingDistribution, UnspoolError
from ...core.version import VERSION
from .terminal import BROKEN_PIPE, INTERRUPTED, close, note, prepare, report, status

GROUP = "unspool.commands"
_FILE = "unspool.defaults"  # where a context keeps the name of the user's file


@dataclass(frozen=True)
class Known:
    """A command of a distribution that stands in the same repository as unspool."""

    distribution: str
    folder: str


_BENCH, _TRAIN = Known("unspool-bench", "bench"), Known("unspool-train", "packages/train")
KNOWN = {"auto-tune": _BENCH, "bench": _BENCH, "report": _BENCH, "train": _TRAIN}
HEADINGS = {
    "Write": ("run", "chat", "serve", "batch"),
    "Choose and understand a method": ("which", "methods", "compare", "trace", "prove"),
    "Models and stores": ("pull", "plan", "store"),
    "Measure and train": tuple(KNOWN),
}
OWN = tuple(name for names in HEADINGS.values() for name in names if name not in KNOWN)


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them under headings."""
        every = self.list_commands(ctx)
        ours = {name for names in HEADINGS.values() for name in names}
        sections = {**HEADINGS, "Added by other packages": tuple(name for name in every if name not in ours)}
        wide = max(map(len, every))
        for heading, names in sections.items():
            if not names:
                continue
            with formatter.section(heading):
                found = [(name, self.get_command(ctx, name)) for name in names]
                told = [(name, command.get_short_help_str(80)) for name, command in found if command is not None]
                formatter.write_dl([(f"{name:{wide}}", text) for name, text in told])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand, whose return value is the exit status; a reader that leaves (`| head`) just ends it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return BROKEN_PIPE
        except (click.UsageError, BadRequest):
            if ctx.default_map:  # what is wrong may not be what was typed
                note(f"note: {ctx.meta[_FILE]} has defaults for this command.")
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand of these arguments, or an error that names the nearest one; a group alone tells its help."""
        name = args[0]
        if name not in OWN and not name.startswith("-") and name not in (there := self.list_commands(ctx)):
            near = difflib.get_close_matches(name, there, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(there)}."
            raise click.UsageError(f"there is no command {name!r}.{hint}", ctx)
        found = super().resolve_command(ctx, args)
        if found[1] is not None and (file := _place()) is not None:
            said = import_module(".defaults", __package__).read(file)  # only for those who have such a file
            ctx.meta[_FILE] = file
            options = said.of(self, ctx, found[1], *found[2][:1])
            ctx.default_map = {str(found[0]): options} if options else None
        if isinstance(found[1], click.Group) and not found[2]:
            return found[0], found[1], ["--help"]
        return found


def _place() -> Path | None:
    """Where the file is: $UNSPOOL_CONFIG, else unspool/config.toml in $XDG_CONFIG_HOME or ~/.config; "" is none."""
    chosen = os.environ.get("UNSPOOL_CONFIG")
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    file = Path(folder).expanduser() / "unspool" / "config.toml"
    return file if file.is_file() else None


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
      unspool which

    `unspool COMMAND --help` says more of each.
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


@contextmanager
def starting() -> Iterator[None]:
    """Say that PyTorch is being imported, if it is not there yet, and import it in here.

    Without passes of the garbage collector, which would look at all of it time and again; what is there then stays
    until the process ends, so later passes leave it out. Where PyTorch is loaded already the process is another's,
    and nothing is done. Ctrl-C ends the process at once: as an exception it would be lost in PyTorch's own code, which
    goes on, or fails later with modules that are there by half.
    """
    if "torch" in sys.modules:
        yield
        return
    collecting = gc.isenabled()
    gc.disable()
    held = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if held:
        signal.signal(signal.SIGINT, _end)
    try:
        with status("starting: PyTorch takes a few seconds …"):
            yield
    finally:
        if held:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.freeze()
        if collecting:
            gc.enable()


def _end(number: int, frame: FrameType | None) -> None:
    """End the process; nothing has been written by now."""
    if sys.stderr.isatty():
        os.write(2, b"\n")
    os._exit(INTERRUPTED)
