"""Methods that fill a canvas: looks are bounded whatever their parts do, and options that say nothing are refused."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import get_args

import pytest
from canvases import Noise, counted
from constraints import WORDS, bound

from unspool.api.settings import Settings
from unspool.core.canvas import Field, Status
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import Law, Point
from unspool.core.reported_law import ReportedLaw
from unspool.core.stop import Stop
from unspool.loops.unmasker import whole
from unspool.recipes.methods import fills, fitted, method, runnable
from unspool.rules.constrain import regex
from unspool.rules.decode import Denoise
from unspool.rules.unmask import Confident, FixedBlocks
from unspool.rules.unmask.filtered import Filter, Filtered
from unspool.runtime.engine.engine import Engine

pytest.importorskip("llguidance")

SIZE = 10  # holes of a canvas
LOOKS = 300  # more than any method takes at its defaults: 128 steps are the most of them, 20 looks per hole come next
CANVAS = [entry for entry in runnable() if fills(entry)]


# ---- a bound on looks, whatever the parts of a method do


@dataclass(frozen=True)
class Restless:
    """A second thought that takes back, at every look, all that stands."""

    looks: int

    def asks(self, canvas):
        return [i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT]

    def __call__(self, state, canvas):
        return canvas.remask(self.asks(canvas))


def nothing(state):
    """A rule that never chooses anything, as it may where something is taken back."""
    return ()


@pytest.mark.parametrize("kind", [None, "schema"])
@pytest.mark.parametrize("blocks", [whole, FixedBlocks(5)], ids=["whole", "blocks"])
@pytest.mark.parametrize("unmask", [Confident(0.5), nothing], ids=["confident", "nothing"])
def test_looks_are_bounded_whatever_is_taken_back(unmask, blocks, kind):
    model, words = Noise(WORDS[2].size, 1), WORDS[2]
    constraint = None if kind is None else bound(kind, 2)
    settings = Settings(constraint=constraint, max_tokens=SIZE, ignore_eos=kind is None)
    restless = Denoise(unmask, SIZE, blocks, remask=Restless(7))
    engine = Engine({"target": model})
    job = engine.submit(counted(restless, LOOKS), (4, 5), Philox(0), settings.warp(words), settings.stop_rule(words))
    engine.run()
    assert job.result().reason in ("token", "length")
    windows = SIZE // 5 if blocks != whole else 1
    assert SIZE < model.forwards <= 2 * SIZE + 7 * windows


def test_a_rule_that_chooses_nothing_where_nothing_is_taken_back_is_named():
    job = Engine({"target": Noise(5, 0)}).submit(Denoise(nothing, 3), (0,), Philox(0))
    with pytest.raises(RuntimeError, match=r"nothing .* chose none of 3 holes"):
        next(job.decoding), job.decoding.send(Field({i: Law.of([1, 1]) for i in (1, 2, 3)}))


# ---- what cannot be compared, and what asks nobody


FLOATS = [
    f"{entry.name}:{option.name}=nan"
    for entry in CANVAS
    for option in inspect.signature(entry.build, eval_str=True).parameters.values()
    if get_args(option.annotation)[:1] == (float,) and entry.name != "filtered"
]


@pytest.mark.parametrize("given", FLOATS)
def test_no_option_is_taken_that_no_number_is_above_or_below(given):
    with pytest.raises(BadRequest, match="nan"):
        method(given)


def test_a_filter_refuses_such_a_threshold_too():
    with pytest.raises(BadRequest, match="filtered:threshold is nan"):
        Filtered(Filter(2, 2), 2, float("nan"))


def test_a_template_keeps_to_a_constraint_and_copies_where_that_allows_it():
    words = WORDS[1]
    for pattern, both in ((r"[ab1 ]{4,9}", True), (r"[b1 ]{2,4}", False)):
        form = regex(pattern).within(SIZE).fit(words)
        for seed in range(4):
            settings = Settings(constraint=form, max_tokens=SIZE, temperature=1.0, seed=seed)
            engine = Engine({"target": Noise(words.size, seed)})
            template = fitted("template:words=ab+1,longest=3", words)
            job = engine.submit(template, (4, 5), Philox(seed), settings.warp(words), settings.stop_rule(words))
            engine.run()
            done = job.result()
            text = words.decode(done.tokens)
            assert re.fullmatch(pattern, text)
            assert (done.note is None) == both  # a text that lacks words says so
            assert both or "words of the template: ab, 1." in str(done.note)
            assert (re.search("ab.*1", text) is not None) == both, text


@pytest.mark.parametrize(
    "spec", ["confident:size=6", "one:size=6", "edit:size=6", "slots:size=4,beam=2", "insert:none=2"]
)
@pytest.mark.parametrize(("told", "kind"), [(-1, Point), (2, ReportedLaw)])
def test_a_canvas_keeps_of_laws_what_somebody_is_told(spec, told, kind):
    """A law is a row of all that its look computed, and would hold on to that until its place is told."""
    engine = Engine({"target": Noise(5, 3)})
    job = engine.submit(method(spec), (0, 1), Philox(1), stop=Stop(most=6, told=told))
    engine.run()
    laws = [law for emit in job.emitted for law in (*emit.before, *emit.after)]
    assert len(laws) == 2 * len(job.result().tokens)
    assert laws
    assert {type(law) for law in laws} <= {kind, Point}
    assert told < 0 or {type(law) for law in laws} != {Point}
