"""A forward on the packed kernels is that of the Llama network over the same matrices, and keeps every contract."""

from __future__ import annotations

import ctypes

import pytest
import torch
from contracts import exercise
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import CONTEXT, LAYERS, PACKED, VOCAB, write_packed

from unspool.core.errors import BadModel, BadRequest, BadScores, OutOfRoom
from unspool.core.law import best_of
from unspool.core.law import chosen as token
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.models.weights import GGUFCheckpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cpu.compiled import kernels
from unspool.runtime.cpu.kernel_outputs import KernelOutputs
from unspool.runtime.cpu.packed import DecodedLinear, PackedLinear, PackedLoader, chosen, resolved
from unspool.runtime.cpu.packed_llama import PackedExecutor, PackedLlama, load_packed
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import Batch, NetworkOutputs, Row

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")

needs_kernels = pytest.mark.skipif(kernels() is None, reason="no kernels on this machine")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    made = {}

    def save(family, formats=PACKED, tied=True):
        key = family, formats, tied
        if key not in made:
            made[key] = write_packed(tmp_path_factory.mktemp(family) / "packed.gguf", family, formats, tied)
        return made[key]

    return save


def read(net: Llama, text: list[int], want: tuple[int, ...] = ()) -> NetworkOutputs:
    count, slots = len(text), net.slots.take(len(text))
    row = Row(0, count, slots, range(count))
    out = net.forward(Batch(torch.tensor(text), torch.arange(count), slots, [row], torch.arange(count), want))
    net.slots.drop(slots)
    return out


def text(seed: int, length: int) -> list[int]:
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@needs_kernels
@pytest.mark.parametrize(("family", "tied"), [*((family, True) for family in FAMILIES), ("llama", False)])
def test_the_same_function_as_the_llama_network_over_these_matrices(saved, family, tied):
    checkpoint = saved(family, tied=tied)
    packed, plain = load_packed(checkpoint, CONTEXT), Llama.load(checkpoint, room=CONTEXT, loader=PackedLoader)
    assert type(packed) is PackedLlama
    assert isinstance(plain.ends.head, PackedLinear)
    whole = Llama.load(checkpoint, room=CONTEXT)
    wants = (0, 1, LAYERS - 1, -1)
    ours, theirs, exact = (read(net, text(1, 30), wants) for net in (packed, plain, whole))
    for mine, other, right in (
        (ours.logits, theirs.logits, exact.logits),
        *((ours.hidden[i], theirs.hidden[i], exact.hidden[i]) for i in wants),
    ):
        # A number that falls on the border of two int8 values may go to either, and moves what follows by a step.
        assert (mine - other).norm() <= 0.01 * right.norm()
        assert (mine - right).norm() <= 0.03 * right.norm()


