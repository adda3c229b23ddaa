"""Every rule of the registry under every kind of constraint: it ends, and what it writes meets the constraint.

Filling rules with bounded looks, drafters, and drafters under every verifier: each × {regex, schema, choices, keywords,
cfg} × greedy and drawn × vocabularies with one and with two end tokens. What promises plain decoding's text writes it.
Rules are those of the registry, so that a new one is put to the test without being named here. A build tries a cover
of the product, every rule with every constraint and every pair with one; `slow` is the whole product.
"""

from __future__ import annotations

import inspect
from functools import cache
from random import Random

import pytest
import torch
from canvases import Noise, counted
from constraints import FORMS, PIECES, WAYS, WORDS, bound, meets
from selection import crossed
from tokenizers import Tokenizer
from tokenizers.models import BPE

from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.core.claim import HEURISTIC, LAW, SEED
from unspool.core.errors import BadRequest
from unspool.models.align import align
from unspool.models.vocabulary import Vocabulary
from unspool.recipes.composition import composed
from unspool.recipes.methods import claim_of, entries, fills, fitted, method, runnable
from unspool.recipes.verify import USUAL
from unspool.rules.decode import Speculate
from unspool.rules.draft import Retrieve, SpecDecPP, Store
from unspool.rules.unmask.filtered import Filter
from unspool.rules.verify import Judged
from unspool.runtime.cache.table_model import Table
from unspool.runtime.draft_bridge.retokenised import RetokenisedDraft
from unspool.runtime.draft_bridge.string_level import StringLevelDraft
from unspool.runtime.engine.engine import Engine

pytest.importorskip("llguidance")
pytestmark = pytest.mark.usefixtures("one_thread")


def covered(names):
    """Every name with every way, all but a cover of them slow: each name meets every form, each form every setting."""
    found, settings = [], len(WAYS) // len(FORMS)
    for n, name in enumerate(names):
        for w, (kind, temperature, ends) in enumerate(WAYS):
            quick = w % settings == (n + w // settings) % settings
            label = f"{name}-{kind}-{'drawn' if temperature else 'greedy'}-{ends}"
            marks = () if quick else pytest.mark.slow
            found.append(pytest.param(name, (kind, temperature, ends), id=label, marks=marks))
    return found


# ---- rules that fill holes


SIZE = 10  # holes of a canvas
LOOKS = 300  # more than any method takes at its defaults: 128 steps are the most of them, 20 looks per hole come next
REFUSED = {"anyorder", "deliberate", "fragments", "insert", "slots"}  # and by name: they have no guard to ask
CANVAS = [entry for entry in runnable() if fills(entry)]
READING = {entry.name for entry in CANVAS if entry.family in ("draft", "verify")}
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
FILLING = [*(entry.name for entry in CANVAS), *(f"{entry.name}:block=4" for entry in BLOCKED), *TRICKY]


def filled(name, way, seed, folder):
    """What a filling method writes after a prompt of two tokens, in no more than LOOKS looks."""
    kind, temperature, ends = way
    words, model = WORDS[ends], Noise(WORDS[ends].size, seed)
    form = bound(kind, ends, SIZE if name in READING else None)
    settings = Settings(constraint=form, temperature=temperature, max_tokens=SIZE, seed=seed)
    engine = Engine({"target": model, "draft": model})
    limited = counted(fitted(completed(name, words, folder), words), LOOKS)
    job = engine.submit(limited, (4, 5), Philox(seed), settings.warp(words), settings.stop_rule(words))
    engine.run()
    return job.result().tokens


def completed(name, words, folder):
    """A method with the options that it cannot do without."""
    if name == "filtered":
        path = folder / "filter.safetensors"
        torch.manual_seed(0)
        Filter(4, 4).save(path)
        return f"filtered:file={path}"
    return f"insert:none={len(words.pieces)}" if name == "insert" else name


def fills_in_form(name, way, seed, folder):
    if name in REFUSED:
        with pytest.raises(BadRequest, match=f"{name} cannot keep to a constraint"):
            filled(name, way, seed, folder)
        return
    tokens = filled(name, way, seed, folder)
    assert meets(tokens, way[0], way[2]), (WORDS[way[2]].decode(tokens), seed)


@pytest.mark.parametrize(("name", "way"), covered(FILLING))
def test_a_filling_rule_ends_and_meets_the_constraint(name, way, tmp_path):
    fills_in_form(name, way, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
@pytest.mark.parametrize("name", FILLING)
def test_it_does_so_whatever_the_model_says(name, seed, tmp_path):
    for way in WAYS:
        fills_in_form(name, way, seed, tmp_path)


# ---- products by name: which holes + where + how is looked + what is taken back or checked


CHOOSING = (
    *("confident", "factor", "local", "hierarchy", "dynamic", "quota:steps=4", "timed:steps=8", "ancestral:steps=8"),
    *("annealed:steps=6", "clocked:steps=8", "cooling", "entropy_bound", "peaked", "one", "stable", "redundant"),
    *("leading", "explore"),
)
WHERE = ("", "adaptive:delimiter=0.05", "foreseen:floor=0.1,sure=0.2", "cycle:looks=2,least=0.1", "sliding:window=4")
LOOKING = (
    *("", "cached_dual", "cached_prefix", "delayed", "interval", "windowed:near=2,far=3,cycle=3", "credited"),
    *("guided", "context", "softened", "credited + cached_dual"),
)
AGAIN = (
    *("", "edit:edit=0.15,passes=2", "resample:looks=3", "checked:route=static", "checked:route=bandit"),
    "early:early=0.5,middle=0.5,late=0.5",
)
PRODUCTS = 40


@pytest.mark.parametrize("n", [*range(PRODUCTS), *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 1000))])
def test_a_product_ends_and_meets_the_constraint(n, tmp_path):
    """The n-th of a drawn sample: whatever is joined, in whatever order, under the n-th constraint."""
    drawn = Random(n)
    parts = [drawn.choice(parts) for parts in (CHOOSING[n % len(CHOOSING) :][:1], WHERE, LOOKING, AGAIN)]
    drawn.shuffle(parts)
    spec = " + ".join(filter(None, parts))
    fills_in_form(spec, WAYS[n % len(WAYS)], n, tmp_path)


