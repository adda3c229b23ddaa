"""A budget of drafted nodes over a batch: who is sure gets more, and the joint law of two texts stays as it is."""

from __future__ import annotations

import pytest

from unspool.core.asks import Share
from unspool.core.chance import Every, Philox, Readdressed
from unspool.core.cost import FREE, Cost
from unspool.core.law import Drawn, Law, chosen
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.core.warp import Same
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import RSDC, Chain, Tetris
from unspool.rules.draft import tetris as rule
from unspool.rules.verify import block, rejection
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import Account
from unspool.runtime.engine.sharing import allotted

TARGET = Table(2, lambda text: ((2, 1), (1, 3))[sum(text) % 2])
DRAFT = Table(2, lambda text: ((5, 1), (2, 3))[text[-1]])
STAIRS = Cost((1, 2, 3, 4), (1.0, 1.9, 2.0, 2.1))
STEEP = Cost((1, 2, 3, 4, 8), (1.0, 1.3, 1.7, 2.2, 4.5))


def apart(chance, text):
    """Chance for one of several texts: its addresses are nobody else's."""
    return Readdressed(chance, lambda at: at._replace(position=at.position + 100 * text))


def together(method, price=FREE, prompts=((0,), (1, 0)), most=3):
    """The exact joint law of the texts of two requests that are decoded in one batch."""

    def program(chance):
        engine = Engine({"target": TARGET, "draft": DRAFT}, price=lambda _: price)
        jobs = [
            engine.submit(method, prompt, apart(chance, i), Same(), Stop(most=most)) for i, prompt in enumerate(prompts)
        ]
        engine.run()
        return tuple(job.result().tokens for job in jobs)

    return Every().law(program)


def off(one, other):
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2


@pytest.mark.parametrize(
    ("draft", "verify", "price", "most"),
    [
        (Tetris(Chain(2), 1), rejection, FREE, 3),
        (Tetris(Chain(2), 1), block, FREE, 3),
        (Tetris(Chain(2), 2), rejection, STEEP, 3),
        (Tetris(RSDC((2,)), 1), rejection, FREE, 2),
    ],
    ids=["chain", "block", "priced", "siblings"],
)
def test_the_joint_law_of_two_texts_is_plain_decodings(draft, verify, price, most):
    truth = together(plain(), most=most)
    assert sum(truth.values()) == pytest.approx(1)
    assert off(together(Speculate(draft, verify, budget=4), price, most=most), truth) < 1e-12


def own_token(tree):
    """Planted: a node is worth what its own token has."""
    values = []
    for node, (token, law) in enumerate(tree.drawn):
        values.append(law[token] * (values[tree.parent[node]] if tree.parent[node] >= 0 else 1.0))
    return values


def test_to_choose_by_the_token_itself_is_caught(monkeypatch):
    monkeypatch.setattr(rule, "expected", own_token)
    method = Speculate(Tetris(Chain(1), 1), rejection, budget=1)
    one_node = Cost((2, 3, 4), (1.0, 1.0, 9.0))  # of the two that are drafted
    assert off(together(method, one_node, most=2), together(plain(), most=2)) > 1e-3


def test_a_price_that_looks_behind_the_first_loss_is_caught(monkeypatch):
    """Planted: take as many nodes as make the best rate anywhere, which a token that is drawn later decides."""

    def anywhere(asked, cost):
        ranked = sorted((-v, i) for i, ask in enumerate(asked) for v in ask.values)
        rates = [(len(asked) - sum(v for v, _ in ranked[:n])) / cost(len(asked) + n) for n in range(len(ranked) + 1)]
        kept = ranked[: rates.index(max(rates))]
        return [sum(j == i for _, j in kept) for i in range(len(asked))]

    method, alone = Speculate(Tetris(Chain(2), 4), rejection, budget=4), ((0,),)
    truth = together(plain(), prompts=alone)
    assert off(together(method, STAIRS, alone), truth) < 1e-12
    monkeypatch.setattr("unspool.runtime.engine.sharing.allotted", anywhere)
    assert off(together(method, STAIRS, alone), truth) > 1e-3


def test_the_largest_values_are_checked_whosever_they_are():
    sure, unsure = Share((0.9, 0.8, 0.7, 0.6), 2), Share((0.3, 0.2, 0.1), 2)
    assert allotted([sure, unsure], FREE) == [4, 0]
    assert allotted([unsure, sure, unsure], FREE) == [1, 4, 1]
    assert allotted([Share((0.5,), 0), Share((0.5,), 1)], FREE) == [1, 0]  # of equal values those of the first
    assert allotted([sure], FREE) == [2]
    assert allotted([Share((), 5), sure], FREE) == [0, 4]
    assert allotted([Share((0.1, 0.9), 1), Share((0.5,), 1)], FREE) == [1, 1]  # what does not fall is taken as falling
    assert allotted([sure, unsure], Cost((1, 2, 3), (1.0, 2.0, 3.0))) == [0, 0]  # a row costs what a token does
    assert allotted([sure, unsure], Cost((1, 2, 4, 8), (1.0, 1.0, 1.2, 4.0))) == [2, 0]
    assert allotted([sure], Cost((1, 2, 3), (1.0, 2.0, 2.0))) == [0]  # a second one would be free; nobody looks


def test_a_node_is_worth_what_can_be_said_without_its_token():
    law, other = Law.of([0.6, 0.3, 0.1]), Law.of([0.2, 0.8])
    trees = [Tree((Drawn(x, law), Drawn(0, other)), (ROOT, 0)) for x in range(3)]
    assert [rule.expected(tree)[0] for tree in trees] == pytest.approx([0.6, 0.6, 0.6])
    assert [rule.expected(tree)[1] for tree in trees] == pytest.approx([0.48, 0.24, 0.08])
    twins = rule.expected(Tree((Drawn(0, law), Drawn(1, law.without(0))), (ROOT, ROOT)))
    assert twins == pytest.approx([0.6, 0.4 * 0.75])
    assert rule.expected(Tree((chosen(4), chosen(5)), (ROOT, 0), (0.9, 0.5))) == pytest.approx([0.9, 0.45])


def test_a_sure_text_takes_the_nodes_of_an_unsure_one_but_not_of_another_owner():
    steps = Table(8, lambda text: [float(x == (text[-1] + 1) % 8) + 0.001 for x in range(8)])
    noisy = Table(8, lambda text: [1.0] * 8 if text[0] == 7 else steps.weights(text))

    def drafted(accounts):
        engine = Engine({"target": steps, "draft": noisy})
        method = Speculate(Tetris(Chain(6), 2), rejection, budget=8)
        jobs = [
            engine.submit(method, prompt, Philox(i), Same(), Stop(most=12), account=account)
            for i, (prompt, account) in enumerate(zip(((0,), (7,)), accounts, strict=True))
        ]
        engine.run()
        return [job.trace.mean_acceptance_length for job in jobs]

    sure, unsure = drafted([Account(owner="a")] * 2)
    assert sure > 3.5
    assert unsure < 2
    assert drafted((Account(owner="a"), Account(owner="b")))[0] == pytest.approx(
        3, abs=0.5
    )  # its own two, and the next token
