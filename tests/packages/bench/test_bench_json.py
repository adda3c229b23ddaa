"""The JSON benchmark: it finds what is wrong with a backend, survives what a backend does, and goes on where it was."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from patience import PATIENCE, until
from processes import started
from repository import TESTS

from unspool.core.errors import BadRequest
from unspool.rules.constrain import Report, choices, json_schema
from unspool_bench.apart import Apart, Crashed, TooLate
from unspool_bench.journal import Journal
from unspool_bench.respelling import takes, takes_somehow
from unspool_bench.schemas import SchemaJudge, SchemaRow
from unspool_bench.score import only_theirs, score
from unspool_bench.shelf import cases
from unspool_bench.takers import TAKERS, Unspool

pytest.importorskip("llguidance")
pytest.importorskip("jsonschema")
pytestmark = pytest.mark.usefixtures("one_thread")

DATA = TESTS / "data/schemas"


@pytest.fixture(scope="module")
def words(smollm2_path):
    from unspool.models.weights import open_checkpoint

    return open_checkpoint(smollm2_path).vocabulary()


def case(name):
    return next(each for each in cases(DATA) if each.name == name)


class Instead:
    """Takes another schema than it is asked to."""

    def __init__(self, schema):
        self.schema = schema

    def take(self, schema, words):
        return json_schema(self.schema).fit(words), Report()

    def refused(self, schema):
        return ()


# ---- what is found


def test_a_right_backend_has_no_faults(words):
    judge = SchemaJudge(words)
    rows = [judge("unspool", TAKERS["unspool"], each) for each in cases(DATA)]
    assert {row.name for row in rows if row.right} == {"person", "tree", "colour"}
    assert not any(row.fault for row in rows)
    counted = score("unspool", rows)
    assert counted.refusals == {"uniqueItems": 1, "not": 1, "dependencies": 1, "format": 1}
    assert (counted.rejected, counted.admitted, counted.outputs_wrong) == (0, 0, 0)
    assert counted.respelt == 2  # the members of one in another order, a number of the other with an exponent
    assert counted.outputs > 0


def test_with_a_check_more_is_taken_and_rightly(words):
    judge = SchemaJudge(words)
    rows = [judge("unspool-check", TAKERS["unspool-check"], each) for each in cases(DATA)]
    assert {row.name for row in rows if row.outcome == "refused"} == {"link"}  # nobody here can tell an IRI
    assert not any(row.fault for row in rows)
    assert score("unspool-check", rows).checks == {"uniqueItems": 1, "not": 1, "dependencies": 1}


def test_a_backend_that_rejects_a_valid_instance_is_caught(words):
    narrow = {**case("person").schema, "properties": {"name": {"const": "Bob"}, "age": {"type": "integer"}}}
    row = SchemaJudge(words)("narrow", Instead(narrow), case("person"))
    assert row.reading.rejected == (0, 1)
    assert not row.right


def test_a_backend_that_admits_an_invalid_instance_is_caught(words):
    row = SchemaJudge(words)("lax", Instead({"type": "object"}), case("person"))
    assert row.reading.admitted == (2, 3, 4)
    assert not row.right


def test_a_backend_that_writes_an_invalid_text_is_caught(words):
    """Without any instance, by what comes out alone."""
    from unspool_bench.shelf import SchemaCase

    row = SchemaJudge(words)(
        "lax", Instead({"type": "integer", "maximum": -1}), SchemaCase("c", "s", {"minimum": 0}, ())
    )
    assert len(row.writing.wrong) == row.writing.written > 0
    assert not row.right


def test_where_only_another_is_right_is_told(words):
    rows = [SchemaRow("a", "x", "s", "refused"), SchemaRow("b", "x", "s", "taken"), SchemaRow("b", "y", "s", "taken")]
    assert [(mine.name, theirs.taker) for mine, theirs in only_theirs(rows, "a", "b")] == [("x", "b")]


def test_other_spellings_are_of_the_same_value(words):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"properties": {"c": {}, "d": {"maximum": 1}}}, "e": {}},
        "required": ["a"],
    }
    constraint = json_schema(schema).fit(words)
    value = {"x": 1, "e": 1, "b": {"d": 1e-07, "c": []}, "a": 2.0}
    assert not takes(constraint, value, words)
    assert takes_somehow(constraint, value, schema, words)
    assert not takes_somehow(constraint, {**value, "a": 2.5}, schema, words)
    assert not takes_somehow(constraint, {**value, "b": {"d": 1.5}}, schema, words)


# ---- what is survived


def nap(seconds):
    time.sleep(seconds)
    return seconds


def test_what_hangs_is_ended_and_what_crashes_is_told():
    with Apart(nap, PATIENCE) as apart:
        assert apart(0) == 0
        apart._seconds = 0.4
        with pytest.raises(TooLate):
            apart(2 * PATIENCE)
        apart._seconds = PATIENCE
        assert apart(0.01) == 0.01  # a new process
    with Apart(os._exit, PATIENCE) as apart, pytest.raises(Crashed):
        apart(3)
    with Apart(int, PATIENCE) as apart, pytest.raises(ValueError, match="invalid literal"):
        apart("x")


def test_rows_come_back_as_they_were_and_a_torn_line_is_measured_again(tmp_path, words):
    path, settings = tmp_path / "rows.jsonl", {"seed": 0}
    row = SchemaJudge(words)("unspool", Unspool(), case("colour"))
    journal = Journal(path, settings)
    for each in (row, SchemaRow("unspool", "later", "s", "late")):
        journal.add((each.taker, each.name), each.record())
    path.write_bytes(path.read_bytes()[:-20])
    assert [SchemaRow.of(kept) for _, kept in Journal(path, settings).items()] == [row]
    with pytest.raises(BadRequest, match="with seed 0, now it is 1"):
        Journal(path, {"seed": 1})


# ---- the command


def run(*arguments):
    command = [sys.executable, "-m", "unspool", "bench", "json", "--data", str(DATA), *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


@pytest.mark.slow
def test_the_command_goes_on_where_it_was_killed(tmp_path, smollm2_path):
    to = tmp_path / "result.json"
    rows = to.with_suffix(".jsonl")
    with run("--backend", "unspool", "--model", str(smollm2_path), "--json", str(to)) as first:
        until(lambda: first.poll() is not None or (rows.exists() and rows.read_text().count("\n") >= 3))
        first.send_signal(signal.SIGKILL)
        first.communicate()
    kept = rows.read_text().splitlines()[:3]
    with run("--backend", "unspool", "--model", str(smollm2_path), "--json", str(to)) as again:
        out, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, err
    assert rows.read_text().splitlines()[:3] == kept
    names = [json.loads(line)["name"] for line in rows.read_text().splitlines()[1:]]
    assert sorted(names) == sorted(each.name for each in cases(DATA))
    result = json.loads(to.read_text())
    assert result["scores"][0]["right"] == 3
    assert result["faults"] == []
    assert "uniqueItems 1" in out


def test_the_command_can_be_interrupted(tmp_path, smollm2_path):
    to = tmp_path / "result.json"
    rows = to.with_suffix(".jsonl")
    with run("--backend", "unspool-check", "--model", str(smollm2_path), "--json", str(to)) as process:
        until(lambda: process.poll() is not None or (rows.exists() and rows.read_text().count("\n") >= 2))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 or to.exists()  # it may have been done before the signal came
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--split", "soft"), "there are: hard, plain"),
        (("--json", "nowhere/at/all.json"), "does not exist"),
        (("--backend", "outlines"), "outlines"),
    ],
)
def test_what_the_command_cannot_do_is_said(arguments, why, capsys):
    from unspool.apps.cli.root import main

    with pytest.raises(SystemExit) as ended:
        main(["bench", "json", "--data", str(DATA), *arguments])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


# ---- xgrammar


@pytest.fixture
def xgrammar():
    return pytest.importorskip("xgrammar")


def test_xgrammar_is_a_constraint_like_others(xgrammar, words):
    from unspool.rules.constrain import xgrammar_schema

    state = xgrammar_schema(case("person").schema).fit(words).start()
    for token in words.encode('{"name": "Ada", "age": 36', special=False):
        mask = state.mask()
        sample = [*range(0, words.size, 997), *words.special, token]
        assert [state.allows(t) for t in sample] == mask[sample].tolist()
        assert not any(mask[t] for t in words.special)
        state = state.step(token)
    assert not state.complete()
    state = state.step(words.token("}"))
    assert state.complete()
    assert all(state.allows(token) for token in words.eos)
    assert not state.step(words.token("}")).mask().any()


def test_what_xgrammar_leaves_out_is_checked_at_the_end(xgrammar, words):
    from unspool.rules.constrain import xgrammar_schema
    from unspool_bench.takers import XGrammar

    alone, _ = XGrammar().take(case("distinct").schema, words)
    assert takes(alone, [1, 1], words)  # it knows no uniqueItems
    ours = xgrammar_schema(case("distinct").schema).fit(words)
    assert not takes(ours, [1, 1], words)
    assert takes(ours, [1, 2], words)


def test_xgrammar_beside_another_form(xgrammar, words):
    from unspool.rules.constrain import xgrammar_schema

    both = (xgrammar_schema({"type": "integer"}) | choices("none")).fit(words)
    assert takes(both, 12, words)
    assert not takes(both, "none", words)
