"""Every method that fills a canvas, under every kind of constraint: it ends, and what it writes meets the constraint.

The methods are those of the registry, so that a new rule is put to the test without being named here.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from canvases import Noise, counted
from letters import Letters
from selection import crossed

from unspool.api.settings import Settings
from unspool.core.canvas import Field, Status
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.loops.unmasker import whole
from unspool.recipes.methods import fills, fitted, method, runnable
from unspool.rules.constrain import cfg, choices, json_schema, keywords, regex
from unspool.rules.constrain.form import Form
from unspool.rules.decode import Denoise
from unspool.rules.unmask import Confident, FixedBlocks
from unspool.rules.unmask.filtered import Filter, Filtered
from unspool.runtime.engine.engine import Engine

pytest.importorskip("llguidance")

SIZE = 10  # holes of a canvas
LOOKS = 300  # more than any method takes at its defaults: 128 steps are the most of them, 20 looks per hole come next
REFUSED = {"anyorder", "deliberate", "fragments", "insert", "slots"}  # and by name: they have no guard to ask


@dataclass(frozen=True)
class Spelt(Letters):
    """Letters that can also be asked for the token that a text is."""

    def token(self, text: str) -> int | None:
        return self.pieces.index(text) if text in self.pieces else None


PIECES = ("{", "}", '"', ":", "a", "b", "1", "2", " ", ".", "(", ")", '{"', '":', "ab", "a(", "\n")
WORDS = {ends: Spelt(PIECES, controls=1, ends=ends) for ends in (1, 2)}


def written(name, words, settings, seed=0, most=LOOKS, folder=None):
    """What a method writes after a prompt of two tokens."""
    model = Noise(words.size, seed)
    engine = Engine({"target": model, "draft": model})
    warp, stop = settings.warp(words), settings.stop_rule(words)
    limited = counted(fitted(spec(name, words, folder), words), most)
    job = engine.submit(limited, (4, 5), Philox(settings.seed), warp, stop)
    engine.run()
    return job.result()


def spec(given, words, folder):
    """A method with the options that it cannot do without."""
    if given == "filtered":
        path = folder / "filter.safetensors"
        torch.manual_seed(0)
        Filter(4, 4).save(path)
        return f"filtered:file={path}"
    return f"insert:none={len(words.pieces)}" if given == "insert" else given


def is_json(text: str) -> bool:
    told = json.loads(text)
    return set(told) == {"a"} and isinstance(told["a"], int)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMS: dict[str, tuple[Form, Callable[[str], object]]] = {
    "regex": (regex(r"(a\(|\)){2,4}"), lambda text: re.fullmatch(r"(a\(|\)){2,4}", text)),
    "schema": (json_schema(SCHEMA), is_json),
    "choices": (choices("ab", "a(b)", "1.2"), lambda text: text in ("ab", "a(b)", "1.2")),
    "keywords": (keywords("ab", "1"), lambda text: "ab" in text and "1" in text),
    "cfg": (
        cfg({"V": ["{ S : V }", "N"]}, {"S": '"[ab]+"', "N": "[12]+"}, ignore=r"[ \n]+"),
        lambda text: isinstance(json.loads(text), dict | int),
    ),
}
CANVAS = [entry for entry in runnable() if fills(entry)]
BLOCKED = [entry for entry in CANVAS if "block" in inspect.signature(entry.build).parameters]
TRICKY = [  # where a rule does at every other look what it does seldom at its defaults
    "edit:threshold=0.5,edit=0.15,passes=3",
    "resample:looks=4,block=4",
    "renoise:schedule=rescale,steps=20,eta=0.5",
    "renoise:schedule=loop,steps=20",
    "renoise:schedule=conf,steps=20",
    "windowed:threshold=0.2,near=2,far=3,cycle=3",
    "foreseen:threshold=0.2,block=4,floor=0.1,sure=0.2",
    "early:early=0.5,middle=0.5,late=0.5,block=4",
    "adaptive:threshold=0.2,delimiter=0.05,block=4",
    "cycle:threshold=0.2,looks=2,least=0.1,block=4",
    "explore:threshold=0.6,candidates=3,block=4",
]
OTHERS = [*(f"{entry.name}:block=4" for entry in BLOCKED), *TRICKY]


READING = {entry.name for entry in CANVAS if entry.family in ("draft", "verify")}


@cache
def bound(kind, ends, reading):
    """A form over the tokens of a vocabulary, made once; a method that reads has to be told how long it may be."""
    form = FORMS[kind][0]
    return (form.within(SIZE) if reading else form).fit(WORDS[ends])


def holds(name, ends, kind, temperature, seeds, folder):
    form, meets, words = bound(kind, ends, name in READING), FORMS[kind][1], WORDS[ends]
    for seed in seeds:
        settings = Settings(constraint=form, temperature=temperature, max_tokens=SIZE, seed=seed)
        if name in REFUSED:
            with pytest.raises(BadRequest, match=f"{name} cannot keep to a constraint"):
                written(name, words, settings, seed, folder=folder)
            continue
        done = written(name, words, settings, seed, folder=folder)
        text = words.decode(done.tokens)
        assert meets(text), (text, seed)
        assert not words.eos & set(done.tokens[:-1])


ENDINGS = {
    "one end-greedy": (1, 0.0),
    "two ends-drawn": (2, 1.0),
    "one end-drawn": (1, 1.0),
    "two ends-greedy": (2, 0.0),
}


@pytest.mark.parametrize(("name", "kind", "ending"), crossed([entry.name for entry in CANVAS], FORMS, ENDINGS, quick=4))
def test_it_ends_and_meets_the_constraint(name, kind, ending, tmp_path):
    holds(name, ENDINGS[ending][0], kind, ENDINGS[ending][1], (0,), tmp_path)


@pytest.mark.parametrize(("name", "kind"), crossed(OTHERS, FORMS, quick=2))
def test_it_does_so_with_other_options(name, kind, tmp_path):
    holds(name, 1, kind, 1.0, (1,), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "drawn"])
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("ends", [1, 2], ids=["one end", "two ends"])
@pytest.mark.parametrize("name", [*(entry.name for entry in CANVAS), *OTHERS])
def test_it_does_so_whatever_the_model_says(name, ends, kind, temperature, tmp_path):
    holds(name, ends, kind, temperature, range(2, 10), tmp_path)


# ---- a bound on looks, whatever the parts of a method do


@dataclass(frozen=True)
class Restless:
    """A second thought that takes back, at every look, all that stands."""

    looks: int

    def asks(self, canvas):
        return [i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT]

    def __call__(self, sight, canvas):
        return canvas.remask(self.asks(canvas))


def nothing(sight):
    """A rule that never chooses anything, as it may where something is taken back."""
    return ()


@pytest.mark.parametrize("kind", [None, "schema"])
@pytest.mark.parametrize("blocks", [whole, FixedBlocks(5)], ids=["whole", "blocks"])
@pytest.mark.parametrize("unmask", [Confident(0.5), nothing], ids=["confident", "nothing"])
def test_looks_are_bounded_whatever_is_taken_back(unmask, blocks, kind):
    model, words = Noise(WORDS[2].size, 1), WORDS[2]
    constraint = None if kind is None else bound(kind, 2, False)
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
    if option.annotation is float and entry.name != "filtered"
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
            done = written("template:words=ab+1,longest=3", words, settings, seed)
            text = words.decode(done.tokens)
            assert re.fullmatch(pattern, text)
            assert (done.note is None) == both  # a text that lacks words says so
            assert both or "words of the template: ab, 1." in str(done.note)
            assert (re.search("ab.*1", text) is not None) == both, text
