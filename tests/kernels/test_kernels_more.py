"""The kernels around the forward against what they say they compute: interpreted, or on the GPU where there is one."""

import random

import pytest
import torch
from interpreted import INTERPRETED
from triton.runtime.errors import OutOfResources

from unspool.core.chance import At, Philox, Role
from unspool.kernels import advance as advance_
from unspool.kernels import amend as amend_
from unspool.kernels import philox as philox_
from unspool.kernels import report as report_
from unspool.kernels import top as top_
from unspool.kernels.fit import fitted

DEVICE = "cpu" if INTERPRETED else "cuda"
NAN = float("nan")

# numpy says aloud what floating point does silently on a GPU
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    random.seed(0)


def ints(values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


# ---- advance


def wholes(*shape, below=100):
    return torch.randint(below, shape, dtype=torch.int32, device=DEVICE)


def reals(*shape, dtype=torch.float32):
    return torch.rand(shape, dtype=dtype, device=DEVICE)


def step_state(rows, steps, turn):
    before = [wholes(rows) for _ in range(5)]  # picked, tokens, places, slots, past
    text = wholes(rows, steps), reals(rows, 2), reals(rows, steps, 2)
    return [*before, wholes(rows, below=2), wholes(rows, steps), *text, ints([turn])]


@pytest.mark.parametrize("rows", [1, 5, 1500])
def test_a_step_ends_as_it_says(rows):
    for turn in range(4):  # the last but one of three steps plans no more, and behind the last nothing is written
        ours = step_state(rows, 3, turn)
        ours[-3][-1, turn % 2] = NAN  # of the last row, one of both log-probabilities
        theirs = [x.clone() for x in ours]
        advance_.advance(*ours)
        advance_.reference(*theirs)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_steps_in_a_row_write_a_text():
    rows, steps = 3, 4
    state = step_state(rows, steps, 0)
    picked, tokens, places, slots, past, count, plan, written, given, logprobs, turn = state
    count.fill_(1)
    start, first = places.clone(), past.clone()
    picks = wholes(steps, rows)
    for step in range(steps):
        picked.copy_(picks[step])
        given.fill_(step)
        advance_.advance(*state)
        assert torch.equal(tokens, picks[step])
    assert torch.equal(written, picks.T)
    assert torch.equal(logprobs[..., 1], torch.arange(4.0, device=DEVICE).expand(rows, -1))
    assert torch.equal(places, start + steps)
    assert torch.equal(past, first + steps)
    assert torch.equal(slots, plan[:, -1])
    assert int(turn) == steps


# ---- steps that the host checks behind


@pytest.mark.parametrize(("rows", "vocab"), [(1, 9), (5, 5000)])
def test_the_best_tokens_of_a_step_are_noted_in_their_order(rows, vocab):
    scores = torch.randint(-3, 3, (rows, vocab), device=DEVICE).float()  # many are equal
    scores[0, 3:] = -torch.inf  # and some impossible
    for turn in range(3):
        picked, logprobs, ranks = wholes(rows), reals(rows, 2), wholes(2, rows, 9)
        logprobs[-1, 1] = (0.5, NAN, -torch.inf)[turn]
        ours, theirs = ranks.clone(), ranks.clone()
        amend_.rank(scores, picked, logprobs, ints([turn]), ours)
        amend_.rank_reference(scores, picked, logprobs, ints([turn]), theirs)
        assert torch.equal(ours, theirs)
        assert torch.equal(ours, ranks) == (turn == 2)  # behind the last step nothing is noted
        assert turn == 2 or -2 in ours[turn, 0, 1:].tolist()


@pytest.mark.parametrize("rows", [1, 7, 1500])
def test_a_row_goes_back_and_on_from_another_token_once(rows):
    back = wholes(rows, below=4)
    back[-1] = 3
    given, tokens, lines = wholes(rows), wholes(rows), torch.arange(rows, dtype=torch.int32, device=DEVICE)
    places, past, texts = wholes(rows, below=20) + 5, wholes(rows) + 5, wholes(rows, 30)
    for seen in ((), (lines, texts)):
        ours = [x.clone() for x in (back, given, tokens, places, past, *seen)]
        theirs = [x.clone() for x in ours]
        amend_.amend(*ours)
        amend_.amend_reference(*theirs)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert int(ours[3][-1]) == int(places[-1]) - 2
        again = [x.clone() for x in ours]
        amend_.amend(*again)
        assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))


# ---- Philox


