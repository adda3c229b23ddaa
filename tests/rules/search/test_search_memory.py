"""What a search holds on to: texts, and of their laws no more than somebody is told of."""

from __future__ import annotations

import gc

import pytest
from littlemodel import chatting_model, loaded

from unspool import Settings
from unspool.core.law import Law
from unspool.recipes.methods import runnable
from unspool.runtime.engine.engine import Engine

NAMED = {"mcts": "mcts:rows=120,rollouts=16", "astar": "astar:rows=200"}
LEFT = {"rewarded", "chaotic"}  # the one needs a reward, the other asks its question behind every text at once
SEARCHES = [entry.name for entry in runnable() if entry.family == "search" and entry.name not in LEFT]
SPECS = [NAMED.get(name, name) for name in (*SEARCHES, "cars", "asap")]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    with loaded(chatting_model(tmp_path_factory.mktemp("little"))) as made:
        yield made


def most_laws(lm, spec, tokens, logprobs):
    """How many whole laws live at the same time while a text of so many tokens is written."""
    engine = Engine(lm.models(), lm.price)
    settings = Settings(max_tokens=tokens, min_tokens=tokens, temperature=1.0, seed=1, logprobs=logprobs)
    (writer,) = lm.writers(engine, ["abcabc"], settings, spec)
    most, more = 0, True
    while more:
        more = engine.step()
        most = max(most, sum(type(each) is Law for each in gc.get_objects()))
    assert len(writer.output().tokens) == tokens
    return most


@pytest.mark.parametrize("logprobs", [None, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_the_laws_of_a_search_do_not_grow_with_its_texts(lm, spec, logprobs, monkeypatch):
    monkeypatch.setattr("unspool.rules.constrain.trying.RECENT", 4)  # beginnings of tries that stay in the model
    gc.collect()
    gc.freeze()  # what was there before need not be looked through at every step
    few, many = (most_laws(lm, spec, tokens, logprobs) for tokens in (6, 18))
    assert many <= few + 8


def test_what_is_told_of_a_searchs_laws_is_what_they_were(lm):
    told = [lm.generate("abcabc", method="beam", max_tokens=8, logprobs=k, raw=True) for k in (20, 21)]
    few, whole = ([(e.token, e.logprob, e.raw_logprob, e.top[:20]) for e in each.events] for each in told)
    assert few == whole
    assert [len(event.top) for event in told[1].events] == [21] * 8