# ---- drafters and verifiers


MOST = 12  # tokens of a text
PROMPT = (4, 5, 6, 4, 5, 6, 14)
DRAFTERS = [name for name, rule in entries().items() if rule.family == "draft"]
PAIRS = [f"{name} + {verifier}" for name in DRAFTERS for verifier in USUAL]


@cache
def models(ends):
    """Tables that know little of each other, and heads; what fills holes is noise."""
    size = WORDS[ends].size

    def table(name):
        return Table(size, lambda text: [Random(f"{name}{text[-3:]}{x}").random() ** 3 + 0.01 for x in range(size)])

    target, draft, small = map(table, ("target", "draft", "small"))
    target.heads = draft, small
    target.look = Noise(size, 1).look
    spelt = align(vocabulary(PIECES, ends), vocabulary(tuple(p for p in PIECES if len(p) == 1), 1))
    own = Table(spelt.draft.size, lambda text: draft.weights(text)[: spelt.draft.size])
    bridged = {"slem": RetokenisedDraft(own, spelt), "slrs": StringLevelDraft(own, spelt)}
    return {"target": target, "draft": draft, "small": small, **bridged}


def vocabulary(pieces, ends):
    """The same letters with a tokenizer, for drafts that are text."""
    names = [*pieces, "<control>", *(f"<end {i}>" for i in range(ends))]
    merges = [(piece[0], piece[1]) for piece in pieces if len(piece) == 2]
    tokenizer = Tokenizer(BPE({name: i for i, name in enumerate(names)}, merges))
    special = range(len(pieces), len(names))
    return Vocabulary(tokenizer, [*map(str.encode, pieces), *[b""] * len(special)], special=special, eos=special[1:])


@cache
def written(spec, way):
    """The text of a method, with the tokens that a text of this seed has."""
    kind, temperature, ends = way
    settings = Settings(constraint=bound(kind, ends, MOST), temperature=temperature, max_tokens=MOST, seed=5)
    engine = Engine(models(ends))
    job = engine.submit(made(spec), PROMPT, Philox(5), settings.warp(WORDS[ends]), settings.stop_rule(WORDS[ends]))
    engine.run()
    return job.result().tokens


FILED = {  # drafters that need a file by name, with what they would read from it, and how they are verified alone
    "retrieve": (Retrieve(Store([PROMPT, PROMPT[::-1]])), "sample_match"),
    "specdecpp": (SpecDecPP(lambda states: states.amax(-1) * 8 - 1, 0.5, 1, 4), "rejection"),
}


def made(spec):
    """The method of this name."""
    name, _, verifier = spec.partition(" + ")
    if verifier == "judged":  # which needs a file too
        return composed(made(name), Judged(lambda states: states.amax(-1) * 8 - 2), verifier)
    if name not in FILED:
        return method(spec)
    drafter, usual = FILED[name]
    return Speculate(drafter, method(f"chain + {verifier or usual}").verify)


def check(spec, way):
    """The text is allowed; at temperature 0 it is plain decoding's, and elsewhere too if the seed is promised."""
    kind, temperature, ends = way
    claim, tokens = claim_of(spec), written(spec, way)
    assert meets(tokens, kind, ends), (spec, way, WORDS[ends].decode(tokens))
    if claim is SEED or (claim is not HEURISTIC and temperature == 0):
        assert tokens == written("plain", way), (spec, way)


def refused(spec):
    try:
        return made(spec) is None
    except BadRequest:
        return True


def test_only_what_draws_again_or_verifies_itself_is_refused_and_nothing_else_left_out():
    assert {pair.partition(" + ")[0] for pair in PAIRS if refused(pair)} == {"coupled", "pearl", "raced", "on_device"}


@pytest.mark.parametrize(("name", "way"), covered(DRAFTERS))
def test_a_drafter_keeps_to_the_constraint(name, way):
    check(name, way)


@pytest.mark.parametrize("name", crossed(DRAFTERS, quick=2))
def test_a_drafter_under_every_verifier_keeps_to_one_constraint(name):
    """One of them, at one temperature, with one or two end tokens: the next one for the next pair."""
    for n, pair in enumerate(PAIRS):
        if pair.startswith(f"{name} + ") and not refused(pair):
            check(pair, WAYS[n * 7 % len(WAYS)])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_every_drafter_under_every_verifier_keeps_to_every_constraint(pair):
    for way in () if refused(pair) else WAYS:
        check(pair, way)


def test_the_forms_leave_something_to_draft():
    """With tables that drew the same token everywhere nothing above could fail."""
    drawn = {kind: {written("plain", (kind, 1.0, ends)) for ends in WORDS} for kind in FORMS}
    assert all(len(tokens) > 2 for found in drawn.values() for tokens in found)
    assert claim_of("chain + block") is LAW
