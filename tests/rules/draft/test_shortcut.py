"""Shortcuts: a model's own layers draft for it, with its weights, and change nothing of its text."""

from __future__ import annotations

import pytest
import torch
from littlemodel import little_model

from unspool import Settings, load
from unspool.api.self_draft import layers_of, shortcut
from unspool.core.errors import BadRequest
from unspool.core.tree import NOTHING
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.linear import rms

LONG = Settings(max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("shortcut") / "little")


def test_all_layers_are_always_right(folder):
    lm = load(folder, draft="layers:2")
    found = lm.generate("Once", LONG, "chain:depth=3")
    assert found.tokens == lm.generate("Once", LONG).tokens
    assert found.trace.accepted_tokens == found.trace.drafted > 0
    assert found.trace.forwards["target"] == 6  # 3 drafts and one more, each


@pytest.mark.parametrize("spec", ["layers:1", "layers:1-1"])
def test_whatever_it_drafts_the_greedy_text_is_the_models(folder, spec):
    lm = load(folder, batch_invariant=True, draft=spec)
    found = lm.generate("Once", LONG, "chain:depth=3")
    assert found.tokens == lm.generate("Once", LONG).tokens
    assert found.trace.drafted > 0


def test_weights_are_shared_and_keys_are_not(folder):
    lm = load(folder, kv_cache_tokens=100)
    draft = shortcut(lm, "layers:1-1").model
    assert draft.network.layers == 1
    assert draft.network._stack[0] is lm.model.network._stack[1]
    assert draft.network.ends is lm.model.network.ends
    assert draft.slots is not lm.model.slots
    assert draft.room == lm.model.room


def test_the_first_layers_are_an_early_exit(folder):
    lm = load(folder)
    network, draft = lm.model.network, shortcut(lm, "layers:1").model
    text = [5, 9, 7, 40]
    whole, part = lm.model.open(text), draft.open(text)
    state = lm.model.score([ScoreRequest(whole, NOTHING, ("hidden:1",))])[0].hidden["hidden:1"]
    left = draft.score([ScoreRequest(part, NOTHING)])[0].leaf[0].scores
    ends = network.ends
    assert torch.allclose(ends.head(rms(state, ends.norm, network.shape.norm_eps))[0], left, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("layers:", "names no layers"),
        ("layers:x", "names no layers"),
        ("layers:0-", "names no layers"),
        ("layers:0", "expected layers 0 to 9"),
        ("layers:11", "expected layers 0 to 9"),
        ("layers:99999999999999", "expected layers 0 to 9"),
        ("layers:0-99999999999999", "expected layers 0 to 9"),
        ("layers:3-1", "expected layers 0 to 9"),
        ("layers:4-5,2-3", "expected layers 0 to 9"),
        ("layers:1-3,3-4", "expected layers 0 to 9"),
    ],
)
def test_what_names_no_layers_is_refused(spec, told):
    with pytest.raises(BadRequest, match=told):
        layers_of(spec, 10)


def test_names_of_layers():
    assert layers_of("layers:3", 10) == (0, 1, 2)
    assert layers_of("layers:0-1, 4,8-9", 10) == (0, 1, 4, 8, 9)


def test_only_models_that_have_layers_here_can(folder):
    with pytest.raises(BadRequest, match="native runtime"):
        load(folder, runtime="transformers", draft="layers:1")


def test_the_command(folder, here):
    words = "run", "Once", "-m", str(folder), "--draft", "layers:1"
    code, _, err = here(*words, "--method", "chain", "--max-tokens", "8")
    assert code == 0, err
    assert "layers:1 drafts for" in err
    code, _, err = here(*words, "--small", "x", "--method", "cascade")
    assert code == 2
    assert "layers:1 is part of" in err
    assert "They fit together" in here("plan", str(folder), "--draft", "layers:1")[1]
