"""Kernels of recurrent layers: what tokens read and leave in chains, trees and chunks; interpreted, or on a GPU."""

import interpreted
import pytest
import torch

from unspool.kernels import delta_net as delta_
from unspool.kernels import gated_norm as norm_
from unspool.kernels import mamba as mamba_
from unspool.kernels import short_convolution as conv_
from unspool.kernels.kernel_rows import Rows

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
NUMBERS = 12


def batch(before, into, count):
    """Rows of which tokens follow which, and what they leave."""
    whole = {"dtype": torch.int32, "device": DEVICE}
    n, number = len(before), len(count)
    nothing = torch.zeros(n, **whole)
    return Rows(
        table=torch.zeros(number, 4, **whole),
        past=torch.zeros(number, **whole),
        count=torch.tensor(count, **whole),
        slots=nothing,
        places=nothing,
        before=torch.tensor(before, **whole),
        into=torch.tensor(into, **whole),
    )


TREE = batch([~2, 0, 0, 1, ~5, ~3, 5, 5, 0, 0], [6, 7, 8, -1, 9, 10, 11, -1, -1, -1], [5, 3])
"""A row of two branches and a token that goes on from elsewhere, and a row of two leaves with padding."""


def layer(kind, n, dtype=torch.float32):
    """A function of rows, states and which reference, for n tokens."""
    made = torch.Generator().manual_seed(3)

    def some(*size):
        return torch.randn(*size, generator=made).to(DEVICE)

    if kind == "convolution":
        x, weight, bias, times = some(n, 9).to(dtype), some(9, 4).to(dtype), some(9).to(dtype), some(n, 9).to(dtype)
        states = some(NUMBERS, 3, 9).to(dtype)
        return states, lambda of, at, rows, held: of(x[at], weight, bias, rows, held, times=times[at]), conv_
    if kind == "delta":
        mixed, ba = some(n, 2 * 2 * 6 + 4 * 5).to(dtype), some(n, 8).to(dtype)
        decay, shift, states = -some(4).abs(), some(4), some(NUMBERS, 4, 5, 6)
        return states, lambda of, at, rows, held: of(mixed[at], ba[at], decay, shift, rows, held, 2), delta_
    mixed, dt = some(n, 4 * 18 + 2 * 2 * 6).to(dtype), some(n, 4).to(dtype)
    decay, (shift, skip), states = -some(4).abs(), some(2, 4), some(NUMBERS, 4, 18, 6)
    limits = 0.2, 1.1
    return states, lambda of, at, rows, held: of(mixed[at], dt[at], decay, shift, skip, rows, held, 2, limits), mamba_


KERNELS = {conv_: conv_.short_convolution, delta_: delta_.delta_net, mamba_: mamba_.mamba}
KINDS = ["convolution", "delta", "mamba"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_goes_on_from_the_one_it_follows(kind):
    states, call, module = layer(kind, 10)
    held, want = states.clone(), states.clone()
    found = call(KERNELS[module], slice(0, 10), TREE, held)
    assert torch.allclose(found, call(module.reference, slice(0, 10), TREE, want).to(found), atol=1e-5)
    assert torch.allclose(held, want, atol=1e-5)
    assert not torch.equal(held[6:12], states[6:12])
    assert torch.equal(held[:6], states[:6])
    assert (found[8:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_bits_depend_neither_on_the_chunk_nor_on_the_tree(kind):
    states, call, module = layer(kind, 6)
    kernel = KERNELS[module]
    at_once = call(kernel, slice(0, 6), batch([~2, 0, 1, 2, 3, 4], [-1] * 5 + [7], [6]), once := states.clone())
    parts, pieces = states.clone(), list[torch.Tensor]()
    pieces.append(call(kernel, slice(0, 2), batch([~2, 0], [-1, 8], [2]), parts))
    for token in range(2, 6):  # one by one, each in the place of the last
        pieces.append(call(kernel, slice(token, token + 1), batch([~8], [8], [1]), parts))
    assert torch.equal(torch.cat(pieces), at_once)
    assert torch.equal(parts[8], once[7])
    order = [0, 5, 1, 2, 3, 4]  # the last token drafted beside the rest, where it reads the same as below the first
    tree = call(kernel, order, batch([~2, 0, 0, 2, 3, 4], [6, 7, 8, 9, 10, 11], [6]), states.clone())
    assert torch.equal(tree[[0, 2, 3, 4, 5]], at_once[:5])


def test_an_unread_state_is_left_alone_by_padding():
    states, call, module = layer("delta", 2)
    held = states.clone()
    found = call(KERNELS[module], slice(0, 2), batch([~2, ~2], [3, 4], [0, 0]), held)
    assert torch.equal(held, states)
    assert (found == 0).all()


@pytest.mark.parametrize("early", [True, False])
def test_norms_with_a_gate(early):
    made = torch.Generator().manual_seed(1)
    y, wide = torch.randn(3, 12, generator=made).to(DEVICE), torch.randn(3, 30, generator=made).to(DEVICE)
    z, weight = wide[:, 5:17], torch.randn(12 if early else 4, generator=made).to(DEVICE)
    found = norm_.gate_then_norm(y, weight, z, 1e-5, 2) if early else norm_.norm_then_gate(y, weight, z, 1e-5)
    assert torch.allclose(found, norm_.reference(y, weight, z, 1e-5, 2 if early else 3, early), atol=1e-5)
