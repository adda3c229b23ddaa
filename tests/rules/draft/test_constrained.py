"""Every drafter under every verifier and constraint: what is written is allowed, and exact rules write plain's text.

Models are tables over a vocabulary of letters and grammars are fitted once, so that a text takes milliseconds: of every
pair one form, temperature and vocabulary are tried here, in turn, and all of them in the slow set.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from random import Random

import pytest
from canvases import Noise
from letters import Letters
from tokenizers import Tokenizer
from tokenizers.models import BPE

from unspool import Settings
from unspool.core.chance import Philox
from unspool.core.claim import HEURISTIC, LAW, SEED
from unspool.core.errors import BadRequest
from unspool.models.align import align
from unspool.models.vocabulary import Vocabulary
from unspool.recipes.composition import composed
from unspool.recipes.methods import claim_of, entries, method
from unspool.recipes.verify import USUAL
from unspool.rules.constrain import choices, json_schema, keywords, regex
from unspool.rules.decode import Speculate
from unspool.rules.draft import Retrieve, SpecDecPP, Store
from unspool.rules.verify import Judged
from unspool.runtime.cache.table_model import Table
from unspool.runtime.draft_bridge.retokenised import RetokenisedDraft
from unspool.runtime.draft_bridge.string_level import StringLevelDraft
from unspool.runtime.engine.engine import Engine

pytest.importorskip("llguidance")
pytestmark = pytest.mark.usefixtures("one_thread")

MOST = 12  # tokens of a text
PROMPT = (4, 5, 6, 4, 5, 6, 14)
PIECES = ("{", "}", '"', ":", "a", "b", "1", "2", " ", ".", "(", ")", '{"', '":', "ab", "a(", "\n")
WORDS = {ends: Letters(PIECES, controls=1, ends=ends) for ends in (1, 2)}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMS = {
    "regex": (regex(r"(a\(|\)){2,4}"), lambda text: re.fullmatch(r"(a\(|\)){2,4}", text)),
    "schema": (json_schema(SCHEMA), lambda text: isinstance(json.loads(text)["a"], int)),
    "choices": (choices("ab", "a(b)", "1.2"), lambda text: text in ("ab", "a(b)", "1.2")),
    "keywords": (keywords("ab", "1"), lambda text: "ab" in text and "1" in text),
}
WAYS = list(product(FORMS, (0.0, 1.0), WORDS))
DRAFTERS = [name for name, rule in entries().items() if rule.family == "draft"]
PAIRS = list(product(DRAFTERS, USUAL))


@cache
def fitted(kind, ends):
    return FORMS[kind][0].within(MOST).fit(WORDS[ends])


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
    settings = Settings(constraint=fitted(kind, ends), temperature=temperature, max_tokens=MOST, seed=5)
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
    text = WORDS[ends].decode(tokens)
    assert FORMS[kind][1](text), (spec, way, text)
    assert not WORDS[ends].eos & set(tokens[:-1])
    if claim is SEED or (claim is not HEURISTIC and temperature == 0):
        assert tokens == written("plain", way), (spec, way)


def refused(spec):
    try:
        return made(spec) is None
    except BadRequest:
        return True


def test_only_what_draws_again_or_verifies_itself_is_refused_and_nothing_else_left_out():
    refusing = {name for name, verifier in PAIRS if refused(f"{name} + {verifier}")}
    assert refusing == {"coupled", "pearl", "raced", "on_device"}


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_keeps_to_every_constraint(name):
    """Greedily with one end token and drawn with two, or the other way round for every other drafter."""
    odd = DRAFTERS.index(name) % 2
    for way in WAYS:
        if (way[1] == 0) == (way[2] == 1 + odd):
            check(name, way)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_under_every_verifier_keeps_to_one_constraint(name):
    """One of them, at one temperature, with one or two end tokens: the next one for the next pair."""
    for verifier in USUAL:
        if not refused(spec := f"{name} + {verifier}"):
            check(spec, WAYS[(PAIRS.index((name, verifier)) * 5) % len(WAYS)])


@pytest.mark.slow
@pytest.mark.parametrize("verifier", USUAL)
@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_under_every_verifier_keeps_to_every_constraint(name, verifier):
    if not refused(spec := f"{name} + {verifier}"):
        for way in WAYS:
            check(spec, way)


def test_the_forms_leave_something_to_draft():
    """With tables that drew the same token everywhere nothing above could fail."""
    drawn = {kind: {written("plain", (kind, 1.0, ends)) for ends in WORDS} for kind in FORMS}
    assert all(len(tokens) > 2 for found in drawn.values() for tokens in found)
    assert claim_of("chain + block") is LAW
