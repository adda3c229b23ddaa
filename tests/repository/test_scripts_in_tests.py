"""Programs that stand inside tests as texts: what they import of ours is there, though a type checker never sees it.

Most of them belong to slow tests, which no build runs; a module that was moved broke six of those unseen.
"""

import ast
import importlib
import re
from importlib.util import find_spec

import pytest
from repository import ROOT

STATEMENT = re.compile(r"\bfrom (unspool[\w.]*) import (\w+(?:, \w+)*)|^\s*import (unspool[\w.]*)$", re.MULTILINE)
OURS = ("unspool.", "unspool_")


def statements():
    """(file and line, module, names) of every import of ours in a text of the tests."""
    for file in sorted((ROOT / "tests").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "import unspool" not in source and "from unspool" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for module, names, whole in STATEMENT.findall(node.value):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", module or whole, names.split(", ") if names else []


def missing(module, names):
    """What cannot be imported; nothing is said of a module that needs a package which is not here."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return [module] if (error.name or "").startswith(OURS) else []
    return [name for name in names if not hasattr(found, name) and find_spec(f"{module}.{name}") is None]


def test_programs_inside_tests_import_what_is_there():
    found = list(statements())
    assert len(found) > 20
    assert not [f"{where}: {module} {lost}" for where, module, names in found if (lost := missing(module, names))]


@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [
        ("unspool.runtime", "team", ["team"]),
        ("unspool.runtime.parallel", "team", []),
        ("unspool.nowhere", "x", ["unspool.nowhere"]),
    ],
)
def test_what_was_moved_is_noticed(module, name, lost):
    assert missing(module, [name]) == lost
