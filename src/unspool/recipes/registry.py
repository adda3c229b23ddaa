"""The registry: every rule that comes with unspool, with its recipe, and whatever else has been registered by then."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules

from .. import rules
from ..core.claim import Entry, Method, compose, registered
from .names import HOMES

# The families of rules, and the modules beside this one that hold their recipes: functions called as the methods are.
FAMILIES = {
    "constrain": ("constrain",),
    "decode": ("decode",),
    "draft": ("draft",),
    "search": ("search",),
    "unmask": ("unmask", "unmask_looks"),
    "verify": ("verify",),
}


def entries() -> dict[str, Entry]:
    """Every registered rule by name; the first call imports all of them."""
    _import_all()
    return registered()


@cache
def ours(name: str) -> Entry:
    """A rule that comes with unspool, with its recipe if it is a method by itself; no other rule is imported for it."""
    home = HOMES[name]
    import_module(f"{rules.__name__}.{home.family}.{home.module}")
    entry = registered()[name]
    build = None if entry.build else recipe(name)
    return compose(name, build) if build else entry


def recipe(name: str) -> Callable[..., Method] | None:
    """What makes a method of a rule that comes with unspool; None if it is a part of methods only."""
    for each in FAMILIES[HOMES[name].family]:
        module = import_module(f".{each}", __package__)
        found = vars(module).get(name)
        if isfunction(found) and found.__module__ == module.__name__:
            return found
    return None


@cache
def _import_all() -> None:
    for family in FAMILIES:
        package = import_module(f"{rules.__name__}.{family}")
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    for name in HOMES:
        ours(name)
