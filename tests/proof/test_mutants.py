"""The list of planted bugs does not rot, and `scripts/mutate` tells what it should of them."""

import ast
import importlib.util
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader

import pytest
from patience import PATIENCE
from repository import ROOT


@pytest.fixture(scope="module")
def mutate():
    loader = SourceFileLoader("mutate", str(ROOT / "scripts" / "mutate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    sys.modules["mutate"] = module  # where dataclasses look for their own module
    wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = wrote
    yield module
    del sys.modules["mutate"]


def test_every_bug_can_still_be_planted(mutate):
    """What it replaces stands once in its file, and a Python file with the bug is Python still."""
    mutants, wrong = mutate.listed(), []
    for mutant in mutants:
        try:
            text = (ROOT / mutant.file).read_text()
            if mutant.file.endswith(".py"):  # others are C
                ast.parse(mutant.planted(text))
            assert mutant.planted(text) != text
        except (OSError, ValueError, SyntaxError, AssertionError) as error:
            wrong.append(f"{mutant.id}: {error}")
    assert not wrong, "\n".join(["planted bugs that cannot be planted any more; mend tests/mutants.toml:", *wrong])


def test_the_list_is_long_and_names_tests_that_are_there(mutate):
    mutants = mutate.listed()
    assert len(mutants) >= 100
    assert max(Counter(mutant.id for mutant in mutants).values()) == 1
    assert max(Counter((m.file, m.old, m.new) for m in mutants).values()) == 1
    missing = {file for mutant in mutants for file in mutant.tests if not (ROOT / file).is_file()}
    assert not missing
    assert all(mutant.tests and mutant.breaks for mutant in mutants)
    assert len({mutant.area for mutant in mutants}) >= 11


@pytest.mark.parametrize(("file", "old"), [("src/unspool/nowhere.py", "1"), ("scripts/mutate", "no such line: ")])
def test_a_bug_that_cannot_be_planted_ends_the_run_and_is_never_caught(mutate, monkeypatch, capsys, file, old):
    lost = mutate.Mutant("X01", "area", file, old * 2, "2", "the answer", ("tests/proof/test_mutants.py",))
    mutants = [*mutate.listed()[:2], lost]
    monkeypatch.setattr(mutate, "listed", lambda: mutants)
    monkeypatch.setattr(mutate, "copied", pytest.fail)
    monkeypatch.setattr(sys, "argv", ["mutate"])
    assert mutate.main() == 2
    told = capsys.readouterr()
    assert file in told.err
    assert "caught" not in told.out


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_shares_are_parts_of_the_whole(mutate, parts):
    mutants = mutate.listed()
    shares = [mutate.share_of(mutants, f"{i}/{parts}") for i in range(1, parts + 1)]
    assert sorted(m.id for share in shares for m in share) == sorted(m.id for m in mutants)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("share", ["0/8", "9/8", "half", "1", "1/0"])
def test_what_is_no_share_is_refused(mutate, share):
    with pytest.raises(SystemExit, match="is no share"):
        mutate.share_of(mutate.listed(), share)


def planted(mutate, tests, new="2"):
    return mutate.Mutant("X", "area", "src/thing.py", "1", new, "the answer", ("tests/test_thing.py",), tests)


THING = "from thing import answer\nimport time\n\n"
TESTS = """
def test_right():
    assert answer() == 1

def test_blind():
    pass

def test_endless():
    while answer():
        time.sleep(0.1)

def test_broken():
    assert answer() == 3
"""


@pytest.fixture
def copy(tmp_path):
    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "thing.py").write_text("def answer():\n    return 1\n")
    (tmp_path / "tests" / "test_thing.py").write_text(THING + TESTS)
    (tmp_path / "tests" / "conftest.py").write_text(
        "import hypothesis\nhypothesis.settings.register_profile('mutants')\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("tests", "outcome"),
    [("right", "caught"), ("blind", "SURVIVED"), ("nobody", "cannot be run"), ("broken", "cannot be run")],
)
def test_fates(mutate, copy, tests, outcome):
    """A test that fails without the bug too has caught nothing."""
    before = (copy / "src" / "thing.py").read_text()
    fates = mutate.confirmed([mutate.fate_of(planted(mutate, tests), copy, PATIENCE)], copy, PATIENCE)
    assert [fate.outcome for fate in fates] == [outcome]
    assert (copy / "src" / "thing.py").read_text() == before
    assert fates[0].caught is outcome.startswith("caught")
    shown = mutate.table(fates)
    assert ("the answer" in shown) is not fates[0].caught


@pytest.mark.parametrize(("clean", "outcome"), [(0, "caught (hang)"), (None, "cannot be run")])
def test_a_hang_counts_if_the_tests_end_without_the_bug(mutate, copy, monkeypatch, clean, outcome):
    """A machine may be so busy that they do not."""
    file = copy / "src" / "thing.py"
    monkeypatch.setattr(mutate, "tried", lambda *_: (None if "return 2" in file.read_text() else clean, []))
    fates = mutate.confirmed([mutate.fate_of(planted(mutate, "slow"), copy, 5)], copy, 5)
    assert [fate.outcome for fate in fates] == [outcome]
    assert ("did not end: X" in mutate.table(fates)) is (clean == 0)


def test_what_hangs_is_ended(mutate, copy):
    assert mutate.tried(copy, ["tests/test_thing.py"], "endless", 5)[0] is None


def test_a_bug_that_stops_the_import_is_caught(mutate, copy):
    assert mutate.fate_of(planted(mutate, "blind", "1 +"), copy, PATIENCE).outcome == "caught"


@pytest.mark.parametrize("clean", [0, 1, None])
def test_a_failure_that_no_test_tells_counts_if_the_tests_pass_without_the_bug(mutate, copy, monkeypatch, clean):
    fate = mutate.Fate(planted(mutate, "right"), mutate.CAUGHT, 0.1)
    monkeypatch.setattr(mutate, "tried", lambda *given: (clean, []))
    (found,) = mutate.confirmed([fate], copy, PATIENCE)
    assert found.outcome == (mutate.CAUGHT if clean == 0 else mutate.BROKEN)


def test_where_pytest_cannot_run_nothing_is_caught(mutate, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *pytest*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(mutate, "PYTHON", str(python))
    monkeypatch.setattr(sys, "argv", ["mutate", "--only", mutate.listed()[0].id])
    with pytest.raises(SystemExit, match="cannot run pytest"):
        mutate.main()
