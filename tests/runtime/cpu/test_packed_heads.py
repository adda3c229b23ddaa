"""Heads on the packed kernels guess what the same heads guess elsewhere, among the tokens that they know."""

from __future__ import annotations

import pytest
import torch
from packing import random_blocks
from safetensors.torch import save_file

from unspool.runtime.cpu import packed_heads
from unspool.runtime.cpu.compiled import kernels
from unspool.runtime.cpu.packed import PackedLinear
from unspool.runtime.cpu.packed_heads import FIRST, PackedHeads, in_eight_bits
from unspool.runtime.network.linear import EmbeddingAndHead, dense
from unspool.runtime.network.lookahead_heads import MedusaHeads

DIM, VOCAB = 64, 97


@pytest.fixture
def ends():
    native = kernels()
    if native is None:
        pytest.skip("no kernels on this machine")
    table = random_blocks("Q8_0", VOCAB, DIM, seed=2, scale=0.2)
    return EmbeddingAndHead(table, None, torch.ones(DIM), PackedLinear([table], None, native))


@pytest.fixture(params=[True, False], ids=["reading a token", "blind"])
def file(request, tmp_path):
    made = torch.Generator().manual_seed(3)
    sizes = {"blocks": (3, 2, DIM, DIM), "biases": (3, 2, DIM)} | ({"tokens": (3, DIM, DIM)} if request.param else {})
    save_file({name: 0.1 * torch.randn(size, generator=made) for name, size in sizes.items()}, tmp_path / "heads")
    return tmp_path / "heads"


def test_the_first_heads_guess_what_they_guess_in_full(ends, file):
    packed, whole = PackedHeads.load(file, ends), MedusaHeads.load(file, ends)
    assert isinstance(packed, PackedHeads)
    for seed in range(8):
        hidden = torch.randn(DIM, generator=torch.Generator().manual_seed(seed))
        few, all_ = packed.best(hidden, seed, 4), whole.best(hidden, seed, VOCAB)
        assert (len(few), len(all_)) == (FIRST, 3)
        for told, known in zip(few, all_, strict=False):
            wanted = dict(known)
            assert [p for _, p in told] == pytest.approx([wanted[token] for token, _ in told], rel=0.1, abs=0.01)
            assert told[0][1] >= 0.8 * known[0][1]


def test_tokens_behind_the_common_ones_are_never_guessed(ends, file, monkeypatch):
    monkeypatch.setattr(packed_heads, "COMMON", 40)
    few = PackedHeads.load(file, ends).best(torch.randn(DIM, generator=torch.Generator().manual_seed(1)), 7, 40)
    assert [sorted(token for token, _ in told) for told in few] == [list(range(40))] * FIRST
    assert [sum(p for _, p in told) for told in few] == pytest.approx([1.0] * FIRST, rel=1e-4)


def test_heads_of_a_network_on_other_kernels_stay_as_they_are(ends, file):
    other = EmbeddingAndHead(ends.table, None, ends.norm, dense(ends.table.whole(), None))
    assert type(PackedHeads.load(file, other)) is MedusaHeads


def test_eight_bits_are_off_by_half_a_step_at_most():
    matrix = torch.randn(6, 96, generator=torch.Generator().manual_seed(5))
    matrix[2, :32] = 0
    back = in_eight_bits(matrix).whole()
    step = matrix.view(6, 3, 32).abs().amax(2, keepdim=True) / 127
    assert ((back - matrix).view(6, 3, 32).abs() <= 0.51 * step + 127 * step * 2**-11).all()
    assert torch.equal(back[2, :32], torch.zeros(32))


def test_a_part_of_a_matrix_gives_the_first_outputs_of_the_whole(ends):
    x = torch.randn(3, DIM, generator=torch.Generator().manual_seed(6))
    for out in (1, 16, 40, VOCAB, 2 * VOCAB):
        assert torch.equal(ends.head.first(out)(x), ends.head(x)[:, :out])
