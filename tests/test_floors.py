"""The floors of the house: imports go one way, those inside functions too, and naming one method imports little."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import unspool

ROOT = Path(unspool.__file__).parent
# What each floor may import. `bench` and `train` stand on everything, and nothing stands on them but their commands.
BELOW = {
    "core": "core",
    "kernels": "core kernels",
    "models": "core models",
    "loops": "core loops",
    "rules": "core kernels loops rules",
    "recipes": "core loops rules recipes",
    "runtime": "core kernels models runtime",
    "proof": "core loops rules recipes models runtime proof",
    "api": "core loops rules recipes models runtime proof api",
    "apps": "core loops rules recipes models runtime proof api apps",
}
COMMANDS = {"auto_tune", "bench", "report", "schemas", "suites", "train"}  # of the command line, for what is measured
INSIDE = {"apps": 120, "models": 3, "rules": 13}  # imports inside functions; only ever fewer


def parsed() -> Iterator[tuple[tuple[str, ...], Path, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        yield parts, file, ast.parse(file.read_text(encoding="utf-8"))


def imported(parts: tuple[str, ...], tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The floor of every import of ours in a module; the empty name for the package itself."""
    package = ("unspool", *parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = [*base, *(node.module or "").split(".")] if node.module else list(base)
            names = [[*target, alias.name] for alias in node.names] if target == ["unspool"] else [target]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        yield from ((name[1] if len(name) > 1 else "", node) for name in names if name[0] == "unspool")


def test_imports_go_down_and_never_up():
    wrong = []
    for parts, file, tree in parsed():
        floor = parts[0]
        if floor not in BELOW:
            continue
        allowed = {*BELOW[floor].split()}
        if parts[:2] == ("apps", "cli") and parts[-1] in COMMANDS:
            allowed |= {"bench", "train"}
        wrong += [
            f"{file.relative_to(ROOT)}:{node.lineno} imports {target or 'the package itself'}"
            for target, node in imported(parts, tree)
            if target not in allowed
        ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_is_a_floor():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*BELOW, "bench", "train"}


def test_imports_inside_functions_do_not_spread():
    inside: dict[str, int] = {}
    for parts, _, tree in parsed():
        if parts[0] not in BELOW:
            continue
        functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
        own = {id(node) for _, node in imported(parts, tree)}
        found = {id(node) for function in functions for node in ast.walk(function) if id(node) in own}
        if found:
            inside[parts[0]] = inside.get(parts[0], 0) + len(found)
    more = {floor: count for floor, count in inside.items() if count > INSIDE.get(floor, 0)}
    assert not more, f"imports inside functions: {more}, expected at most {INSIDE}"


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("from unspool.recipes.methods import method; method('lookup')", 45),
        ("import unspool.recipes.names", 8),
        ("import unspool", 6),
    ],
)
def test_naming_one_method_imports_little(code, most):
    ask = f"import sys\n{code}\nprint(*[name for name in sys.modules if name.split('.')[0] == 'unspool'])"
    ran = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    found = ran.stdout.split()
    assert len(found) <= most, found
