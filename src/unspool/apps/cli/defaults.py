"""The user's own defaults: a TOML file with a table of options for all commands, and one for each.

[defaults]
dtype = "fast"

[run]
max-tokens = 512

[bench.spec]
limit = 2
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...core.errors import BadRequest
from ...core.files import read_toml

_ALL = "defaults"  # the table whose options hold for every command that has them


@dataclass(frozen=True)
class Defaults:
    """What the file says, by table, for the commands of one root."""

    file: Path
    tables: Mapping[str, Mapping[str, Any]]

    def of(self, root: click.Group, ctx: click.Context, command: click.Command, *below: str) -> dict[str, Any]:
        """Click's `default_map` for one command, or for that of a group which `below` names."""
        self._expect_tables(root.list_commands(ctx))
        own = self.tables.get(command.name or "", {})
        if not isinstance(command, click.Group):
            return self._options(root, ctx, command, own)
        inner = command.get_command(ctx, below[0]) if below else None
        if inner is None:
            return {}
        for name, options in own.items():
            if not isinstance(options, dict):
                raise BadRequest(
                    f"{self.file}: {name!r} stands in [{command.name}]; name the command, as in [{command.name}."
                    f"{inner.name}]"
                )
        return {str(inner.name): self._options(root, ctx, inner, own.get(str(inner.name), {}))}

    def _options(
        self, root: click.Group, ctx: click.Context, command: click.Command, own: Mapping[str, Any]
    ) -> dict[str, Any]:
        names = _flags(command)
        for name in own:
            if _spelt(name) not in names:
                raise BadRequest(
                    f"{self.file}: unspool {command.name} has no option --{_spelt(name)}.{_near(name, names)}"
                )
        for name in self.tables.get(_ALL, {}):
            if _spelt(name) not in names and not any(_spelt(name) in _flags(each) for each in _every(root, ctx)):
                known = {flag for each in _every(root, ctx) for flag in _flags(each)}
                raise BadRequest(f"{self.file}: no command has an option --{_spelt(name)}.{_near(name, known)}")
        said = {
            **{_spelt(k): v for k, v in self.tables.get(_ALL, {}).items()},
            **{_spelt(k): v for k, v in own.items()},
        }
        return {names[name]: value for name, value in said.items() if name in names}

    def _expect_tables(self, commands: list[str]) -> None:
        for name, options in self.tables.items():
            if not isinstance(options, dict):
                raise BadRequest(
                    f"{self.file}: {name!r} stands alone; put options into a table, as in [{_ALL}] or [run]"
                )
            if name != _ALL and name not in commands:
                near = difflib.get_close_matches(name, [_ALL, *commands], n=1)
                hint = f" Did you mean [{near[0]}]?" if near else ""
                raise BadRequest(f"{self.file}: [{name}] is no command, nor [{_ALL}].{hint}")


def read(file: Path) -> Defaults:
    """What a file says; BadRequest if it cannot be read."""
    try:
        return Defaults(file, read_toml(file))
    except OSError as error:
        raise BadRequest(f"{file}: {error.strerror or error}; $UNSPOOL_CONFIG names it.") from None
    except ValueError as error:
        raise BadRequest(f"{file} cannot be read as a file of defaults: {error}") from None


def _every(group: click.Group, ctx: click.Context) -> Iterator[click.Command]:
    """All commands, those of groups too."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from _every(command, ctx)
        elif command is not None:
            yield command


def _flags(command: click.Command) -> dict[str, str]:
    """The parameters of a command by what is typed, without hyphens before it."""
    every = command.get_params(click.Context(command))
    return {_spelt(flag): str(each.name) for each in every if isinstance(each, click.Option) for flag in each.opts}


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(_spelt(name), known, n=1)
    return f" Did you mean --{near[0]}?" if near else ""


def _spelt(name: str) -> str:
    return name.lstrip("-").replace("_", "-")
