"""Groups of options that several commands share: a frozen dataclass whose fields are click options; and --method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import click

from ...recipes.names import canonical, known, parted, renamed, unknown

F = TypeVar("F", bound=Callable[..., Any])
_KEY = "option"


def option(*flags: str, **attributes: Any) -> Any:
    """A dataclass field that is read from a click option; `flags` and `attributes` are those of `click.option`."""
    return field(metadata={_KEY: (flags, attributes)})


def options(group: type[Any], name: str) -> Callable[[F], F]:
    """Give a command every option of a group; they arrive together, as one `group` object in the parameter `name`."""
    declared = [(f.name, *f.metadata[_KEY]) for f in fields(group)]

    def decorate(command: F) -> F:
        @wraps(command)
        def gathered(*rest: Any, **given: Any) -> Any:
            given[name] = group(*(given.pop(own) for own, _, _ in declared))
            return command(*rest, **given)

        decorated: Any = gathered
        for own, flags, attributes in reversed(declared):  # click lists the decorator nearest to the function last
            decorated = click.option(*flags, own, **attributes)(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def known_method(ctx: click.Context, parameter: click.Parameter, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """The callback of an option --method: what was given, if its names are known, with new names for old ones."""
    return _known(given) if isinstance(given, str) else tuple(map(_known, given))


def _known(spec: str) -> str:
    name = parted(spec)[0]
    if known(name) is None:
        raise unknown(name)
    if note := renamed(name):
        click.echo(f"note: {note}", err=True)
        return canonical(spec)
    return spec


def method_option(default: str, told: str = "A name of `unspool methods`, as in lookup:ngram=2.") -> Decorator:
    """The option --method of a command that decodes by one method."""
    return click.option("--method", callback=known_method, default=default, show_default=True, help=told)
