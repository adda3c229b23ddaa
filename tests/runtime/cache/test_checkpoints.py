"""Recurrent state as a kind of slot: every node of a tree goes on from its own parent's state, and states may go."""

import pytest
import torch
from contracts import exercise
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from toy import Toy, logits_of

from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.checkpoint_pool import CheckpointPool, RecurrentPool
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network import recurrent_plan
from unspool.runtime.network.network import NetworkOutputs
from unspool.runtime.network.recurrence import scan
from unspool.runtime.network.recurrent_plan import PerTokenRecurrentPlanner, RecurrentPlanner

STATE, CPU = (0, "state"), torch.device("cpu")


class RecurrentToy(Toy):
    """A toy whose state is the text so far; what it reads is hashed from that, and must be what attention sees."""

    def __init__(self, room=400, states=400, planner=RecurrentPlanner):
        super().__init__(3, room)
        self.slots = RecurrentPool(room, CheckpointPool(states))
        self.planner = planner(self.slots.checkpoints, CPU)
        self.texts = [()]  # by the number that is a state

    def forward(self, batch):
        seen, pool = super().forward(batch), self.slots.checkpoints
        plans = self.planner.plan(batch.rows)
        pool.lay_out(STATE, (), torch.long, CPU)
        texts = [text for plan in plans for text in self.scan(batch.tokens[plan.tokens], plan)]
        logits = torch.stack([logits_of(texts[i], self.vocab) for i in batch.read.tolist()])
        assert torch.equal(logits, seen.logits)
        return NetworkOutputs(logits, seen.hidden)

    def scan(self, tokens, plan):
        """The texts that these tokens end, told by their states alone."""
        pool, texts = plan.checkpoints, {}
        for runs in plan.groups:
            ends = []
            for i, start in enumerate(pool.read(STATE, runs.start).tolist()):
                text, own = self.texts[start], runs.tokens[i].tolist()
                for token in own if runs.real is None else runs.tokens[i][runs.real[i]].tolist():
                    text = texts[token] = (*text, int(tokens[token]))
                ends.append(len(self.texts))
                self.texts.append(text)
            pool.write(STATE, runs.end, torch.tensor(ends))
        self.convolve(tokens, plan, texts)
        return [texts[token] for token in range(len(tokens))]

    def convolve(self, tokens, plan, texts):
        """Gather what a convolution over three tokens reads, from checkpoints and from the batch."""
        pool, part = plan.checkpoints, (0, "inputs")
        starts, rows = plan.windows(3)
        pool.lay_out(part, (2,), torch.long, CPU)
        inputs = torch.cat((pool.read(part, starts).flatten(), tokens + 1))
        pool.write(part, plan.ends, inputs[rows[plan.kept, 1:]])
        for token, window in enumerate(inputs[rows].tolist()):
            assert window == [0, 0, 0, *(x + 1 for x in texts[token])][-3:]


class Whole:
    """A model that is only asked for whole trees: a pool with few states may have to read a part again."""

    def __init__(self, model):
        self.open, self.score, self.forget, self.vocab = model.open, model.score, model.forget, model.vocab


@pytest.mark.parametrize("planner", [RecurrentPlanner, PerTokenRecurrentPlanner])
def test_sessions_over_states_equal_recomputation_and_leave_nothing_behind(planner):
    @given(st.data(), st.sampled_from([0, 3]))
    @settings(max_examples=60, deadline=None)
    def check(data, shelf):
        network = RecurrentToy(planner=planner)
        exercise(data, CachedModel(network, prefix_cache=shelf), lambda text: logits_of(text, 3))
        if not shelf:
            assert network.slots.in_use == len(network.slots.checkpoints) == 0

    check()


