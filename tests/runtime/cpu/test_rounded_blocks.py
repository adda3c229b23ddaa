"""Weights that are rounded while they are loaded run on the packed kernels, whatever file they come from."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
import torch
from contracts import exercise
from families import FAMILIES, run, text, written
from hypothesis import given, settings
from hypothesis import strategies as st
from littlemodel import little_model

import unspool
from unspool.api.memory_plan import plan
from unspool.models.quant import GROUP
from unspool.models.rounding import ROUND, to_q4_1, to_q8_0
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cpu.compiled import kernels
from unspool.runtime.cpu.packed import PackedLinear
from unspool.runtime.cpu.packed_llama import PackedExecutor, PackedLlama
from unspool.runtime.cpu.rounded_blocks import load_rounded
from unspool.runtime.network.linear import dense
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.quantised import Int4Linear, Int8Linear

KINDS = ("int8", "int4")
needs_kernels = pytest.mark.skipif(kernels() is None, reason="no kernels on this machine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = little_model(tmp_path_factory.mktemp("little"))
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}  # as the kernels take them
    (made / "config.json").write_text(json.dumps(json.loads((made / "config.json").read_text()) | heads))
    return made


@given(st.integers(0, 1 << 16), st.sampled_from([1, 3, 70]), st.sampled_from([1, 2, 5]))
@settings(max_examples=20, deadline=None)
def test_blocks_stand_for_the_nearest_numbers_that_they_can(seed, rows, groups):
    weight = torch.randn(rows, groups * GROUP, generator=torch.Generator().manual_seed(seed))
    weight[0] *= 100
    weight[-1, :GROUP] = 0
    split = weight.view(rows, groups, GROUP)
    for made, step in (
        (to_q8_0(weight), split.abs().amax(2) / 127),
        (to_q4_1(weight), (split.amax(2) - split.amin(2)) / 15),
    ):
        far = (made.whole().view(split.shape) - split).abs().amax(2)
        # half a step, and what a scale and a least in half precision are off by
        assert bool((far <= 0.5 * step + 2**-10 * split.abs().amax(2)).all()), made.format.name
        assert bool((made.whole()[-1, :GROUP] == 0).all())
    assert torch.equal(to_q4_1(weight).whole(), Int4Linear.of(weight, None).whole(torch.float32))


def test_a_large_matrix_is_rounded_like_its_rows(monkeypatch):
    weight = torch.randn(37, 2 * GROUP, generator=torch.Generator().manual_seed(1))
    whole = {name: rounded(weight).data for name, rounded in ROUND.items()}
    monkeypatch.setattr("unspool.models.rounding._AT_ONCE", 5 * 2 * GROUP)
    assert all(torch.equal(rounded(weight).data, whole[name]) for name, rounded in ROUND.items())


class Explained(NamedTuple):
    """A product by PyTorch of a whole matrix and inputs in eight bits, 32 with one scale."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, x):
        blocks = x.double().view(len(x), -1, GROUP)
        most = blocks.abs().amax(2, keepdim=True)
        rounded = (blocks * torch.where(most > 0, 127 / most, 0.0)).round() * (most / 127)
        bias = None if self.bias is None else self.bias.double()
        return torch.nn.functional.linear(rounded.view(x.shape), self.weight.double(), bias).float()


def over(checkpoint, kind):
    """The Llama network over the numbers that the blocks stand for."""
    vocab = checkpoint.shape.vocab

    def linear(weight, bias):
        if weight.shape[1] % GROUP:
            return dense(weight, bias)
        return Explained((to_q8_0 if len(weight) == vocab else ROUND[kind])(weight).whole(), bias)

    return Llama.load(checkpoint, linear=linear)


def near(ours: torch.Tensor, theirs: torch.Tensor, bound: float) -> bool:
    return bool((ours - theirs).norm() <= bound * theirs.norm())


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_say_what_the_rounded_matrices_say(folder, kind):
    checkpoint, tokens = open_checkpoint(folder), text(0)
    net, slots = load_rounded(checkpoint, 256, kind), list(range(len(tokens)))
    assert type(net) is PackedLlama
    assert near(net.ends.embed(tokens), over(checkpoint, kind).ends.embed(tokens), 0.01)
    assert near(run(net, tokens, slots), run(over(checkpoint, kind), tokens, slots), 0.05)
    far = run(Llama.load(checkpoint), tokens, slots)
    assert not near(run(net, tokens, slots), far, 1e-4)  # it is rounded
    assert near(run(net, tokens, slots), far, {"int8": 0.1, "int4": 0.6}[kind])


