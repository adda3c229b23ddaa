"""Products of up to 32 tokens, some to a program: every token has what it has alone; interpreted, or on a GPU."""

import pytest
import torch
from interpreted import INTERPRETED
from selection import crossed

from unspool.kernels.linear import linear, reference
from unspool.kernels.tile import AT_ONCE, DEEP, PIECE, Tile, cut_for, steady_cut

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float16 if INTERPRETED else torch.bfloat16
PARTS = [{}, {"activation": "silu"}, {"residual": True}, {"norm": True}, {"norm": True, "activation": "silu"}]
# numpy says aloud what floating point does silently on a GPU
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def tensor(*shape):
    return torch.randn(shape, device=DEVICE).to(DTYPE)


def around(given, n, width, depth):
    """What stands around a product of n tokens."""
    made = {"residual": tensor(n, width), "norm": tensor(depth)}
    return {name: made[name] if value is True else value for name, value in given.items()}


@pytest.mark.parametrize("given", PARTS)
@pytest.mark.parametrize("n", [9, 16, 21, 32])
@pytest.mark.parametrize("rows", [8, 16])
def test_programs_of_some_tokens_make_the_results_of_all(given, n, rows):
    x, weight = tensor(n, 300), tensor(44, 300)
    width = 22 if "activation" in given else 44
    more = around(given, n, width, 300)
    out = torch.full((n + 1, width), float("nan"), dtype=DTYPE, device=DEVICE)
    cut = Tile(rows, 8, PIECE, norms=True, apart=True, at_once=True)
    ours = linear(x, weight, eps=1e-5, cut=cut, out=out[:n], **more)
    near = 2e-2 if INTERPRETED else 2e-1
    torch.testing.assert_close(ours, reference(x, weight, eps=1e-5, **more), atol=near, rtol=near)
    assert out[n].isnan().all()


@pytest.mark.parametrize("given", crossed(PARTS, quick=2))
def test_a_token_has_the_bits_that_it_has_alone_among_up_to_64(given):
    """By the cuts of a batch-invariant model. The interpreter's sums have an order of their own, unless exact."""
    depth, width = (1100, 24) if INTERPRETED else (1536, 576)
    lines = 2 * width if "activation" in given else width
    if INTERPRETED:
        x, weight = (torch.randint(-3, 4, size).half() for size in ((64, depth), (lines, depth)))
    else:
        x, weight = tensor(64, depth), tensor(lines, depth)
    more = around(given, 64, width, depth)

    def made(first, last):
        own = more | {"residual": more["residual"][first:last]} if "residual" in more else more
        return linear(x[first:last].contiguous(), weight, eps=1e-5, steady=True, **own)

    spans = ((0, 8), (3, 12), (7, 23), (5, 29), (0, 32), (31, 64), (0, 64))
    if INTERPRETED:  # it takes its time for every program
        spans = ((0, 8), (3, 12), (7, 23), (0, 33))
    alone = torch.cat([made(i, i + 1) for i in range(spans[-1][1])])
    same = torch.testing.assert_close if INTERPRETED and "norm" in given else torch.equal
    for first, last in spans:
        assert same(made(first, last), alone[first:last]) in (True, None), (first, last)


@pytest.mark.parametrize(("width", "depth"), [(960, 576), (576, 1536), (1536, 576), (2048, 2048)])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("choose", [steady_cut, cut_for])
def test_small_products_of_few_tokens_are_one_launch_with_their_norm(width, depth, gated, choose):
    most = 2 * AT_ONCE if depth > DEEP else AT_ONCE
    for n in range(1, 33):
        cut = choose(width, depth, n, torch.bfloat16, gated)
        assert cut.at_once == (n <= most)
        assert cut.norms == cut.at_once
        assert not cut.at_once or n <= cut.rows * (2 if depth > DEEP else 1)
        assert not cut.at_once or cut.rows * -(-depth // PIECE) <= 256  # columns of one product on tensor cores
