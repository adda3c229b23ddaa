"""What one launch does for few tokens has the bits that several launches give it; interpreted, or on a GPU."""

import pytest
import torch
from interpreted import INTERPRETED

from unspool.kernels import grouped as grouped_
from unspool.kernels import linear as linear_
from unspool.kernels import rope as rope_
from unspool.kernels.expert_answers import answers
from unspool.kernels.tile import Tile
from unspool.kernels.turned_heads import heads

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float16 if INTERPRETED else torch.bfloat16
# numpy says aloud what floating point does silently on a GPU
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def whole(*shape):
    """Whole numbers, whose sums have the same bits in whatever order the interpreter takes them."""
    return torch.randint(-3, 4, shape, device=DEVICE).to(DTYPE)


def real(*shape):
    return torch.randn(shape, device=DEVICE).to(DTYPE)


# ---- experts


@pytest.mark.parametrize("active", [1, 3, 8])
@pytest.mark.parametrize(("n", "more"), [(1, False), (2, True)])
@pytest.mark.parametrize("weighs", [True, False])
def test_answers_are_weighed_and_summed_where_they_are_made(active, n, more, weighs):
    width, count = 40, 11
    chosen = torch.stack([torch.randperm(count, device=DEVICE)[:active] for _ in range(n)]).int()
    weights, residual = torch.rand(n, active, device=DEVICE), real(n, width)
    bent, down = whole(n * active, 24), whole(count, width, 24)
    bias, beside = (real(count, width), real(n, width)) if more else (None, None)
    said = grouped_.grouped(bent, down, bias, chosen.view(-1), None, puts=True)
    want = grouped_.combine(said, weights, beside, residual, weighs)
    assert torch.equal(answers(bent, down, bias, chosen, weights, beside, residual, weighs), want)
    each = torch.einsum("pi,poi->po", bent.float(), down[chosen.view(-1).long()].float())
    each = each if bias is None else each + bias[chosen.view(-1).long()].float()
    summed = (each.view(n, active, width) * (weights[..., None] if weighs else 1)).sum(1) + residual
    assert torch.allclose(want.float(), summed.float() + (0 if beside is None else beside), atol=1, rtol=2e-2)


# ---- products


@pytest.mark.parametrize(("splits", "width", "depth"), [(4, 40, 500), (2, 70, 300), (4, 64, 1024)])
@pytest.mark.parametrize("n", [1, 5, 16])
def test_one_program_adds_up_what_several_would(splits, width, depth, n, monkeypatch):
    x, weight, bias, residual = whole(n, depth), whole(width, depth), real(width), real(n, width)
    cut = Tile(16, 16, 64, splits=splits, turned=True)
    one = linear_.linear(x, weight, bias, residual=residual, cut=cut)
    monkeypatch.setattr(linear_, "_by_one", lambda *_: False)
    assert torch.equal(linear_.linear(x, weight, bias, residual=residual, cut=cut), one)


# ---- heads


@pytest.mark.parametrize(("shape", "pairs"), [((3, 1, 16), 8), ((4, 2, 32), 10), ((2, 1, 16), 0)])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_heads_are_turned_where_they_are_made(shape, pairs, n):
    queries, kv_heads, width = shape
    x, norm = real(n, 300), real(300)
    weight, bias = real((queries + 2 * kv_heads) * width, 300), real((queries + 2 * kv_heads) * width)
    angles = torch.rand(64, pairs, device=DEVICE)
    places, slots = (torch.randperm(12, device=DEVICE)[:n].int() for _ in range(2))
    found = []
    for one in (False, True):
        pools = [torch.full((kv_heads, 12, width), 7.0, dtype=DTYPE, device=DEVICE) for _ in "kv"]
        turn = rope_.RopeTurn(angles.cos(), angles.sin(), places, slots, *pools)
        if one:
            made = heads(x, weight, bias, norm, 1e-5, turn, steady=True)
        else:
            qkv = linear_.linear(x, weight, bias, norm=norm, eps=1e-5, steady=True)
            made = rope_.rope(qkv, None, 1e-5, *turn)
        found.append((made, *pools))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
