"""What results say of where they come from."""

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