@given(st.data(), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_texts_whose_states_have_given_way_are_read_again(data, states):
    network = RecurrentToy(states=states)
    exercise(data, Whole(CachedModel(network, prefix_cache=2)), lambda text: logits_of(text, 3), longest=9)


def test_a_rollback_computes_nothing_and_a_lost_state_only_what_follows_the_last_kept(monkeypatch):
    monkeypatch.setattr(recurrent_plan, "BLOCK", 4)
    network = RecurrentToy(states=6)
    model = CachedModel(network, prefix_cache=2)
    session = model.open((0, 1, 2, 0, 1, 2, 0))
    draft = Tree.chain([Drawn(x, Law.point(x)) for x in (1, 2, 0)])
    model.score([ScoreRequest(session, draft)])
    session.keep(draft, (0,), (1,))
    assert model.score([ScoreRequest(session, NOTHING)])[0].rows == 1
    network.slots.checkpoints.drop(session.leaves[0].slots[-5:])  # as if others had needed them
    assert model.score([ScoreRequest(session, draft)])[0].rows == 5 + 3


def test_a_draft_that_lost_its_state_takes_no_law_with_it():
    network = RecurrentToy()
    model = CachedModel(network)
    session = model.open((0, 1))
    drafts = [Tree.chain([Drawn(x, Law.point(x)) for x in text]) for text in ((2, 1), (2, 1, 0))]
    model.score([ScoreRequest(session, drafts[0])])
    network.slots.checkpoints.drop([node.slot for node in session.leaves[0].drafts])
    (scores,) = model.score([ScoreRequest(session, drafts[1])])
    assert scores.rows == 3
    assert torch.equal(scores.leaf[0].scores, logits_of((0, 1), 3))
    assert torch.equal(scores.after[2].scores, logits_of((0, 1, 2, 1, 0), 3))


def test_samples_of_one_prompt_share_all_of_it_but_its_last_token():
    model = CachedModel(RecurrentToy())
    first = model.open((1, 2, 0, 1, 2))
    model.score([ScoreRequest(first, NOTHING)])
    assert model.score([ScoreRequest(model.open((1, 2, 0, 1, 2)), NOTHING)])[0].rows == 1


def test_what_texts_to_come_may_start_from_outlasts_what_was_written():
    pool = CheckpointPool(8)
    pool.take((), (), (0, 1))
    for slot in range(2, 40):
        pool.take((slot - 1,), (slot,), ())
    assert 0 in pool
    assert 1 in pool
    assert len(pool) == 8
    pool.take((0,), range(100, 120), ())  # a forward that needs more than there are gets them
    assert 0 in pool
    assert len(pool) == 21


def test_the_state_that_was_used_longest_ago_gives_way():
    pool = CheckpointPool(3)
    pool.take((), (0, 1, 2), ())
    pool.number(0)
    pool.take((), (3,), ())
    assert [slot for slot in range(4) if slot in pool] == [0, 2, 3]
    pool.take((2,), (4,), ())  # what a forward starts from stays, however old
    assert [slot for slot in range(5) if slot in pool] == [2, 3, 4]


def test_lasting_states_beyond_half_of_all_give_way_first():
    pool = CheckpointPool(4)
    pool.take((), (0,), (1, 2, 3))
    pool.take((), (4,), ())
    assert [slot for slot in range(5) if slot in pool] == [0, 2, 3, 4]
    pool.take((), (5,), ())
    assert [slot for slot in range(6) if slot in pool] == [2, 3, 4, 5]


def test_numbers_of_states_that_went_or_were_written_over_are_given_out_again():
    pool = CheckpointPool(2)
    for _ in range(9):
        pool.take((), (0, 1), ())
        pool.move((0,), (1,))
        assert len({pool.number(1)}) == len(pool) == 1
        pool.drop((1,))
    pool.lay_out(STATE, (), torch.long, CPU)
    pool.take((), range(2), ())
    assert {pool.number(0), pool.number(1)} == {2, 3}


def test_a_state_goes_with_the_last_text_that_holds_its_slot():
    pool = RecurrentPool(4, CheckpointPool(4))
    (slot,) = pool.take(1)
    pool.checkpoints.take((), (slot,), ())
    pool.share([slot])
    pool.drop([slot])
    assert slot in pool.checkpoints
    pool.drop([slot])
    assert slot not in pool.checkpoints


def test_a_pool_that_grows_keeps_what_it_holds():
    pool = CheckpointPool(1)
    pool.take((), (0,), ())
    pool.lay_out(STATE, (), torch.long, CPU)
    pool.write(STATE, torch.tensor([pool.number(0)]), torch.tensor([7]))
    pool.take((0,), range(1, 9), ())
    pool.lay_out(STATE, (), torch.long, CPU)
    assert pool.read(STATE, torch.tensor([pool.number(-1), pool.number(0)])).tolist() == [0, 7]


def test_a_long_text_leaves_states_at_the_ends_of_blocks_and_before_its_last_token(monkeypatch):
    monkeypatch.setattr(recurrent_plan, "BLOCK", 4)
    network = RecurrentToy()
    model = CachedModel(network)
    session = model.open((0, 1, 2, 0, 1, 2, 0, 1, 2, 0))
    model.score([ScoreRequest(session, NOTHING)])
    slots = session.leaves[0].slots
    assert [place for place, slot in enumerate(slots) if slot in network.slots.checkpoints] == [3, 7, 8, 9]


@pytest.mark.parametrize("slip", ["states stay where they were", "siblings share a state"])
def test_the_contract_catches_states_that_are_mixed_up(slip, monkeypatch):
    if slip == "siblings share a state":
        behind = "unspool.runtime.cache.forward_request.follows"
        monkeypatch.setattr(behind, lambda r: [*(r.leaf.slots[-1:] or [-1]), *r.slots[:-1]])
    else:
        monkeypatch.setattr(CheckpointPool, "move", lambda self, old, new: None)

    @given(st.data())
    @settings(max_examples=200, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def check(data):
        exercise(data, CachedModel(RecurrentToy()), lambda text: logits_of(text, 3))

    with pytest.raises(Exception):  # noqa: B017  (which of its checks sees it first does not matter)
        check()


@pytest.mark.parametrize("delta", [True, False])
def test_many_tokens_at_once_are_the_same_as_one_after_the_other(delta):
    torch.manual_seed(3)
    runs, n, heads, key, value = 2, 150, 3, 5, 4
    q, k = (torch.randn(runs, n, heads, key, dtype=torch.float64) / key**0.5 for _ in range(2))
    v = torch.randn(runs, n, heads, value, dtype=torch.float64)
    g, beta = -torch.rand(runs, n, heads, dtype=torch.float64), torch.rand(runs, n, heads, dtype=torch.float64)
    beta = beta if delta else None
    state = torch.randn(runs, heads, key, value, dtype=torch.float64)
    y, end = scan(q, k, v, g, beta, state)
    for t in range(n):
        at = slice(t, t + 1)
        one, state = scan(q[:, at], k[:, at], v[:, at], g[:, at], None if beta is None else beta[:, at], state)
        assert torch.allclose(one[:, 0], y[:, t], atol=1e-10)
    assert torch.allclose(state, end, atol=1e-10)
