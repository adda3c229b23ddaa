"""What README and docs show is true: the method table is the registry's, and the code in them runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import unspool
from unspool.core.option import options, products
from unspool.proof import prove

ROOT = Path(__file__).parent.parent


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_method_table_of_the_readme_is_the_registry():
    ran = subprocess.run([sys.executable, ROOT / "scripts/readme", "--check"])
    assert ran.returncode == 0, "run scripts/readme"


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
    _, rule = blocks("docs/denoise.md", "python")
    scope: dict[str, object] = {}
    exec(rule.replace("size=32", "size=3"), scope)
    assert 0 < prove(scope["method"], unspool.HEURISTIC, quick=True, shaped=False).tv < 1


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target
