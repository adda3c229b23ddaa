"""Every drafter under every verifier and constraint: what is written is allowed, and exact rules write that."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from littlemodel import chatting_model, loaded

from unspool import Settings
from unspool.core.claim import HEURISTIC, SEED
from unspool.core.errors import BadRequest
from unspool.recipes.methods import claim_of, entries, method, needs
from unspool.recipes.verify import USUAL
from unspool.rules.constrain import choices, json_schema, regex

WORDS = ("yes", "no", "maybe so")
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
FORMS = {
    "regex": (regex("[ab]{2}-[0-9]{3}"), lambda text: re.fullmatch("[ab]{2}-[0-9]{3}", text)),
    "choices": (choices(*WORDS), lambda text: text in WORDS),
    "schema": (json_schema(SCHEMA), lambda text: json.loads(text)["a"] in (1, 2)),
}
WITHOUT = {"retrieve", "denoised", "masks", "heads"}  # which need a file, holes or heads
DRAFTERS = [name for name, rule in entries().items() if rule.family == "draft" and name not in WITHOUT]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = chatting_model(tmp_path_factory.mktemp("constrained") / "little")
    with loaded(folder, draft="layers:1", small="layers:1-1") as made:
        yield made


@pytest.fixture(scope="module")
def plain(lm):
    """Plain decoding's tokens for a form and a temperature, written once."""
    return cache(lambda form, temperature: written(lm, form, temperature, "plain").tokens)


def written(lm, form, temperature, spec):
    return lm.generate("abc", Settings(max_tokens=24, temperature=temperature, seed=5, constraint=FORMS[form][0]), spec)


def check(lm, plain, spec, forms):
    """The text is allowed; at temperature 0 it is plain decoding's, and elsewhere too if the seed is promised."""
    claim = claim_of(spec)
    for form in forms:
        for temperature in (0.0, 1.0):
            found = written(lm, form, temperature, spec)
            if found.reason != "length":  # a text that is cut off is not yet whole
                assert FORMS[form][1](found.text), (spec, temperature, found.text)
            if claim is SEED or (claim is not HEURISTIC and temperature == 0):
                assert found.tokens == plain(form, temperature), (spec, temperature)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_keeps_to_a_constraint(lm, plain, name):
    """To one of them here, in turn; below to all."""
    assert set(needs(name)) <= {"draft", "small"}
    check(lm, plain, name, [list(FORMS)[DRAFTERS.index(name) % len(FORMS)]])


@pytest.mark.slow
@pytest.mark.parametrize("verifier", USUAL)
@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_under_every_verifier_keeps_to_every_constraint(lm, plain, name, verifier):
    try:
        method(f"{name} + {verifier}")
    except BadRequest:
        return
    check(lm, plain, f"{name} + {verifier}", FORMS)
