"""`--draft FOLDER` with a trained drafter: the same text as without, what it is and how it fits is said."""

from __future__ import annotations

import json

import pytest

from tests.support.drafterfiles import LAYERS, dflash, eagle3
from tests.support.littlemodel import little_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), LAYERS)


def test_the_text_is_that_of_plain_decoding(here, target, tmp_path):
    told = ("run", "a text", "-m", str(target), "--max-tokens", "12", "--temperature", "0", "--json")
    _, out, _ = here(*told)
    status, drafted, err = here(*told, "--draft", str(dflash(tmp_path)), "--method", "DFlash")
    assert status == 0
    assert json.loads(drafted)["text"] == json.loads(out)["text"]
    assert "DFlash (hidden states 2, 5; 2 layers of 32)" in err
    assert "probably trained for another model" in err  # it was not trained at all


def test_a_wrong_pair_ends_with_the_reason(here, tmp_path):
    short = little_model(tmp_path / "target", 2)
    status, _, err = here("run", "a text", "-m", str(short), "--draft", str(eagle3(tmp_path / "drafter")))
    assert status == 1
    assert "the target has 0 to 2" in err


def test_no_model_drafts_for_a_drafter(here, target, tmp_path):
    status, _, err = here("run", "x", "-m", str(target), "--draft", str(eagle3(tmp_path)), "--small", str(target))
    assert status == 2
    assert "drafts for a model of its own" in err


def test_plan_counts_what_it_reads(here, target, tmp_path):
    status, out, _ = here("plan", str(target), "--draft", str(eagle3(tmp_path)))
    assert status == 0
    assert "EAGLE-3 (hidden states 2, 3, 3; 1 layers of 32)" in " ".join(out.split())  # lines are 80 columns wide
