"""Recipes: one function per method, called as the method is; rules state what they are and know no recipe."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Annotated

import pytest

from unspool.core import claim
from unspool.core.claim import HEURISTIC, Method, claims, compose, registered
from unspool.core.errors import BadRequest
from unspool.core.option import FILE, Range, options, part
from unspool.recipes import methods as registry
from unspool.recipes.methods import FAMILIES, entries, ours, recipe
from unspool.recipes.names import HOMES

MODULES = {f"unspool.recipes.{name}": family for family, names in FAMILIES.items() for name in names}


def told(code: str, *words: str) -> list[str]:
    """What a fresh interpreter prints."""
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def defined(module: str) -> list[str]:
    """The public functions of a module."""
    found = vars(import_module(module)).items()
    return [name for name, each in found if inspect.isfunction(each) and each.__module__ == module and name[0] != "_"]


@pytest.mark.parametrize("module", MODULES)
def test_every_recipe_is_called_as_its_rule_and_stands_with_its_family(module):
    for name in defined(module):
        assert HOMES[name].family == MODULES[module], name
        assert inspect.unwrap(entries()[name].build) is getattr(import_module(module), name)


def test_every_method_that_comes_with_unspool_has_one_recipe():
    defined_in = [name for module in MODULES for name in defined(module)]
    assert len(defined_in) == len({*defined_in})
    runnable = {name for name in HOMES if entries()[name].build is not None}
    assert runnable == {*defined_in, "plain"}  # which is a loop by itself


def test_a_rule_without_a_recipe_is_a_part_of_methods():
    assert recipe("static") is None
    assert ours("static").build is None


def test_importing_recipes_imports_no_rule():
    code = f"import sys\nfor name in {[*MODULES]}: __import__(name)\nprint(*sys.modules)"
    inner = [name for name in told(code) if name.startswith("unspool.rules.") and name.count(".") > 2]
    assert not inner


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("chain", "kseq blended lookup"),
        pytest.param("confident", "quota annealed", marks=pytest.mark.slow),
        pytest.param("beam", "smc diverse", marks=pytest.mark.slow),
    ],
)
def test_naming_one_method_imports_one_rule(name, others):
    code = "import sys\nfrom unspool.recipes.methods import method\nmethod(sys.argv[1])\nprint(*sys.modules)"
    loaded = {module.rpartition(".")[2] for module in told(code, name) if module.startswith("unspool.rules.")}
    assert name in loaded
    assert loaded.isdisjoint(others.split())


@pytest.fixture
def registering(monkeypatch):
    """What a test registers is forgotten behind it."""
    monkeypatch.setattr(claim, "_entries", dict(claim._entries))
    return monkeypatch


def test_a_recipe_whose_options_say_nothing_is_refused(registering):
    def undeclared(depth: int = 4) -> Method: ...

    @claims(HEURISTIC, trials=lambda _: [], name="composed")
    def rule() -> None: ...

    with pytest.raises(BadRequest, match="'depth' of a method does not say what it may be"):
        compose("composed", undeclared)
    assert registered()["composed"].build is None

    registering.setitem(HOMES, "composed", HOMES["kseq"])
    registering.setattr(registry, "recipe", lambda name: undeclared)
    with pytest.raises(BadRequest, match="'depth' of a method does not say what it may be"):
        ours("composed")


def test_what_a_claim_says_of_its_method_is_not_replaced(registering):
    def own(store: Annotated[str, FILE] = "", depth: Annotated[int, Range(1, 2)] = 1) -> Method: ...

    @claims(HEURISTIC, trials=lambda _: [], name="own", build=own)
    def rule() -> None: ...

    registering.setitem(HOMES, "own", HOMES["kseq"])
    registering.setattr(registry, "recipe", pytest.fail)
    assert list(options(ours("own").build)) == ["store", "depth"]


def test_a_part_that_nobody_knows_is_answered_with_the_known_ones():
    assert part("order", "left", {"left": 1, "mixed": 2}) == 1
    with pytest.raises(BadRequest, match="no order is called 'up'; expected one of: left, mixed"):
        part("order", "up", {"left": 1, "mixed": 2})


@pytest.mark.parametrize("first", ["unspool.rules.verify.rejection", "unspool.rules.verify"])
def test_a_rule_wins_over_the_file_of_the_same_name(first):
    code = f"import {first}\nfrom unspool.rules import verify\nprint(type(verify.rejection).__name__)"
    assert told(code) == ["function"]