class RoundingLinear(DecodedLinear):
    """A product by PyTorch of the decoded matrix and inputs in eight bits, 32 with one scale."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        blocks = x.double().view(len(x), -1, 32)
        most = blocks.abs().amax(2, keepdim=True)
        rounded = (blocks * torch.where(most > 0, 127 / most, 0.0)).round() * (most / 127)
        weight = torch.cat([part.whole().double() for part in self._parts])
        return torch.nn.functional.linear(rounded.view(x.shape), weight, self.bias).float()


class RoundingLoader(PackedLoader):
    def _linear(self, parts, bias):
        return RoundingLinear(parts, bias)


@needs_kernels
@pytest.mark.parametrize("formats", [("Q4_K",), ("Q6_K",), ("Q4_K", "Q6_K")])
def test_logits_of_the_k_formats_are_as_far_from_whole_weights_as_rounded_inputs_are(saved, formats):
    checkpoint = saved("llama", formats, tied=False)
    packed = load_packed(checkpoint, CONTEXT)
    assert type(packed) is PackedLlama
    explained = Llama.load(checkpoint, room=CONTEXT, loader=RoundingLoader)
    whole = Llama.load(checkpoint, room=CONTEXT)
    ours, theirs, exact = (read(net, text(4, 40)).logits for net in (packed, explained, whole))
    far = (theirs - exact).abs().max()
    assert 0 < far < 0.1 * exact.abs().max()
    assert (ours - exact).abs().max() <= 1.5 * far
    assert (ours - theirs).norm() <= 0.3 * (theirs - exact).norm()  # numbers between two int8 values go either way


@needs_kernels
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_sessions_keep_every_contract_to_the_last_bit(saved, family, data):
    network = load_packed(saved(family), 400)
    model = CachedModel(network, 0, data.draw(st.sampled_from([None, PackedExecutor(network)])))
    exercise(data, model, lambda tokens: read(network, list(tokens)).logits[-1], longest=12)
    assert network.slots.in_use == 0


@needs_kernels
def test_one_text_is_a_call_of_the_kernels_and_its_laws_know_their_best(saved, monkeypatch):
    network = load_packed(saved("llama"), 64)
    model = CachedModel(network, 0, PackedExecutor(network))
    session, words = model.open(text(5, 9)), text(6, 4)
    fork = Tree(tuple(map(token, words)), (-1, 0, 0, 2))
    want = [read(network, [*text(5, 9), *fork.tokens(fork.path(node))]).logits[-1] for node in range(-1, 4)]
    monkeypatch.setattr(PackedLlama, "forward", lambda *_: pytest.fail("a batch was made"))
    (scores,) = model.score([ScoreRequest(session, fork, ("hidden:-1",))])
    for law, row in zip([*scores.leaf, *scores.after], want, strict=True):
        assert torch.equal(law.scores, row)
        assert law.best == int(row.argmax())
    assert torch.equal(network.ends.head(scores.hidden["hidden:-1"][:4]), torch.stack(want[1:]))


@needs_kernels
def test_what_the_kernel_of_one_text_cannot_run_is_refused_as_ever(saved):
    network = load_packed(saved("llama"), 400)
    model = CachedModel(network, 0, PackedExecutor(network))
    with pytest.raises(BadRequest, match="holes"):
        model.score([ScoreRequest(model.open([3]), Tree.chain([token(-1)]))])
    with pytest.raises(OutOfRoom, match="at most"):
        model.score([ScoreRequest(model.open(text(7, CONTEXT - 2)), Tree.chain([token(1)] * 4))])
    assert network.slots.in_use == 0


@needs_kernels
def test_logits_that_are_no_numbers_are_told_as_ever(saved):
    network = load_packed(saved("llama"), 64)
    norm, model = network.ends.norm, CachedModel(network, 0, PackedExecutor(network))
    kept = norm.clone()
    norm.fill_(torch.nan)
    (scores,) = model.score([ScoreRequest(model.open(text(5, 9)), Tree.chain([token(3)]))])
    norm.copy_(kept)  # which others read too
    for law in (*scores.leaf, *scores.after):
        with pytest.raises(BadScores):
            law.best  # noqa: B018


@needs_kernels
def test_a_forward_tells_the_best_tokens_of_its_rows_and_leaves_its_logits_to_who_holds_a_law(saved):
    network = load_packed(saved("llama"), 64)
    model = CachedModel(network, 0, PackedExecutor(network))
    session = model.open(text(5, 9))
    (scores,) = model.score([ScoreRequest(session, Tree.chain([token(3), token(4)]), ("hidden:-1",))])
    kept = torch.stack([law.scores.clone() for law in (*scores.leaf, *scores.after)])
    for k in (1, 8, 11):
        want = best_of(kept, k)
        for told, row in zip(scores.best(k), want, strict=True):
            assert [x for x, _ in told] == [x for x, _ in row]
            assert [p for _, p in told] == pytest.approx([p for _, p in row], abs=1e-6)
    law, view, state = scores.after[1], scores.leaf[0].scores, scores.hidden["hidden:-1"][0].clone()
    del scores
    session.keep(Tree.chain([token(3), token(4)]), (0,), (7,))
    for word in range(20):  # other forwards, which would write where nobody holds anything
        model.score([ScoreRequest(session, Tree.chain([token(word)]))])
        session.keep(NOTHING, (ROOT,), (word,))
    assert torch.equal(law.scores, kept[2])
    assert torch.equal(view, kept[0])
    assert torch.equal(network.ends.head(state[None])[0], kept[1])


def test_memory_is_given_back_when_the_last_tensor_of_it_goes():
    """Looked at or not: what holds itself through a tensor is never freed, and a sampled text would keep every row."""
    memory, gone = (ctypes.c_float * 10)(*range(10)), list[int]()
    outputs = KernelOutputs(ctypes.addressof(memory), 2, 4, 1, gone.append)
    row, states = outputs.logits[1], outputs.states
    assert row.tolist() == [4, 5, 6, 7]
    assert states.tolist() == [[8], [9]]
    del outputs, row
    assert not gone
    del states
    assert gone == [ctypes.addressof(memory)]


@needs_kernels
def test_part_of_the_layers_is_a_model_with_the_same_weights(saved):
    network = load_packed(saved("llama"), 64)
    part = network.part([0, 2])
    assert type(part) is PackedLlama
    assert part.layers == 2
    assert torch.equal(part.part([0, 1]).ends.norm, network.ends.norm)
    assert read(part, text(2, 9)).logits.isfinite().all()
    assert torch.equal(read(network.part([0, 1, 2]), text(2, 9)).logits, read(network, text(2, 9)).logits)


def test_blocks_are_the_tensors_of_the_file(saved):
    checkpoint = saved("llama")
    for name in ("model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        assert torch.equal(checkpoint.blocks(name).whole(), checkpoint.tensor(name))
        checkpoint.release(name)
        assert torch.equal(checkpoint.blocks(name).whole(), checkpoint.tensor(name))
    table = checkpoint.blocks("model.embed_tokens.weight")
    tokens = torch.tensor([3, 96, 3])
    assert torch.equal(table.rows(tokens), checkpoint.tensor("model.embed_tokens.weight")[tokens])


def test_without_kernels_the_numbers_are_those_of_whole_weights(saved, monkeypatch):
    monkeypatch.setattr("unspool.runtime.cpu.packed.kernels", lambda: None)
    monkeypatch.setattr("unspool.runtime.cpu.packed_llama.kernels", lambda: None)
    network = load_packed(saved("llama"), 64)
    assert type(network) is Llama
    assert isinstance(network.ends.head, DecodedLinear)
    want = read(Llama.load(saved("llama"), room=64), text(3, 12)).logits
    assert torch.allclose(read(network, text(3, 12)).logits, want, atol=1e-4 * float(want.abs().max()))
    with pytest.raises(BadRequest, match="no kernels on this machine"):
        PackedLlama.load(saved("llama"), room=64, loader=PackedLoader)


@needs_kernels
def test_auto_is_packed_on_a_cpu_that_has_kernels_unless_a_precision_is_asked_for(saved, monkeypatch):
    packed = saved("llama")
    assert resolved("auto", "auto", "cpu", 1, packed) == "packed"
    for dtype, device, ranks in (("fp32", "cpu", 1), ("auto", "cuda", 1), ("auto", "cpu", 2)):
        assert resolved("auto", dtype, device, ranks, packed) == "none"
    assert resolved("packed", "fp32", "cpu", 1, packed) == "packed"
    assert chosen("auto", "fast", "cpu", 1, packed)[1].startswith("weights packed as in the file")
    for dtype in ("fp32", "bf16"):
        assert chosen("auto", dtype, "cpu", 1, packed)[1].startswith(f"weights widened to {dtype}, as asked")
    assert chosen("none", "bf16", "cpu", 1, packed) == ("none", None)
    assert chosen("int8", "bf16", "cpu", 1, packed) == ("int8", None)
    with pytest.raises(BadRequest, match="is for the CPU, between numbers in fp32; here it is cpu and bf16"):
        resolved("packed", "bf16", "cpu", 1, packed)
    monkeypatch.setattr("unspool.runtime.cpu.packed.kernels", lambda: None)
    assert resolved("auto", "auto", "cpu", 1, packed) == "none"
    monkeypatch.setattr("unspool.runtime.cpu.packed.KINDS", {})
    with pytest.raises(BadRequest, match="this model has none"):
        resolved("packed", "auto", "cpu", 1, packed)


def test_a_file_that_was_cut_short_is_refused(saved, tmp_path):
    whole = saved("llama").file.path.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:-100])
    with pytest.raises(BadModel, match="cut short"):
        GGUFCheckpoint(tmp_path / "cut.gguf")