@pytest.mark.parametrize("role", list(Role))
def test_philox_is_the_same_in_every_bit(role):
    seeds = [0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, *(random.getrandbits(64) for _ in range(300))]
    streams = [random.choice([0, 1, random.getrandbits(32), random.getrandbits(40)]) for _ in seeds]
    places = [random.choice([0, random.getrandbits(12), random.getrandbits(31), 2**32 - 1, 2**40]) for _ in seeds]
    rounds = [random.getrandbits(16) for _ in seeds]
    signed = [seed - 2**64 if seed >= 2**63 else seed for seed in seeds]
    key, stream, position, begun = (ints(x, torch.int64) for x in (signed, streams, places, rounds))
    for k, round_ in ((0, None), (3, begun)):
        ours = philox_.uniforms(key, stream, position, role, k, round_)
        wanted = [
            Philox(seed, of).uniform(At(place, role, k, 0 if round_ is None else r))
            for seed, of, place, r in zip(seeds, streams, places, rounds, strict=True)
        ]
        assert ours.dtype == torch.float64
        assert ours.tolist() == wanted
        assert torch.equal(ours, philox_.reference(key, stream, position, role, k, round_))


# ---- top


def stable(logits, k):
    """Tokens by value, best first, then by id; NaN behind all."""
    lines = [[(x != x, -x, i) for i, x in enumerate(line)] for line in logits.float().tolist()]
    return [[i for _, _, i in sorted(line)[:k]] for line in lines]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("vocab", "k"), [(5, 16), (11, 1), (4096, 16), (9001, 7)])
def test_top_is_a_stable_sort(vocab, k, dtype):
    logits = (3 * torch.randn(4, vocab, device=DEVICE)).to(dtype)
    logits[1] = logits[1].round()  # many ties, 0 and −0 among them
    logits[2, torch.rand(vocab) < 0.9] = float("-inf")
    logits[2, 3] = NAN
    logits[3] = float("-inf")
    values, tokens = top_.top(logits, k)
    assert tokens.tolist() == stable(logits, k)
    for ours, theirs in zip((values, tokens), top_.reference(logits, k), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_top_takes_nan_only_for_want_of_anything_else():
    logits = torch.full((2, 4100), NAN, device=DEVICE)
    logits[1, 4097], logits[1, 2] = float("-inf"), float("inf")
    values, tokens = top_.top(logits, 3)
    assert tokens.tolist() == [[0, 1, 2], [2, 4097, 0]]
    assert values[0].isnan().all()
    assert values[1].isnan().tolist() == [False, False, True]
    with pytest.raises(ValueError, match="33"):
        top_.top(logits, 33)


def test_top_takes_zero_for_zero_whatever_its_sign():
    assert top_.top(torch.tensor([[-1.0, -0.0, 0.0, -0.0]], device=DEVICE), 3)[1].tolist() == [[1, 2, 3]]


def test_top_of_rows_that_lie_apart():
    logits = torch.randn(3, 40, device=DEVICE)
    assert top_.top(logits[:, :9], 4)[1].tolist() == stable(logits[:, :9], 4)


# ---- fit


@pytest.mark.parametrize("vocab", [7, 4100])
def test_a_report_tells_of_the_picked_and_of_the_best(vocab):
    logits, k = 3 * reals(3, vocab), min(5, vocab)
    logits[1, : vocab // 2] = float("-inf")
    picked, after, heat = ints([1, vocab - 1, 4]), reals(3, 2), torch.ones(3, device=DEVICE)
    for turn in (2, 4):  # the last step is behind the last that is noted
        ours, theirs = (
            (torch.zeros(3, 4, 2 + k, device=DEVICE), torch.zeros(3, 4, k, dtype=torch.int32, device=DEVICE))
            for _ in range(2)
        )
        given = logits, heat, ints([1, 1, 1]), picked, after, ints([turn])
        report_.report(*given, *ours)
        report_.reference(*given, *theirs)
        torch.testing.assert_close(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])
    assert float(ours[0].abs().sum()) == 0


def test_a_kernel_that_needs_more_memory_than_a_chip_has_is_launched_with_fewer_stages(monkeypatch):
    monkeypatch.setattr("unspool.kernels.fit._FITS", {})
    tried = []

    def launch(stages, room):
        tried.append(stages)
        if stages > room:
            raise OutOfResources(stages, room, "shared memory")

    fitted(lambda stages: launch(stages, 2), 5, "some")
    fitted(lambda stages: launch(stages, 2), 5, "some")
    assert tried == [5, 4, 3, 2, 2]  # what fits is known from then on
    with pytest.raises(OutOfResources):
        fitted(lambda stages: launch(stages, 0), 2, "none")
