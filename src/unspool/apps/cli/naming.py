"""Names of methods on the command line: one that nobody knows is refused at once, before a model is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import click

from ...recipes.names import canonical, known, parted, renamed, unknown

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
