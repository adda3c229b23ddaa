"""Prompts to learn from: made of data sets that are there, each once, and none that repeats what is measured."""

from __future__ import annotations

import gzip
import json
import sys

import pytest
from repository import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import asked

TOLD = "The ferry to the island leaves at noon every day but on the first Monday of the month"


@pytest.fixture
def data(tmp_path):
    def write(name, rows):
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress("\n".join(rows).encode()))

    known = [
        {"question": f"who built bridge {n}", "title": f"Bridge {n}", "context": f"It is old, {n}."} for n in range(9)
    ]
    write("gsm8k/train.jsonl.gz", [json.dumps({"question": f"What is {n} and {n}?\u2028"}) for n in range(9)])
    write("long_context/nq_open_oracle.jsonl.gz", map(json.dumps, known))
    write("mbpp/mbpp.jsonl.gz", [json.dumps({"text": f"Write a function {n}.", "task_id": n}) for n in (5, 601, 602)])
    write(
        "tatoeba/deu-eng.test.tsv.gz",
        ["#deu\teng", *(f"Ein Satz mit vielen Wörtern {n}\tA sentence {n}" for n in range(40))],
    )
    write("scitldr/train.jsonl.gz", [json.dumps({"source": f"{n} " + "words of an abstract " * 20}) for n in range(4)])
    return tmp_path / "data"


def made(data, tmp_path, monkeypatch, *options):
    out = tmp_path / "asked.jsonl"
    monkeypatch.setattr(sys, "argv", ["asked.py", "--data", str(data), "--out", str(out), *options])
    asked.main()
    return [json.loads(line) for line in out.read_text("utf-8").split("\n") if line]


def test_all_families_that_have_data_are_asked_and_each_prompt_once(data, tmp_path, monkeypatch, capsys):
    found = made(data, tmp_path, monkeypatch)
    assert len(found) == len(set(found))
    assert sum("What is" in text for text in found) == 9, "a line may hold what splits lines elsewhere"
    assert sum(text.startswith("Write a function") for text in found) == 2, "those for training alone"
    assert any(text.startswith("Translate German to English: Ein Satz") for text in found)
    assert any("abstract" in text for text in found)
    assert any("Bridge 3 It is old, 3." in text and text.endswith("Who built bridge 3?") for text in found)
    assert "rag: 18 prompts" in capsys.readouterr().out


def test_chat_is_asked_to_write_and_to_talk_when_that_is_named(data, tmp_path, monkeypatch):
    sets = [json.dumps({"concepts": [f"dog{n}", "river", "boat"]}) for n in range(9)]
    said = [json.dumps({"text": f"User: I look for a table for {n} people.\nAssistant: Yes?"}) for n in range(7)]
    for name, lines in (("commongen/train.jsonl.gz", sets), ("corpus_dialogue/shard-00.jsonl.gz", said)):
        (data / name).parent.mkdir()
        (data / name).write_bytes(gzip.compress("\n".join(lines).encode()))
    found = made(data, tmp_path, monkeypatch, "--families", "tasks", "talk", "--most", "tasks=50")
    assert len(found) == len(set(found)) == 57
    assert "I look for a table for 3 people." in found
    assert any(", river and boat" in text for text in found)
    assert any("Bridge" in text for text in found)
    assert not any("What is 3 and 3" in text or "{" in text for text in found)


def test_some_are_kept_apart(data, tmp_path, monkeypatch):
    held = tmp_path / "held.jsonl"
    found = made(data, tmp_path, monkeypatch, "--held", str(held), "--apart", "2", "--count", "5")
    apart = [json.loads(line) for line in held.read_text("utf-8").split("\n") if line]
    assert {row["family"] for row in apart} == {*asked.FAMILIES}
    assert not {row["text"] for row in apart} & set(found)
    assert sum("What is" in text for text in found) == 5


def test_what_is_measured_is_not_learnt(data, tmp_path, monkeypatch):
    """Neither a question as a whole, nor behind passages, nor a run of its words."""
    measured = tmp_path / "question.jsonl"
    measured.write_text(json.dumps({"turns": ["Some passage.\nWho built Bridge 3?", TOLD]}), encoding="utf-8")
    found = made(data, tmp_path, monkeypatch, "--against", str(measured))
    assert any("Who built bridge 4?" in text for text in found)
    assert not any(text.endswith("Who built bridge 3?") for text in found)
    same = asked.Measured([measured], 10)
    assert same.has(f"Summarize: {TOLD.upper()}!")
    assert not same.has(" ".join(TOLD.split()[:9]))
