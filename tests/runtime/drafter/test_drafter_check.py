"""The self-check: a drafter that was read wrongly is found out, and which reading is right is said."""

from __future__ import annotations

import pytest
import torch

from tests.support.drafterfiles import KINDS, LAYERS, eagle3
from tests.support.littlemodel import little_model
from unspool import Settings, load
from unspool.api.trained_draft import READ, SAMPLE, examine, fitted
from unspool.core.errors import BadRequest
from unspool.core.tree import NOTHING, ROOT
from unspool.models.drafters.opening import open_drafter
from unspool.models.weights import open_checkpoint
from unspool.runtime.drafter.drafter_check import Fit, TextStates, examined, fit
from unspool.runtime.drafter.drafter_model import TrainedDrafter, network_of
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.llama import Llama


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), LAYERS)


def first_guesses(file, ends, text, states):
    """What a drafter guesses after every beginning of a text."""
    drafter = TrainedDrafter(network_of(file, ends, 256), TextStates(states, file.spec.states))
    session, found = drafter.open(text[:1]), [-1]
    for token in text[1:]:
        session.keep(NOTHING, (ROOT,), (token,))
        (scores,) = drafter.score([ScoreRequest(session, NOTHING)])
        found.append(scores.leaf[0].best)
    return found


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("eagle-3, specforge", {"states": (0, 2, 5)}),  # outputs of layers taken for hidden states
        ("eagle-3, speculators", {"residual_normed": False}),
        ("mtp", {"embedding_first": False}),
        ("dspark", {"anchored": False, "depth": 3}),
        ("dflash", {"states": (1, 4)}),
    ],
)
def test_a_wrong_reading_is_found_out(kind, wrong, target, tmp_path):
    network = Llama.load(open_checkpoint(target), room=128)
    true = open_drafter(KINDS[kind](tmp_path), network.shape)
    dice = torch.Generator().manual_seed(1)
    text = torch.randint(0, 258, (24,), generator=dice).tolist()
    states = {number: torch.randn(24, 32, generator=dice) for number in range(LAYERS + 1)}
    best = first_guesses(true, network.ends, text, states)  # a target that does what the drafter guesses

    def measure(words, file):
        known = set(file.spec.states) <= set(states)
        return fit(
            words, file, network.ends, text, best, states if known else dict.fromkeys(file.spec.states, states[0])
        )

    told = true.reading(**wrong)
    report = examined(told, network.shape, measure)
    assert report.told.right[0] < 0.8
    assert report.best.right[0] == 1
    assert report.best.file.spec == true.spec
    assert report.best.reading != "as the file says"
    assert not report.stranger
    as_is = examined(true, network.shape, measure, thorough=True)
    assert as_is.best is as_is.told


def test_a_stranger_is_told(target, tmp_path):
    lm = load(target, draft=eagle3(tmp_path))
    report = examine(lm, SAMPLE[:40], thorough=True)
    assert report.stranger
    assert {fit.reading for fit in report.tried} >= {"the residual normed", "hidden states one later"}
    same, told = fitted(lm, SAMPLE[:40])
    assert "probably trained for another model" in told[-1]
    plain = lm.generate("a text", Settings(max_tokens=9, temperature=0)).tokens
    assert same.generate("a text", Settings(max_tokens=9, temperature=0), "chain").tokens == plain


def test_guesses_are_held_against_what_the_target_does_after_each_token(target, tmp_path, monkeypatch):
    """Of a text that is read in several pieces: its tokens, and what plain decoding would write after each of them."""
    held = []

    def noted(words, file, ends, text, best, states):
        held.append((text, best))
        return Fit(words, file, (1.0,))

    monkeypatch.setattr("unspool.api.trained_draft.fit", noted)
    lm = load(target, draft=eagle3(tmp_path))
    examine(lm, SAMPLE[: READ + 30])
    text, best = held[0]
    assert READ + 1 < len(text) == len(best)
    for at in (0, 1, READ - 1, READ, READ + 1, len(text) - 1):
        (likeliest,) = lm.generate(text[: at + 1], Settings(max_tokens=1, temperature=0)).tokens
        assert best[at] == likeliest


def test_there_must_be_a_drafter_and_a_text(target, tmp_path):
    with pytest.raises(BadRequest, match="no trained drafter"):
        examine(load(target))
    with pytest.raises(BadRequest, match="expected at least 32"):
        examine(load(target, draft=eagle3(tmp_path)), "too short")
