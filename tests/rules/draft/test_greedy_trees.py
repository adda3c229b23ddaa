"""At temperature 0 trees still branch, and rules that ask how surprising a token is are still told."""

from __future__ import annotations

import pytest
import torch
from proposing import answered

from unspool.core.asks import Scores
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import ROOT
from unspool.core.warp import Prefix, Temperature
from unspool.core.warp.forbid import BadWords
from unspool.recipes.methods import method
from unspool.rules.draft.siblings import likeliest_of
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

VOCAB = 8
GENERATOR = torch.Generator().manual_seed(11)
ROWS = 997  # contexts, so that texts do not go round in circles
NEXT = torch.randn(ROWS, VOCAB, generator=GENERATOR)
NOISE = torch.randn(ROWS, VOCAB, generator=GENERATOR)
TARGET = (NEXT * 2).softmax(-1).tolist()
DRAFT = (NEXT * 2 + NOISE * 1.5).softmax(-1).tolist()  # it has the target's token among its best three, often not first


def row_of(text):
    number = 0
    for token in text[-4:]:
        number = number * VOCAB + token
    return number % ROWS


def decoded(spec, temperature=0.0, most=64, seed=0):
    rows = {"target": TARGET, "draft": DRAFT}
    engine = Engine({name: Table(VOCAB, lambda text, row=row: row[row_of(text)]) for name, row in rows.items()})
    job = engine.submit(method(spec), (0, 1), Philox(seed), Temperature(temperature), Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


TREES = (
    "rsd_c:widths=3+2+1+1",
    "rsd_s:width=3,depth=4,nodes=12",
    "sequoia:nodes=12,depth=4",
    "specinfer:paths=3,depth=4",
)


@pytest.mark.parametrize("spec", [*TREES, "dyspec:nodes=12"])
def test_a_tree_branches_at_temperature_0_and_brings_more_than_a_chain(spec):
    plain = decoded("plain")[0]
    chain, tree = decoded("chain:depth=4"), decoded(spec)
    assert tree[0] == chain[0] == plain
    assert tree[1].tokens_per_forward > chain[1].tokens_per_forward


@pytest.mark.parametrize("spec", TREES)
def test_a_tree_takes_a_draft_forward_per_level(spec):
    _, trace = decoded(spec)
    assert trace.forwards["draft"] <= 4 * trace.rounds


def test_dyspec_asks_its_draft_by_levels_and_not_by_nodes():
    _, trace = decoded("dyspec:nodes=12,least=0")
    assert trace.drafted > 10 * (trace.rounds - 2)
    assert trace.forwards["draft"] < 0.6 * trace.drafted  # it was one for every node


def test_siblings_are_the_best_that_warps_allow():
    barred = Prefix.of((0,), BadWords(((3,), (5,))) | Temperature(0.0))
    law = Table(VOCAB, lambda text: range(1, VOCAB + 1)).law((0,))
    assert likeliest_of(barred, law, 3) == [7, 6, 4]
    assert barred.shape(law).best == 7


def test_surprise_and_beta_count_at_temperature_0():
    plain = decoded("plain")[0]
    texts = {s: decoded(f"bild:sure=0 + rollback:surprise={s}") for s in ("0", "3", "inf")}
    assert texts["0"][0] == plain
    assert texts["0"][1].tokens_per_forward < texts["3"][1].tokens_per_forward < texts["inf"][1].tokens_per_forward
    assert texts["3"][0] != plain
    assert decoded("bild:sure=0 + top_beta:beta=1")[0] == plain
    assert decoded("bild:sure=0 + top_beta:beta=3,tau=inf")[0] != plain


def test_mixture_at_temperature_0_is_greedy_whatever_the_seed():
    plain = decoded("plain")[0]
    assert all(decoded("chain + mixture:weight=0.9", seed=seed)[0] == plain for seed in range(5))
    assert decoded("chain + mixture:weight=0.9", temperature=1.0)[0] != decoded("plain", temperature=1.0)[0]


def test_a_tree_of_one_level_has_the_drafts_best_tokens():
    table = Table(VOCAB, lambda text: DRAFT[row_of(text)])
    tree, asked = answered(
        method("rsd_c:widths=4").draft.propose(Prefix.of((0, 1), Temperature(0.0)), 9, Philox(1)),
        lambda ask: Scores((), [table.law((0, 1))]),
    )
    assert asked == 1
    assert tree.tokens(tree.kids(ROOT)) == tuple(table.law((0, 1)).top(4))
