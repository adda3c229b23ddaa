"""Names of methods on the command line: one that nobody knows is refused at once, before a model is read."""

from __future__ import annotations

import click

from ...recipes.names import known, unknown


def known_method(ctx: click.Context, parameter: click.Parameter, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """The callback of an option --method: what was given, if its names are known."""
    for spec in (given,) if isinstance(given, str) else given:
        name = spec.partition(":")[0]
        if known(name) is None:
            raise unknown(name)
    return given
