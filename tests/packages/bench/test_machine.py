"""What results say of where they come from."""

import subprocess
from pathlib import Path

from unspool_bench import machine


def test_a_tree_without_git_has_the_commit_that_it_is_told(monkeypatch, tmp_path):
    copy = tmp_path / "bench" / "src" / "unspool_bench" / "machine.py"
    monkeypatch.setattr(machine, "__file__", str(copy))
    monkeypatch.delenv("UNSPOOL_COMMIT", raising=False)
    assert machine.machine()["commit"] is None
    monkeypatch.setenv("UNSPOOL_COMMIT", "1234567")
    assert machine.machine()["commit"] == "1234567"


def test_a_checkout_has_its_own_commit_whatever_it_is_told(monkeypatch):
    monkeypatch.setenv("UNSPOOL_COMMIT", "1234567")
    if (Path(machine.__file__).parents[3] / ".git").exists():
        assert machine.machine()["commit"] != "1234567"


def test_only_changes_of_what_runs_make_a_tree_another_than_its_commit(monkeypatch, tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    source = tmp_path / "bench/src/unspool_bench/machine.py"
    for file in (source, tmp_path / "docs/a.md", tmp_path / "bench/results/a.json", tmp_path / "src/a.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    monkeypatch.setattr(machine, "__file__", str(source))
    (tmp_path / "docs/a.md").write_text("2")
    (tmp_path / "bench/results/a.json").write_text("2")
    clean = machine.machine()["commit"]
    assert clean
    assert not clean.endswith("-dirty")
    (tmp_path / "src/a.py").write_text("2")
    assert machine.machine()["commit"] == f"{clean}-dirty"
