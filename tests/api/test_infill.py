"""Infilling: text behind and between holes, for what fills them; refused in words by what reads left to right."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import click
import pytest
from canvases import Noise
from littlemodel import little_model
from serving import serving

import unspool
from unspool import LM, Settings
from unspool.api.finished import cut_short
from unspool.api.infill import infill
from unspool.apps.cli.run import Marked, marked
from unspool.core.canvas import HOLE, Canvas, Status
from unspool.core.errors import BadRequest, ContextExceeded
from unspool.recipes.methods import fitted, runnable
from unspool.rules.constrain import cfg

CUTTING = {"cycle", "foreseen", "sliding"}  # they see nothing behind their blocks
FRAMED = [e.name for e in runnable() if e.family == "unmask" and e.name not in {"filtered", *CUTTING}] + ["anyorder"]

PAIRS = cfg({"L": ["[ P ]"], "P": ["W = W", "W = W , P"]}, {"W": "[a-z0-9]+"}, ignore=" +")


class Written(Noise):
    """Noise that writes down the canvases it is shown."""

    def __init__(self, vocab, seed):
        super().__init__(vocab, seed)
        self.seen = []

    def look(self, asked):
        self.seen += [ask.look.canvas for ask in asked]
        return super().look(asked)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return unspool.load(little_model(tmp_path_factory.mktemp("little"))).vocabulary


@pytest.fixture
def lm(words):
    return LM("noise", Written(words.size, 3), words)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", FRAMED)
def test_what_is_given_stands_between_and_behind_the_holes(lm, name, temperature):
    settings = Settings(max_tokens=3, suffix=("-and-", 2, "."), temperature=temperature)
    out = lm.generate("ab", settings, name)
    assert len(out.tokens) == 3 + 5 + 2
    assert out.text[-7:-2] == "-and-" or lm.decode(out.tokens[3:8]) == "-and-"
    assert not lm.vocabulary.eos & set(out.tokens)  # every hole is filled
    behind = [
        lm.decode(canvas.tokens[-1:]) for canvas in lm.model.seen if len(canvas) == 2 + 11 + (lm.vocabulary.add_bos)
    ]
    assert behind  # and it was seen
    assert set(behind) == {"."}
    assert all(canvas.window[1] == len(canvas) for canvas in lm.model.seen)


def test_what_stands_behind_changes_what_is_written(lm):
    texts = {lm.generate("ab", Settings(max_tokens=6, suffix=end), "confident").text for end in ("x", "y", "zz")}
    assert len(texts) == 3


def test_a_text_behind_is_not_written_again_and_samples_differ(lm):
    outs = lm.samples("ab", Settings(max_tokens=4, suffix="tail", temperature=1.0, n=3), "confident")
    assert [len(out.tokens) for out in outs] == [4, 4, 4]
    assert len({out.tokens for out in outs}) == 3
    again = lm.batch(["ab", "cd"], Settings(max_tokens=4, suffix="tail"), "confident:block=2")
    assert again[0].tokens == lm.generate("ab", Settings(max_tokens=4, suffix="tail"), "confident:block=2").tokens


def test_prohibitions_see_what_stands_behind(lm):
    free = lm.generate("ab", Settings(max_tokens=1, suffix="b"), "confident").text
    assert lm.generate("ab", Settings(max_tokens=1, suffix="b", bad_words=(free + "b",)), "confident").text != free


@pytest.mark.parametrize(
    "name", ["plain", "lookup", "beam", "masks", "slots", "deliberate", "fragments", *sorted(CUTTING)]
)
def test_others_refuse_it_in_words(lm, name):
    with pytest.raises(BadRequest, match=r"cannot see what stands behind|cuts off what stands behind") as told:
        lm.generate("ab", Settings(max_tokens=3, suffix="."), name)
    assert told.value.param == "suffix"


@pytest.mark.parametrize("suffix", [("a", 0), ("a", True), (3.5,), ("",), ("\ud800",), ("a", 1025), ("a",) * 65, 7])
def test_what_cannot_stand_there_is_refused(suffix):
    with pytest.raises(BadRequest, match="suffix"):
        Settings(suffix=suffix)


def test_a_constraint_is_refused_beside_it_and_all_of_it_has_to_fit(lm):
    for refused in ({"constraint": unspool.regex("a+x")}, {"constraint": PAIRS, "min_tokens": 2}, {"min_tokens": 1}):
        with pytest.raises(BadRequest, match="suffix cannot be used with min_tokens or with this constraint"):
            lm.generate("ab", Settings(suffix="x", **refused), "confident")
    with pytest.raises(BadRequest, match="anyorder cannot keep to a constraint"):
        lm.generate("ab", Settings(suffix="x]", constraint=PAIRS), "anyorder")
    lm.model.context = 16
    with pytest.raises(ContextExceeded, match="maximum context length is 16"):
        lm.generate("ab", Settings(max_tokens=8, suffix="x" * 10), "confident")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["confident", "factor:block=4", "one", "checked", "edit", "early", "timed + credited"])
def test_a_grammar_binds_holes_together_with_what_is_given(lm, name, temperature):
    """CFG-constrained diffusion in several regions: what is written and what is given is one text of the grammar."""
    settings = Settings(max_tokens=3, suffix=("1,", 3, "=", 2, "]"), constraint=PAIRS, temperature=temperature, seed=4)
    out = lm.generate("ab", settings, name)
    assert len(out.tokens) == 3 + 2 + 3 + 1 + 2
    assert re.fullmatch(r" *\[ *\w+ *= *\w+ *(, *\w+ *= *\w+ *)*\] *", out.text + "]"), out.text
    assert not cut_short(out, settings, lm.vocabulary)


def test_holes_that_no_text_of_the_grammar_fills_are_refused(lm):
    for size, behind in ((1, "=,"), (1, "=1]"), (9, "]]")):
        with pytest.raises(BadRequest, match=f"no way was found to fill {size} holes") as told:
            lm.generate("ab", Settings(max_tokens=size, suffix=behind, constraint=PAIRS), "confident")
        assert told.value.param == "suffix"


def test_a_model_that_was_trained_to_fill_in_the_middle_is_told_by_its_signs(lm, monkeypatch):
    signs = {"<|fim_prefix|>": 250, "<|fim_suffix|>": 251, "<|fim_middle|>": 252}
    monkeypatch.setattr(lm.vocabulary, "token", signs.get)
    told = infill(Settings(suffix="cd"), fitted("plain", lm.vocabulary), lm.vocabulary)
    suffix = lm.vocabulary.encode("cd")[lm.vocabulary.add_bos :]
    assert told.around((7, 8)) == (250, 7, 8, 251, *suffix, 252)
    assert lm.generate("ab", Settings(max_tokens=2, suffix="cd"), "lookup").tokens
    with pytest.raises(BadRequest, match="for one hole"):
        lm.generate("ab", Settings(suffix=("c", 2)), "plain")


def test_a_framed_canvas_has_holes_where_told():
    canvas = Canvas.framed((9,), (2, (5, 6), 1, (7,)))
    assert canvas.tokens == (9, HOLE, HOLE, 5, 6, HOLE, 7)
    assert canvas.holes == [1, 2, 5]
    assert canvas.written == 6
    assert canvas.status[3] is canvas.status[6] is Status.GIVEN
    assert Canvas.blank((9,), 2).written == 3


# ---- surfaces


def test_marks_take_a_prompt_apart():
    assert marked("The ___(3), the ____ end.") == Marked("The ", 3, (", the ", 8, " end."))
    assert marked("a ___").behind == ()
    for bad in ("no hole", "___ first"):
        with pytest.raises(click.UsageError, match="--infill needs"):
            marked(bad)
    for bad in ("a ___(0) b", "a ___(99999) b", "a ___(2) b ___(00000) c"):  # a number too large is no text either
        with pytest.raises(click.UsageError, match="expected 1 to 9999 tokens"):
            marked(bad)


@pytest.mark.parametrize("k", [0, 2])
def test_what_is_given_is_certain_in_a_report(lm, k):
    out = lm.generate("ab", Settings(max_tokens=2, suffix=("-", 1, "."), logprobs=k), "confident")
    given = out.events[2]
    assert (given.token, given.logprob) == (out.tokens[2], 0.0)
    assert given.top == ((given.token, 0.0),)[:k]


def test_the_servers_suffix_is_openais(lm):
    with serving(lm) as made:
        told = {"prompt": "ab", "suffix": "yz", "max_tokens": 3, "temperature": 0}
        got = made.post("/v1/completions", **told, decoding={"method": "confident"})
        assert got.status_code == 200, got.text
        expected = lm.generate("ab", Settings(max_tokens=3, suffix="yz"), "confident", raw=True)
        assert got.json()["choices"][0]["text"] == expected.text
        refused = made.post("/v1/completions", **told)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "suffix"


def test_the_window_shows_what_is_written_before_a_suffix(lm):
    with serving(lm) as made:
        told = {"prompt": "ab", "suffix": "yz", "max_tokens": 3, "temperature": 0, "decoding": {"method": "confident"}}
        got = made.post("/window/decode", **told)
        assert got.status_code == 200, got.text
        news = [json.loads(line[6:]) for line in got.text.split("\n\n")[:-2]]
        shown = "".join(token["text"] for each in news if "round" in each for token in each["round"]["tokens"])
        assert shown == lm.generate("ab", Settings(max_tokens=3, suffix="yz"), "confident", raw=True).text


class Filling(Written):
    """Noise of a model that was made to fill holes, four at a time."""

    filling, keeps_keys = SimpleNamespace(together=4), False


@pytest.mark.parametrize("asked", [("Hello ___(3) world", "--infill"), ("Hello", "--suffix", "world", "--raw")])
def test_a_model_that_fills_holes_does_so_without_being_told_by_which_method(words, here, monkeypatch, asked):
    lm = LM("noise", Filling(words.size, 3), words)
    monkeypatch.setattr("unspool.api.loader.load", lambda name, **options: lm)
    told = () if "--infill" in asked else ("--max-tokens", "3")
    code, out, err = here("run", *asked, *told, "--json")
    assert (code, json.loads(out)["method"]) == (0, "confident"), err
    code, _, err = here("run", *asked, *told, "--method", "plain")
    assert code == 2
    assert "reads left to right" in err
