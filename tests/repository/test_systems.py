"""The page of systems: every system runs by its name and is shown by a test that is there, and every rule is placed."""

from __future__ import annotations

import ast
import runpy
import shlex
import subprocess
import sys

import click
import pytest
from repository import ROOT

from unspool.apps.cli.root import root
from unspool.recipes.methods import entries, method
from unspool_train.drafter.kinds import KINDS

PLACED = runpy.run_path(str(ROOT / "scripts/pages/placed.py"))


def functions_of(file):
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "system", [*PLACED["SYSTEMS"], *PLACED["CANVASES"], *PLACED["TRAINED"]], ids=lambda system: system.name
)
def test_a_system_has_a_method_and_a_test(system):
    file, _, name = system.test.partition("::")
    assert name in functions_of(file)
    if system.spec not in ("judged", "retrieve", "specdecpp"):  # which need a file, and the page says so
        assert callable(method(system.spec))


@pytest.mark.parametrize("system", [*PLACED["SYSTEMS"], *PLACED["CANVASES"]], ids=lambda system: system.name)
def test_the_command_of_a_system_can_be_typed(system, tmp_path, monkeypatch):
    """Its options are those of `unspool run`, and of `unspool train` where a model has to be made first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("a")
    typed = ["a prompt", *shlex.split(system.options), "--method", system.spec]
    with click.Context(root) as above:
        run = root.get_command(above, "run")
        assert run.make_context("run", typed, parent=above).params
        for command in filter(None, system.train.split("; ")):
            _, group, name, *rest = shlex.split(command.replace("…", "--texts LINES"))
            train = root.get_command(above, group)
            assert train.get_command(above, name).make_context(name, rest, parent=above).params


def test_every_kind_that_is_trained_is_a_system_and_the_other_way_round():
    kinds = {system.train for system in PLACED["TRAINED"] if system.train}
    assert kinds == set(KINDS) - {"small"}, "a small model by itself is no system"


def test_what_cannot_run_without_a_file_is_shown_with_one():
    page = (ROOT / "docs/systems.md").read_text("utf-8")
    assert "--method 'retrieve:store=FILE'" in page
    assert "--method 'specdecpp:head=FILE'" in page


def test_every_drafter_and_every_verifier_has_its_place_in_the_surveys_terms():
    rules = entries().values()
    assert set(PLACED["DRAFTERS"]) == {rule.name for rule in rules if rule.family == "draft"}
    assert set(PLACED["VERIFIERS"]) == {rule.name for rule in rules if rule.family == "verify"}


def test_the_page_is_up_to_date():
    assert subprocess.run([sys.executable, ROOT / "scripts/systems", "--check"], check=False).returncode == 0


@pytest.mark.parametrize("file", ["apps/integrations/harness", "apps/integrations/plugin", "api/profile"])
def test_what_loads_a_draft_model_loads_one_for_that_too(file):
    """Methods of three models are reached from lm-eval and llm as well."""
    tree = ast.parse((ROOT / f"src/unspool/{file}.py").read_text("utf-8"))
    given = [{key.arg for key in call.keywords} for call in ast.walk(tree) if isinstance(call, ast.Call)]
    assert [names for names in given if {"draft", "small"} <= names]
