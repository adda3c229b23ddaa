"""The floors of the house: imports go one way, those inside functions too, and naming one method imports little."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

import pytest

import unspool

ROOT = Path(unspool.__file__).parent
HERE = ROOT.parents[1]
DISTRIBUTIONS = (ROOT, HERE / "bench/src/unspool_bench", HERE / "packages/train/src/unspool_train")
# What each floor may import. The distributions in bench/ and packages/ may import all of it, and nothing imports them.
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
OWN = {"apps": 2, "models": 2}  # imports of ours inside functions; only ever fewer
# Those of other packages too, with unspool-bench, its scripts and unspool-train; only ever fewer.
INSIDE = {"core": 2, "models": 2, "apps": 7, "unspool_bench": 4, "bench": 4}
_COMMAND = "`unspool NAME` is a function in a file of its name, beside what it is about"
_METHOD = "a method's file has the method's name, whatever a kernel is about"
TWINS = {  # names of two files each, and why; only ever fewer
    "methods": _COMMAND,
    "prove": _COMMAND,
    "trace": _COMMAND,
    "report": _COMMAND,
    "edit": _METHOD,
    "fragments": _METHOD,
    "race": "what a race between tokens is, and the method of that name",
    "attention": "a layer, and the kernel that computes it",
    "linear": "a layer, and the kernel that computes it",
    "truncate": "warps, and the kernel that computes them",
    "verify": "recipes of a family of rules, and the kernel that computes two of these",
}
LONGEST = 350  # lines of a file


Import: TypeAlias = "ast.Import | ast.ImportFrom"


class Imports(NamedTuple):
    """The imports of a module of ours, which of them stand inside functions, its classes and its length."""

    parts: tuple[str, ...]
    file: Path
    every: tuple[Import, ...]
    inside: frozenset[int]  # by their ids
    classes: frozenset[str]
    lines: int


@cache
def parsed(root: Path = ROOT, files: str = "**/*.py") -> list[Imports]:
    found = []
    for file in sorted(root.glob(files)):
        parts = file.relative_to(root).with_suffix("").parts
        every: list[Import] = []
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        within = frozenset(collected(tree, False, every))
        classes = frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef))
        found.append(Imports(parts, file, tuple(every), within, classes, source.count("\n")))
    return found


def collected(node: ast.AST, inside: bool, every: list[Import]) -> Iterator[int]:
    """Add all imports of a part of a module; the ids of those inside functions."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, (ast.Import, ast.ImportFrom)):
            every.append(below)
            if inside:
                yield id(below)
        elif isinstance(below, (ast.stmt, ast.excepthandler, ast.match_case)):
            function = isinstance(below, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from collected(below, inside or function, every)


def imported(module: Imports) -> Iterator[tuple[str, Import]]:
    """The floor of every import of ours in a module; the empty name for the package itself."""
    package = ("unspool", *module.parts[:-1])
    for node in module.every:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = [*base, *(node.module or "").split(".")] if node.module else list(base)
            names = [[*target, alias.name] for alias in node.names] if target == ["unspool"] else [target]
        else:
            names = [alias.name.split(".") for alias in node.names]
        yield from ((name[1] if len(name) > 1 else "", node) for name in names if name[0] == "unspool")


def test_imports_go_down_and_never_up():
    wrong = []
    for module in parsed():
        floor = module.parts[0]
        if floor not in BELOW:
            continue
        allowed = {*BELOW[floor].split()}
        wrong += [
            f"{module.file.relative_to(ROOT)}:{node.lineno} imports {target or 'the package itself'}"
            for target, node in imported(module)
            if target not in allowed
        ]
    assert not wrong, "\n".join(wrong)


def test_a_file_has_one_idea():
    """Which nobody can count; but one that is longer than a few screens has had time for a second."""
    assert {"/".join(module.parts): module.lines for module in parsed() if module.lines > LONGEST} == {}


def doubled(names: Callable[[Imports], Iterable[str]]) -> dict[str, list[str]]:
    """Which names are used in two places or more, in all distributions together, and where."""
    found: dict[str, list[str]] = {}
    for root in DISTRIBUTIONS:
        for module in parsed(root):
            for name in names(module):
                found.setdefault(name, []).append("/".join((root.name, *module.parts)))
    return {name: places for name, places in found.items() if len(places) > 1}


def test_a_name_is_one_class():
    """Who searches for a class finds one."""
    assert doubled(lambda module: [name for name in module.classes if not name.startswith("_")]) == {}


def test_a_name_is_one_file():
    """Who searches for a file finds one, or one of two that are named alike for a reason."""
    found = doubled(lambda module: {module.file.stem} - {"__init__", "__main__"})
    assert {name: places for name, places in found.items() if len(places) > (2 if name in TWINS else 1)} == {}
    assert {*found} == {*TWINS}


def test_every_folder_is_a_floor():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*BELOW}