@needs_kernels
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_sessions_keep_every_contract_to_the_last_bit(folder, data):
    net = load_rounded(open_checkpoint(folder), 400, data.draw(st.sampled_from(KINDS)))
    model = CachedModel(net, 0, PackedExecutor(net))

    def alone(tokens):
        slots = net.slots.take(len(tokens))
        found = run(net, torch.tensor(tokens), slots)[-1]
        net.slots.drop(slots)
        return found

    exercise(data, model, lambda tokens: alone(list(tokens)), longest=12)


# Layers that the kernels do not run by themselves: experts, latents, recurrence, norms and scales in odd places.
@needs_kernels
@pytest.mark.parametrize("kind", ["qwen3_moe", "deepseek_v3", "qwen3_next", "gemma2", "gpt_oss", "lfm2"])
def test_every_kind_of_layer_multiplies_by_the_kernels(tmp_path, kind):
    pytest.importorskip("transformers")
    family = next(family for family in FAMILIES if family.kind == kind)
    wide = {"hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 32}
    own = {name: size for name, size in wide.items() if name in family.settings or not name.startswith("moe")}
    written(family._replace(settings={**family.settings, **own}), tmp_path)
    checkpoint, tokens = open_checkpoint(tmp_path), text(0)
    net, slots = load_rounded(checkpoint, 256, "int8"), list(range(len(tokens)))
    assert isinstance(net.ends.head, PackedLinear)
    # A number between two int8 values, a token between two experts, goes either way; another matrix would be off by 1.
    assert near(run(net, tokens, slots), run(over(checkpoint, "int8"), tokens, slots), 0.25)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_load_rounds_to_blocks_on_a_cpu_and_says_so(folder, kind):
    lm = unspool.load(folder, quantization=kind, device="cpu")
    assert isinstance(lm.model.network, PackedLlama)
    assert lm.note.startswith(f"weights rounded to {kind}, 32 with one scale")
    assert kind in lm.key
    out = lm.generate([5, 6, 7], max_tokens=8)
    assert out.tokens == lm.generate([5, 6, 7], max_tokens=8, method="lookup").tokens
    fixed = unspool.load(folder, quantization=kind, device="cpu", batch_invariant=True)
    assert fixed.generate([5, 6, 7], max_tokens=8).tokens == out.tokens


@pytest.mark.parametrize(("kind", "linear"), [("int8", Int8Linear), ("int4", Int4Linear)])
def test_without_kernels_or_in_another_precision_matrices_are_widened(folder, kind, linear, monkeypatch):
    layer = unspool.load(folder, quantization=kind, device="cpu", dtype="bf16").model.network._stack[0]
    assert isinstance(layer.mixer.out, linear)
    monkeypatch.setattr("unspool.runtime.cpu.packed.kernels", lambda: None)
    lm = unspool.load(folder, quantization=kind, device="cpu")
    assert isinstance(lm.model.network._stack[0].mixer.out, linear)
    assert len(lm.generate([5, 6, 7], max_tokens=4).tokens) == 4


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_counts_what_the_blocks_take(folder, kind):
    checkpoint = open_checkpoint(folder)
    net = load_rounded(checkpoint, 64, kind)
    layers = [part for at in net._stack for part in (at.mixer.qkv, at.mixer.out, at.mlp.gate_up, at.mlp.down)]
    tiles = sum(tile.numel() for part in (*layers, net.ends.head) for tile in part.tiles)
    norms = 4 * 32 * (2 * len(net._stack) + 1)
    held = tiles + net.ends.table.data.numel() + norms
    found = plan(checkpoint, torch.float32, 64, quantization=kind)
    assert held == pytest.approx(found.weights, rel=0.1)  # tiles are filled up to whole ones
    assert found.per_token == found.weights - net.ends.table.data.numel()
