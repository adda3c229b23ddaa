"""`unspool bench denoise`: thresholds swept, likelihoods against one hole per look, tables and the picture."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from unspool_bench.cli.bench_denoise import swept
from unspool_bench.pareto import chart
from unspool_bench.unmask_policies import repetition

FIRST = "confident:threshold=2,block=8"


def test_methods_with_a_threshold_are_swept_unless_they_say_it():
    found = swept(("confident", "confident:threshold=0.6", "factor:block=4", "masks", "factor + early"), (0.5, 0.9), 8)
    assert found == [
        FIRST,
        "confident:threshold=0.5,block=8",
        "confident:threshold=0.9,block=8",
        "confident:threshold=0.6,block=8",
        "factor:block=4",
        "masks",
        "factor + early",
    ]
    assert swept(("confident",), (), 8) == [FIRST, "confident:block=8"]


def test_repetition_counts_fourgrams_that_came_before():
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([1, 2, 3]) == 0
    assert repetition([1] * 7) == 0.75


def row(speed, nats):
    return {"tokens_per_forward": speed, "nats": nats}


def test_the_picture_joins_what_nothing_beats():
    rows = {FIRST: row(1, -0.5), "confident:0.9": row(1.5, -0.52), "worse": row(1.2, -0.9), "masks": row(2, -0.4)}
    root = ElementTree.fromstring(chart({"chat": rows, "plain": rows}, "a <model>", "b"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(space + "circle"))) == 8
    lines = [len(node.get("points").split()) for node in root.iter(space + "polyline")]
    assert lines == [1, 2, 1, 2]  # masks alone; of those that fill, all but `worse`
    tips = ["".join(node.itertext()) for node in root.iter(space + "title")]
    assert "confident:0.9: 1.50 tokens per forward, -0.020 nats" in tips


def test_the_command_measures_sweeps_and_draws(here, tmp_path):
    (tmp_path / "prompts.txt").write_text("Count to five.\n")
    asked = ("bench", "denoise", "confident", "--thresholds", "0.5", "--block", "8", "--max-tokens", "8")
    asked += ("--prompts", str(tmp_path / "prompts.txt"), "--figure", str(tmp_path / "a.svg"))
    code, out, _ = here(*asked, "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["model"], told["base"]) == ("smollm2-diffusion", "smollm2")
    rows = told["methods"]["yours"]
    assert list(rows) == [FIRST, "confident:threshold=0.5,block=8"]
    assert rows[FIRST]["tokens_per_forward"] <= 1.01
    assert rows[FIRST]["nats"] < 0
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--thresholds", "a"), "is not a list of numbers"),
        (("--figure", "a.png"), "cannot be drawn"),
        (("magic",), "no method is called 'magic'"),
        (("--prompts", "/nowhere.txt"), "No such file"),
    ],
)
def test_mistakes_are_said_before_a_model_is_read(here, more, why):
    code, _, err = here("bench", "denoise", *more)
    assert code == 2
    assert why in err