class Inside(NamedTuple):
    """An import inside a function."""

    part: str  # a floor of unspool, another distribution, or the scripts of one
    file: Path
    node: Import
    own: bool  # of a module of unspool's, by unspool


@cache
def inside() -> list[Inside]:
    """Every import inside a function, in all distributions."""
    found = []
    for root, files in (*((root, "**/*.py") for root in DISTRIBUTIONS), (HERE / "bench", "*.py")):
        for module in parsed(root, files):
            own = {id(node) for _, node in imported(module)} if root == ROOT else set()
            part = module.parts[0] if root == ROOT else root.name
            for node in module.every:
                if id(node) in module.inside:
                    found.append(Inside(part, module.file, node, id(node) in own))
    return found


@pytest.mark.parametrize("most", [OWN, INSIDE], ids=["own", "all"])
def test_imports_inside_functions_do_not_spread(most):
    counts = Counter(each.part for each in inside() if each.own or most is INSIDE)
    more = {part: count for part, count in counts.items() if count > most.get(part, 0)}
    assert not more, f"imports inside functions: {more}, expected at most {most}"
    assert sum(most.values()) <= 20


def test_imports_inside_functions_say_why():
    """Behind the import, or in the line above it."""
    reason = re.compile(r"# (?!noqa)|# noqa: \w+ +\(")
    lines = {each.file: each.file.read_text(encoding="utf-8").splitlines() for each in inside()}
    silent = [
        f"{each.file.relative_to(HERE)}:{each.node.lineno}"
        for each in inside()
        if not any(reason.search(line) for line in lines[each.file][each.node.lineno - 2 : each.node.end_lineno])
    ]
    assert not silent, "\n".join(silent)


def test_no_folder_imports_itself_through_others():
    """By what is imported, inside functions and for types too, whatever BELOW allows."""
    graph: dict[str, set[str]] = {}
    for module in parsed():
        if module.parts[0] in BELOW:
            graph.setdefault(module.parts[0], set()).update(target for target, _ in imported(module) if target)
    without = {floor: targets - {floor} for floor, targets in graph.items()}
    order = tuple(TopologicalSorter(without).static_order())  # raises CycleError, which names the folders
    assert {*order} == {*BELOW}


@pytest.mark.parametrize("package", ["bench/src", "packages/train/src", "packages/weights/src"])
def test_nothing_here_imports_what_is_installed_by_itself(package):
    (name,) = [path.name for path in (HERE / package).glob("unspool_*")]
    wrong = [str(module.file) for module in parsed() for each in everything(module) if each.split(".")[0] == name]
    assert not wrong


