"""Groups of options that several commands share: a frozen dataclass whose fields are click options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import wraps
from typing import Any, TypeVar

import click

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
