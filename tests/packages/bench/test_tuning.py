"""auto-tune: the fastest exact method wins if it surely is, and its profile is what other commands use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from littlemodel import little_model

from unspool.api.profile import Profile
from unspool.api.settings import Settings
from unspool.core.claim import LAW, SEED
from unspool.core.cost import Cost
from unspool.core.errors import BadRequest
from unspool.recipes.methods import claim_of
from unspool_bench.contender import Sample
from unspool_bench.tuning import DRAFTED, tune, turns

PROMPTS = [(i, i + 1, i + 2) for i in range(8)]


class Pen:
    """Writes 10 tokens in a time that depends on the prompt."""

    exact = True

    def __init__(self, name, seconds):
        self.name, self.seconds, self.wrote = name, seconds, 0

    def write(self, prompts, settings):
        self.wrote += 1
        return Sample(((1,) * 10,), ("",), self.seconds(prompts[0][0]), 5)


def test_the_fastest_wins_and_slow_ones_are_left_behind_early():
    pens = [Pen("plain", lambda p: 1.0)]
    pens += [Pen(f"m{k}", lambda p, k=k: 1.5 - 0.1 * k + 0.01 * (p % 3)) for k in range(9)]
    count = [0]
    found = tune(pens, PROMPTS, Settings(), Cost((1, 16), (1.0, 4.0)), lambda: count.__setitem__(0, count[0] + 1))
    assert found.best.name == "m8"
    assert found.gain.low > 1
    assert count[0] == turns(len(pens), len(PROMPTS)) == sum(pen.wrote for pen in pens)
    wrote = {pen.name: pen.wrote for pen in pens}
    assert wrote["m8"] == wrote["plain"] == 1 + len(PROMPTS)
    assert wrote["m0"] < wrote["m8"]
    said = found.explained()
    assert "m8 is fastest: 1.4" in said
    assert "2.00 tokens per forward" in said
    assert "A round must write 1.20 over 2" in said


def test_the_order_in_which_prompts_were_given_does_not_decide():
    """Two kinds of prompts, one after the other: what shines on the first kind only must not win by coming first."""
    pens = [Pen("plain", lambda p: 1.0), Pen("steady", lambda p: 0.6)]
    pens += [Pen(f"early{k}", lambda p: 0.4 if p < 4 else 2.0) for k in range(3)]
    assert tune(pens, PROMPTS, Settings()).best.name == "steady"


def test_what_is_not_surely_faster_is_not_taken():
    """One prompt in four is much faster, the others slower: another choice of prompts could say the opposite."""
    pens = [Pen("plain", lambda p: 1.0), Pen("lucky", lambda p: 0.1 if p == 3 else 1.05)]
    found = tune(pens, PROMPTS, Settings())
    assert found.best.name == "plain"
    assert "None is surely faster than plain decoding: lucky comes nearest" in found.explained()


def test_a_profile_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "p.toml"
    profile = Profile("m", "merge:nodes=7", None, "fp32", notes={"measured": {"speed_up": 1.2, "interval": [1.1, 1.3]}})
    profile.write(file, 'two lines\nwith "quotes"')
    assert Profile.read(file) == profile
    assert Profile.read(file).notes == profile.notes


@pytest.mark.parametrize(
    ("text", "said"),
    [("model = ", "is not TOML"), ("modle = 'x'", "has modle = 'x'; expected"), ("dtype = 3", "has dtype = 3")],
)
def test_a_bad_profile_says_what_is_wrong(tmp_path, text, said):
    file = tmp_path / "p.toml"
    file.write_text(text)
    with pytest.raises(BadRequest, match=said):
        Profile.read(file)
    with pytest.raises(BadRequest, match="cannot be read"):
        Profile.read(tmp_path / "none.toml")


def test_a_profile_loads_drafts_that_are_made_of_the_model(tmp_path):
    profile = Profile(str(little_model(tmp_path / "model")), "chain:depth=2", "layers:1")
    profile.write(tmp_path / "p.toml")
    lm = Profile.read(tmp_path / "p.toml").load()
    assert lm.draft.model.network.layers == 1
    settings = Settings(max_tokens=4, ignore_eos=True)
    assert lm.generate("ab", settings, profile.method).tokens == lm.generate("ab", settings).tokens


def unspool(*arguments):
    return subprocess.run([sys.executable, "-m", "unspool", *map(str, arguments)], capture_output=True, text=True)


def test_the_command_writes_a_profile_that_run_uses(here, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path / "home"))
    model, out = little_model(tmp_path / "model"), tmp_path / "unspool.toml"
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one two\nthree four\n")
    tuned = unspool(
        "auto-tune", "--prompts", prompts, "--method", "lookup", "--method", "suffix", "--max-tokens", "8",
        "-m", model, "-o", out, "--json",
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    told = json.loads(tuned.stdout)
    assert {arm["method"] for arm in told["arms"]} == {"plain", "lookup", "suffix"}
    profile = Profile.read(out)
    assert (profile.model, profile.method) == (str(model), told["method"])
    assert told["why"] in out.read_text()
    profile = Profile(str(model), "suffix:depth=3")
    profile.write(out)
    asked = "run", "ab", "--profile", str(out), "--json", "--max-tokens", "3"
    found = json.loads(here(*asked)[1])
    assert (found["model"], found["method"]) == (str(model), "suffix:depth=3")
    above = json.loads(here(*asked, "--method", "plain")[1])
    assert above["method"] == "plain"
    assert above["text"] == found["text"]
    assert profile.load().generate("ab", Settings(max_tokens=3), profile.method).text == found["text"]
    code, _, err = here("auto-tune", "--method", "lookup + typical", "-m", str(model), "-o", str(out))
    assert code == 2
    assert "does not write plain decoding's text" in err or "no method" in err


def test_a_draft_model_is_tried_as_a_chain_with_early_ends_as_a_tree_and_with_phrases():
    tried = {spec.partition(":")[0] for spec in DRAFTED}
    assert tried == {"chain", "paced", "svip", "likeliest", "phrase"}
    assert all(claim_of(spec) in (LAW, SEED) for spec in DRAFTED)
