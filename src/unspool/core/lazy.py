"""Packages whose names and modules are loaded when they are first used, so that naming one rule imports one rule.

Whoever may need such a package imports it at the top of the file, `from ... import api`, and what he uses of it is
imported where he uses it, `api.loader.load(…)`: so a file says at its top all that it stands on, and `unspool --help`
does not wait for torch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import InspectLoader
from types import ModuleType
from typing import Any


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that has what it imports for type checkers, each name from its module.

    These modules can be had too; where one of them is called as one of the names, the name goes first, though the
    import system would put the module there.
    """
    home, modules = _told_to_type_checkers(package)

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            named_alike = isinstance(value, ModuleType) and home.get(name) == f".{name}"
            super().__setattr__(name, getattr(value, name) if named_alike else value)

    sys.modules[package].__class__ = Package

    def load(name: str) -> Any:
        if name in home:
            value = getattr(import_module(home[name], package), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in modules:
            return import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted(home)


def _told_to_type_checkers(package: str) -> tuple[dict[str, str], set[str]]:
    """What a package imports under TYPE_CHECKING: names with their modules as it names them, and modules of its own."""
    spec = sys.modules[package].__spec__
    assert spec is not None
    assert isinstance(spec.loader, InspectLoader)
    home, modules = dict[str, str](), set[str]()
    for block in ast.parse(spec.loader.get_source(package) or "").body:
        for node in block.body if isinstance(block, ast.If) else ():
            assert isinstance(node, ast.ImportFrom)
            names = [alias.name for alias in node.names]
            if node.module is None:
                modules.update(names)
            else:
                home |= dict.fromkeys(names, "." * node.level + node.module)
                modules.add(node.module)
    return home, modules
