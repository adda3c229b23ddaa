"""What README and docs show is true: the table of methods is the registry's, and the code in them runs."""

import ast
import re
import subprocess
import sys
from pkgutil import resolve_name
from typing import get_args

import click
import pytest
from repository import ROOT

import unspool
from unspool.apps.cli.root import root
from unspool.core.asks import Ask
from unspool.core.option import options, products
from unspool.proof import prove


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_page_of_all_methods_is_the_registry():
    ran = subprocess.run([sys.executable, ROOT / "scripts/methods", "--check"])
    assert ran.returncode == 0, "run scripts/methods"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 8_000


def test_the_five_lines_of_the_readme_run(smollm2, capsys, monkeypatch):
    (code,) = blocks("README.md", "python")
    monkeypatch.setattr(unspool, "load", lambda name: smollm2)
    exec(code, {})
    shown = capsys.readouterr().out
    assert "tokens in" in shown
    assert len(shown) > 200


def test_the_two_commands_are_there_and_ci_runs_the_tests():
    readme = (ROOT / "README.md").read_text()
    for command in ("scripts/try", "scripts/test"):
        assert f"\n{command} " in readme
        assert (ROOT / command).stat().st_mode & 0o111
    assert "scripts/test" in (ROOT / ".ci/run").read_text()


def test_the_verifier_and_the_drafter_of_the_docs_do_what_they_say(tmp_path, monkeypatch):
    wrong, session, right, joined, _ = blocks("docs/own-method.md", "python")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(wrong)
    import mine  # type: ignore[import-not-found]

    proof = prove(mine.method, quick=True)
    assert not proof.ok
    assert proof.counterexample.splitlines()[0] in session
    scope: dict[str, object] = {}
    exec(right, scope)
    assert prove(scope["method"], unspool.SEED, quick=True).ok
    exec(joined, scope)
    assert prove(scope["joined"], unspool.SEED, quick=True).ok


def test_the_options_of_the_docs_are_declared_as_they_must_be():
    scope: dict[str, object] = {}
    exec(blocks("docs/own-method.md", "python")[-1], scope)
    assert [option.operator for option in options(scope["build"]).values()] == [False, False, False, True]
    assert [product.most for product in products(scope["build"])] == [256]


def test_the_rule_of_the_page_on_canvases_can_be_proved():
    _, rule, *_ = blocks("docs/denoise.md", "python")
    scope: dict[str, object] = {}
    exec(rule.replace("size=32", "size=3"), scope)
    assert 0 < prove(scope["method"], unspool.HEURISTIC, quick=True, shaped=False).tv < 1


PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def ours(code: str) -> list[ast.stmt]:
    """What a piece of Python imports of unspool; nothing of a session at a prompt, which is no piece."""
    if code.startswith(">>>"):
        return []
    found = (line for line in ast.walk(ast.parse(code)) if isinstance(line, ast.ImportFrom))
    return [line for line in found if (line.module or "").split(".")[0] == "unspool"]


@pytest.mark.parametrize("page", PAGES)
def test_what_pages_import_is_there(page):
    for code in blocks(page, "python"):
        exec(compile(ast.Module(ours(code), []), page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_names_of_unspool_that_pages_tell_of_are_there(page):
    files = {"env", "service", "commands"}  # of the example of a server, and a group of entry points
    for name in set(re.findall(r"`unspool\.([a-z_]+(?:\.[A-Za-z_]+)*)`", (ROOT / page).read_text())) - files:
        assert resolve_name(f"unspool.{name}") is not None


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_files_that_pages_name_are_there(page):
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", (ROOT / page).read_text())
    roots = (ROOT, ROOT / "src", ROOT / "src/unspool")
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_page_on_own_methods_has_every_ask():
    """The interface is told whole: what the engine answers, and how many asks there are."""
    asks = {kind.__name__ for kind in get_args(Ask)}
    page = (ROOT / "docs/own-method.md").read_text()
    assert {name for name in re.findall(r"^\| `(\w+)\(", page, re.MULTILINE) if name[0].isupper()} == asks
    assert {11: "Eleven", 12: "Twelve"}[len(asks)] + " asks are the whole interface" in page


def test_the_quick_start_says_which_commands_have_json():
    page = " ".join((ROOT / "docs/start.md").read_text().split())
    told = re.search(r"Commands that end in a result take `--json`: (.*?)\. `chat`, `serve` and `train`", page)
    assert told is not None
    context = click.Context(root)
    named = re.findall(r"`([\w-]+)`", told[1])
    assert sorted([*named, "chat", "serve", "train"]) == sorted(root.list_commands(context))
    for name in named:
        command = root.get_command(context, name)
        parts = command.commands.values() if isinstance(command, click.Group) else [command]
        for part in parts:
            flags = {flag for parameter in part.params for flag in parameter.opts}
            assert "--json" in flags, (name, part.name)