def everything(module: Imports) -> Iterator[str]:
    """All modules that are imported by their full names."""
    for node in module.every:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def can_be_had(package: ModuleType, name: str) -> bool:
    try:
        return hasattr(package, name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        return (error.name or "").split(".")[0] != "unspool"


def test_lazy_packages_tell_type_checkers_what_they_load():
    """What stands under TYPE_CHECKING can be had, and is all that can."""
    found = 0
    for file in sorted(ROOT.rglob("__init__.py")):
        if "lazily(" not in (source := file.read_text(encoding="utf-8")):
            continue
        found += 1
        told = {
            alias.asname
            for node in ast.parse(source).body
            if isinstance(node, ast.If)
            for each in ast.walk(node)
            if isinstance(each, ast.ImportFrom)
            for alias in each.names
        }
        package = import_module(".".join(("unspool", *file.parent.relative_to(ROOT).parts)))
        lacking = {name for name in told if not can_be_had(package, name)}
        assert not lacking, (file, lacking)
        assert {*dir(package)} <= {*told, "__version__"}, file
    assert found > 5


def test_what_is_used_of_a_lazy_package_can_be_had():
    """Type checkers do not see that a module is lacking there: a sibling that imports it makes it one of theirs."""
    lacking = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.value.id}.{node.attr}"
        for parts, file, every in ((module.parts, module.file, module.every) for module in parsed())
        if (names := lazy_packages(parts, every))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
        if node.attr not in promised(names[node.value.id])
    ]
    assert not lacking, "\n".join(lacking)


@cache
def promised(package: ModuleType) -> frozenset[str]:
    """What a lazy package can give by itself, whoever has imported its modules before."""
    assert package.__file__ is not None
    body = ast.parse(Path(package.__file__).read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {target.id for node in body for target in ast.walk(node) if isinstance(target, ast.Name)}
    for node in (each for block in body if isinstance(block, ast.If) for each in block.body):
        assert isinstance(node, ast.ImportFrom)
        names.update(alias.name for alias in node.names)
        names |= {node.module} if node.module else set()
    return frozenset(names)


def lazy_packages(parts: tuple[str, ...], every: tuple[Import, ...]) -> dict[str, ModuleType]:
    """The packages that a module imports by their own names, of those that load what they hold when it is used."""
    package = ("unspool", *parts[:-1])
    found: dict[str, ModuleType] = {}
    for node in every:
        if isinstance(node, ast.ImportFrom) and node.level and node.module is None:
            home = package[: len(package) - node.level + 1]
            for alias in node.names:
                file = ROOT.joinpath(*home[1:], alias.name, "__init__.py")
                if alias.asname is None and file.exists() and "lazily(" in file.read_text(encoding="utf-8"):
                    found[alias.name] = import_module(".".join((*home, alias.name)))
    return found


@pytest.mark.parametrize(
    "package",
    ["", *(f".rules.{name}" for name in ["constrain", "decode", "draft", "grow", "search", "unmask", "verify"])],
)
def test_names_that_are_loaded_when_used_are_there(package):
    module = import_module(f"unspool{package}")
    assert all(getattr(module, name) is not None for name in dir(module))


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("from unspool.recipes.methods import method; method('lookup')", 30),
        ("import unspool.recipes.names", 7),
        ("import unspool", 4),
    ],
)
def test_naming_one_method_imports_little(code, most):
    found = loaded(code)
    assert len(found) <= most, found


def loaded(code: str) -> list[str]:
    """All of our modules that are there after some code."""
    ask = f"import sys\n{code}\nprint('\\n', *[name for name in sys.modules if name.split('.')[0] == 'unspool'])"
    ran = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()[-1].split()


def test_a_text_on_the_cpu_loads_nothing_that_it_does_not_run(smollm2_path):
    words = [
        "run",
        "--method",
        "lookup",
        "--device",
        "cpu",
        "--max-tokens",
        "2",
        "--quiet",
        "-m",
        str(smollm2_path),
        "Hi",
    ]
    code = f"from unspool.apps.cli import main\ntry: main({words})\nexcept SystemExit as done: assert not done.code"
    found = loaded(code)
    assert "unspool.rules.draft.lookup" in found
    others = {
        "kernels",
        "runtime.cuda",
        "runtime.hf",
        "runtime.parallel",
        "runtime.draft_bridge",
        "proof",
        "apps.server",
    }
    assert not [name for name in found for other in others if f"{name}.".startswith(f"unspool.{other}.")]
    # 219 before packages were loaded by use; 20 of them are packages themselves, 6 the packed kernels of a CPU, and 2
    # came with families whose layers differ and with what the native runtime makes of a checkpoint
    assert len(found) <= 90, len(found)
