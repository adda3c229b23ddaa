"""Structured output end to end: schemas given in place, texts closed in time, a status for those that were cut."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from unspool import Settings, json_schema

pytest.importorskip("llguidance")

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
ASKED = ("run", "Answer in JSON.", "--json-schema")


def test_a_schema_in_place_is_one_from_a_file(loaded, tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    file = loaded(*ASKED, str(tmp_path / "schema.json"), "--max-tokens", "24", "--within", "24", "-q")
    place = loaded(*ASKED, " " + json.dumps(SCHEMA), "--max-tokens", "24", "--within", "24", "-q")
    assert file == place
    assert file[0] == 0
    assert "a" in json.loads(file[1])


def test_a_text_that_was_cut_has_a_status_of_its_own_quiet_or_not(loaded):
    for more in ([], ["-q"], ["--json"]):
        code, _, err = loaded(*ASKED, json.dumps(SCHEMA), "--max-tokens", "3", *more)
        assert code == 3
        assert "the text was cut (length)" in err
        assert "--within" in err
    assert loaded("run", "Hello", "--max-tokens", "3", "-q")[0] == 0  # nothing was promised


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_text_that_met_its_form_with_its_last_token_is_not_cut(loaded, more):
    code, out, err = loaded("run", "Hello", "--regex", "[a-z ]{1,400}", "--max-tokens", "1", *more)
    assert (code, "cut" in err) == (0, False), err
    assert out
    if more:
        assert json.loads(out)["reason"] == "length"  # it is the limit that ended it, not the model
    code, _, err = loaded("run", "Hello", "--regex", "[a-z ]{90,400}[.]", "--max-tokens", "5", *more)
    assert (code, "cut (length)" in err) == (3, True)


def test_within_needs_a_form_and_room(here):
    for more in (["--within", "9"], ["--choices", "a,b", "--within", "9", "--max-tokens", "4"]):
        code, _, err = here("run", "Hello", *more)
        assert code == 2
        assert "--within" in err
    code, _, err = here(*ASKED, '{"type": ')
    assert code == 2
    assert "not JSON" in err


class Dog(BaseModel):
    name: str
    tags: dict[str, int] = {}


class Person(BaseModel):
    name: str
    dogs: list[Dog] = []


class Open(BaseModel, extra="allow"):
    name: str


def test_a_class_of_pydantics_is_a_constraint_and_has_no_fields_but_its_own():
    form = Settings(constraint=Person).constraint
    assert form == json_schema(Person)
    made = json.loads(form.source)
    assert made["additionalProperties"] is made["$defs"]["Dog"]["additionalProperties"] is False
    assert made["$defs"]["Dog"]["properties"]["tags"]["additionalProperties"] == {"type": "integer"}
    assert json.loads(json_schema(Open).source)["additionalProperties"] is True
    assert "additionalProperties" not in json.loads(json_schema({"type": "object", "properties": {}}).source)


def test_in_python_a_cut_text_says_so_too(smollm2, caplog, one_thread):
    for most, cut in ((3, True), (40, False)):
        output = smollm2.generate("Invent a name.", constraint=json_schema(SCHEMA), max_tokens=most)
        assert (output.reason == "length") is cut
        assert ("cut before it had the form" in (output.note or "")) is cut
        assert output.note is None or output.note in caplog.text


@pytest.mark.slow
def test_compare_takes_a_form_and_then_drafts_what_it_forces(loaded):
    asked = ("compare", "-p", "Hello", "--max-tokens", "24", "--json")
    rows = json.loads(loaded(*asked, "--json-schema", json.dumps(SCHEMA), "--within", "24")[1])
    assert [row["method"] for row in rows] == ["plain", "forced"]
    assert rows[1]["same_text"] == 1
    assert rows[1]["forwards"]["target"] < rows[0]["forwards"]["target"]
    code, out, err = loaded(*asked[:-1], "lookup", "--regex", "[a-z ]{30,}[.]", "--max-tokens", "4")
    assert (code, "lookup:" in out) == (0, True)
    assert err == (
        "note: 2 of 2 texts were cut before they had their form; raise --max-tokens, or close them in time with "
        "--within N.\n"
    )
