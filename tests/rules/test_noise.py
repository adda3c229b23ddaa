"""Fresh noise: over a whole text no random number is used for two things, and inner rounds of a cascade stay exact."""

from collections import Counter
from functools import partial

import pytest
from truth import law_of_text

from unspool.core.chance import Every, Philox, Role, total_variation
from unspool.core.stop import Stop
from unspool.core.warp import Same
from unspool.loops.speculate import Speculate
from unspool.proof.case import Blind, Case
from unspool.rules.draft import RSDC, RSDS, Cascade, Chain, Escalate, Paced, SpecInfer
from unspool.rules.verify import block, kseq, multipath, rejection, traversal, zeroing
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine


class Noted(Philox):
    """Draws, and counts how often each address was asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.asked = Counter()

    def uniform(self, at):
        self.asked[at] += 1
        return super().uniform(at)


METHODS = {
    "chain": Speculate(Chain(3), rejection),
    "block": Speculate(Chain(3), block),
    "rsd_c": Speculate(RSDC((3, 2)), rejection, budget=32),
    "bush, traversal": Speculate(RSDC((2, 2)), traversal, budget=32),
    "bush, zeroing": Speculate(RSDC((3, 2)), zeroing, budget=32),
    "specinfer": Speculate(SpecInfer(3, 3), rejection, budget=32),
    "bunch, kseq": Speculate(SpecInfer(3, 3), kseq, budget=32),
    "bunch, multipath": Speculate(SpecInfer(3, 3), multipath, budget=32),
    "rsd_s": Speculate(RSDS(3, 3), rejection, budget=12),
    "wide thicket": Speculate(RSDS(4, 3), traversal, budget=16),
    "escalate": Speculate(Escalate(0.3, 3), rejection),
    "paced": Speculate(Paced(), rejection),
    "cascade": Speculate(Cascade(Chain(2), block, 5), rejection),
    "cascade, rejection": Speculate(Cascade(Chain(1), rejection, 4), block),
    "cascade of a bush": Speculate(Cascade(RSDC((2, 1)), traversal, 4), rejection),
}


def tables():
    def weights(text, salt):
        mixed = salt + sum((place + 2) * (token + 1) for place, token in enumerate(text))
        return [1.0 + (mixed + token * token) % 5 for token in range(5)]

    return {name: Table(5, partial(weights, salt=salt)) for salt, name in enumerate(("target", "draft", "small"))}


@pytest.mark.parametrize("name", METHODS)
def test_no_number_is_used_twice(name):
    """A number that decides two things ties them together, which no marginal law shows."""
    used = Counter()
    for seed in range(8):
        chance, engine = Noted(seed), Engine(tables())
        job = engine.submit(METHODS[name], (0, 1, 2), chance, Same(), Stop(most=16))
        engine.run()
        assert len(job.result().tokens) == 16
        again = {at: count for at, count in chance.asked.items() if count > 1}
        assert not again
        used.update(at.role for at in chance.asked)
    assert {Role.DRAFT, Role.ACCEPT, Role.RESIDUAL} <= set(used)


CASE = Case(2, ((1, 0), (1, 2), (2, 1)), ((1, 2), (0, 1), (1, 1)), (0,), "none", None, None, 3)


def test_a_cascade_with_several_inner_rounds_is_exact():
    """Two tokens by `block` inside, three in all: a second inner round and a second outer one."""
    models, stop = CASE.tables(), CASE.stop()
    assert isinstance(stop, Blind)  # drafts run past the end, so that whole chains are drawn
    method = Speculate(Cascade(Chain(2), block, 3), rejection, budget=3)

    def decoded(chance):
        engine = Engine(models)
        job = engine.submit(method, CASE.prompt, chance, Same(), stop)
        engine.run()
        return job.result()

    every = Every(20_000)
    found = every.law(decoded)
    assert every.branches > 100
    assert total_variation(found, law_of_text(models["target"], CASE.prompt, Same(), stop)) < 1e-12
