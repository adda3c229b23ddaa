"""n texts of a search are its n best; what else it has found is told, with weights and evidence where it has them."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from littlemodel import little_model
from serving import serving

import unspool
from unspool import Settings
from unspool.api.writer import LOG_WEIGHT, Found
from unspool.apps.server import ItemSets
from unspool.core.errors import BadRequest
from unspool.rules.constrain import Asap, items


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return unspool.load(little_model(tmp_path_factory.mktemp("little")))


SEARCHES = ["beam:width=3", "diverse:groups=3,width=1,apart=2", "stochastic:width=3", "mcts:rollouts=8"]


@pytest.mark.parametrize("method", SEARCHES)
def test_n_texts_of_a_search_are_its_best_in_order(lm, method):
    settings = Settings(max_tokens=4, n=3, logprobs=1, temperature=1.0 if "stochastic" in method else 0.0)
    outs = lm.samples("abc", settings, method)
    found = outs[0].record()["found"]
    assert [out.text for out in outs] == [one["text"] for one in found[:3]]
    assert len({out.tokens for out in outs}) == 3
    assert outs[0].tokens == lm.generate("abc", settings, method).tokens
    scores = [one["score"] for one in found]
    assert "stochastic" in method or scores == sorted(scores, reverse=True)  # that one ranks by its noise
    assert outs[1].trace is outs[0].trace  # one search, paid for once
    for out in outs:
        assert len(out.events) == len(out.tokens)
        assert "".join(event.text for event in out.events) == out.text
        assert all(event.logprob is not None for event in out.events)


def test_a_search_that_found_too_few_says_so(lm):
    with pytest.raises(BadRequest, match=r"found 2 different texts, and n is more; widen it .*, or ask for 2"):
        lm.samples("abc", Settings(max_tokens=3, n=5), "beam:width=2")


def test_texts_that_only_end_by_another_token_are_one_text():
    told = [(5, 2), (5, 0), (6, 7), (6, 2), (6, 8)]  # 7 and 8 may be stop tokens, which are text
    texts = [SimpleNamespace(tokens=tokens, trim=0, score=-n, reason="token") for n, tokens in enumerate(told)]
    found, particles = Found("score", 0, frozenset({0, 2})), Found(LOG_WEIGHT, 0, frozenset({0, 2}))
    found.tell(texts)
    assert [x.tokens for x in found.results] == [(5, 2), (6, 7), (6, 2), (6, 8)]
    particles.tell(texts)
    assert len(particles.results) == 5  # each of them counts in the evidence


def test_a_method_that_draws_is_run_n_times_as_ever(lm):
    outs = lm.samples("abc", Settings(max_tokens=4, n=3, temperature=1.0), "plain")
    assert "found" not in outs[0].record()
    assert len({out.tokens for out in outs}) == 3


def test_particles_tell_their_posterior_and_the_evidence(lm):
    form = unspool.regex("[a-z]{2,4}")
    record = lm.generate("abc", Settings(max_tokens=6, constraint=form, temperature=1.0), "smc:particles=6").record()
    found = record["found"]
    assert len(found) == 6
    assert sum(one["posterior"] for one in found) == pytest.approx(1)
    weights = [one["log_weight"] for one in found]
    assert record["log_evidence"] == pytest.approx(math.log(sum(map(math.exp, weights)) / 6))
    assert record["log_evidence"] < 0


def test_particles_that_died_count_in_the_evidence(lm):
    """The estimate is the mean of all weights, those of dead ends among them."""
    told = [((70,), math.log(0.5)), ((71,), math.log(0.1)), ((72,), -math.inf), ((73,), -math.inf)]
    particles = Found(LOG_WEIGHT)
    particles.tell([SimpleNamespace(tokens=x, trim=0, score=w, reason="token") for x, w in told])
    record = particles.record(lm.vocabulary.stream())
    assert record["log_evidence"] == pytest.approx(math.log(0.6 / 4))
    assert [one["posterior"] for one in record["found"]] == pytest.approx([5 / 6, 1 / 6, 0, 0])


def test_asap_by_name_learns_from_sample_to_sample(lm):
    """Each sample begins when the one before has ended: then something is known of what it begins with."""
    form = unspool.regex("[ab](a|b[ab]{3}c)")
    known = []

    class Noted(Asap):
        def shaped(self, law, mask, node):
            known.append(node is not None)
            return super().shaped(law, mask, node)

    learnt = Noted()
    outs = lm.samples("abc", Settings(max_tokens=6, constraint=form, temperature=1.0, n=5), learnt)
    first = len(outs[0].tokens)
    assert not any(known[:first])
    assert sum(known) >= 4  # the first place of all others, at least
    assert outs[0].tokens == lm.generate("abc", max_tokens=6, constraint=form, temperature=1.0, method="asap").tokens
    (root,) = learnt.futures.roots.values()
    assert root.theta < 1


def test_items_of_a_file_are_all_that_is_written(lm, tmp_path, here, monkeypatch):
    file = tmp_path / "towns.txt"
    file.write_text("Zagreb\nRome\n\nRiga\n")
    out = lm.generate("abc", Settings(max_tokens=12, constraint=items(file)))
    assert out.text in ("Zagreb", "Rome", "Riga")
    monkeypatch.setattr("unspool.api.loader.load", lambda name, **options: lm)
    options = ("--items", str(file), "--method", "beam:width=3", "-n", "3", "-q", "--max-tokens", "9")
    code, told, _ = here("run", "abc", *options)
    assert code == 0
    assert {line for line in told.splitlines() if not line.startswith("---")} == {"Zagreb", "Rome", "Riga"}
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    with pytest.raises(BadRequest, match="at least one line"):
        items(empty)


def test_what_a_form_forces_is_drafted_unless_a_method_is_named(lm, here, monkeypatch):
    monkeypatch.setattr("unspool.api.loader.load", lambda name, **options: lm)
    told = {}
    for said in ((), ("--method", "plain")):
        code, out, _ = here("run", "abc", "--regex", "(one|two) and three", "--json", "--max-tokens", "20", *said)
        assert code == 0
        told[said] = json.loads(out)
    drafted, plain = told.values()
    assert (drafted["method"], plain["method"]) == ("forced", "plain")
    assert drafted["text"] == plain["text"]
    assert drafted["trace"]["forwards"]["target"] < plain["trace"]["forwards"]["target"] / 2
    assert json.loads(here("run", "abc", "--json", "--max-tokens", "2")[1])["method"] == "plain"


def test_a_server_offers_sets_by_name_and_reads_no_file_for_a_request(lm, tmp_path):
    file = tmp_path / "towns.txt"
    file.write_text("Zagreb\nRome\nRiga\n")
    sets = ItemSets({"towns": items(file)})
    with serving(lm, items=sets) as made:
        for _ in range(2):  # it is put into tokens once
            asked = {"type": "items", "items": "towns"}
            got = made.post("/v1/completions", prompt="abc", max_tokens=12, temperature=0, response_format=asked)
            assert got.status_code == 200, got.text
            assert got.json()["choices"][0]["text"] in ("Zagreb", "Rome", "Riga")
        for name in (str(file), "rivers"):
            refused = made.post("/v1/completions", prompt="abc", response_format={"type": "items", "items": name})
            assert refused.status_code == 400
            assert "there are: towns" in refused.json()["error"]["message"]
