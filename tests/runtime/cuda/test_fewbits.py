"""Weights of few bits: what they stand for, what they take, and the kernels that read them."""

from itertools import product

import interpreted
import pytest
import torch
import torch.nn.functional as F
from selection import crossed

from unspool.api.loader import load
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest, BadScores
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.kernels import fewbits as kernel
from unspool.kernels.gate import reference as gated
from unspool.models.shape import Shape
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Lookup
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import DenseLinear
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.quantised import Int4Linear, Int8Linear, TiledInt8Linear, bytes_of, rounded

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
NAN = float("nan")

# numpy says aloud what floating point does silently on a GPU
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def matrix(rows, depth):
    weight = torch.randn(rows, depth, device=DEVICE) * torch.rand(rows, 1, device=DEVICE)
    weight[0] = 0.0  # a row of nothing but zeros has no scale
    weight[1] = 0.25
    return weight


def test_eight_bits_are_off_by_half_a_step_at_most():
    weight = matrix(20, 96)
    kept = Int8Linear.of(weight, None)
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((kept.whole(torch.float32) - weight).abs() <= step / 2 + 1e-7).all()


@pytest.mark.parametrize("depth", [256, 96])
def test_four_bits_are_off_by_half_a_step_of_their_group_at_most(depth):
    weight = matrix(20, depth)
    kept = Int4Linear.of(weight, None)
    groups = weight.view(20, -1, 32)
    step = (groups.amax(2) - groups.amin(2)) / 15
    off = (kept.whole(torch.float32).view(20, -1, 32) - groups).abs().amax(2)
    assert (off <= 0.52 * step + 1e-3 * groups.abs().amax(2)).all()  # what groups share is rounded too
    assert kept.whole(torch.float32)[1].allclose(weight[1])


def test_halves_of_a_byte_are_put_where_they_belong():
    """Weights that are whole numbers of their group's steps come back as they were."""
    q = torch.arange(5 * 32, device=DEVICE).reshape(1, -1) * 7 % 16
    q[0, ::32], q[0, 1::32] = 0, 15
    weight = q * 0.5 - 3.0
    assert torch.equal(Int4Linear.of(weight, None).whole(torch.float32), weight)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("depth", [576, 4096, 1536, 100])
def test_the_plan_counts_the_bytes_that_are_kept(kind, depth):
    made = rounded(kind, DenseLinear, head=7)(torch.randn(48, depth), None)
    tensors = [part for part in vars(made).values() if isinstance(part, torch.Tensor)]
    assert sum(part.nbytes for part in tensors) == bytes_of(kind, 48, depth, torch.bfloat16)
    assert bytes_of("none", 48, depth, torch.bfloat16) == 2 * 48 * depth


def test_the_head_stays_whole_and_unknown_kinds_are_refused():
    assert isinstance(rounded("int4", DenseLinear, head=48)(torch.randn(48, 128), None), DenseLinear)
    assert rounded("none", DenseLinear, head=48) is DenseLinear
    with pytest.raises(BadRequest, match="choose one of: auto, packed, none, int8, int4"):
        rounded("int5", DenseLinear, head=48)


def times(kept, x, **around):
    """The kernel's product of a matrix of 4 bits."""
    width = kept.size[0] // 2 if around.get("activation") else kept.size[0]
    return kernel.product(x, kept.weight, getattr(kept, "scale", None), kept.bias, width=width, **around)


@pytest.mark.parametrize(("n", "depth", "width"), [(1, 192, 40), (5, 640, 48), (33, 96, 40)])
def test_kernels_read_few_bits_as_the_reference_widens_them(n, depth, width):
    dtype = torch.bfloat16 if n == 5 else torch.float16
    around = (None, False, True), (None, True, False), ("silu", False, True)
    for kind, (activation, adds, biased) in product((Int4Linear, TiledInt8Linear), around):
        weight = matrix(2 * width if activation else width, depth)
        bias = torch.randn(len(weight), device=DEVICE, dtype=dtype) if biased else None
        kept = kind.of(weight, bias)
        x = torch.randn(n, depth, device=DEVICE, dtype=dtype)
        residual = torch.randn(n, width, device=DEVICE, dtype=dtype) if adds else None
        ours = times(kept, x, residual=residual, activation=activation)
        wide = None if bias is None else bias.float()
        theirs = F.linear(x.float(), kept.whole(torch.float32), wide).to(dtype)
        if activation:
            theirs = gated(theirs, activation)
        elif adds:
            theirs = residual + theirs
        off = (ours - theirs).double().norm() / theirs.double().norm()
        assert off < (3e-3 if dtype == torch.float16 else 2e-2)  # the interpreter cuts bfloat16 off


def test_numbers_of_any_size_are_multiplied_as_well():
    """Tokens of bfloat16 are enlarged on their way, and sums must neither overflow nor vanish."""
    x = torch.randn(4, 64, device=DEVICE) * torch.tensor([[1e-12], [1e-3], [1.0], [1e9]], device=DEVICE)
    kept = Int4Linear.of(matrix(16, 64), None)
    want = F.linear(x.bfloat16().double(), kept.whole(torch.float64))
    off = (times(kept, x.bfloat16()).double() - want).norm(dim=1) / want.norm(dim=1)
    assert (off < 1e-2).all()


@pytest.mark.parametrize("cut", [kernel.Split(2), kernel.Split(4, 2, tiles=2), kernel.Split(8)])
@pytest.mark.parametrize("kind", [Int4Linear, TiledInt8Linear])
def test_few_bits_give_a_token_the_same_bits_in_any_company(cut, kind):
    kept, x = kind.of(matrix(64, 160), None), torch.randn(19, 160, device=DEVICE).half()
    together = times(kept, x, cut=cut)
    torch.testing.assert_close(together.float(), F.linear(x.float(), kept.whole(torch.float32)), atol=4e-3, rtol=4e-3)
    for some in ([0], [18], [5, 17, 2, 9]):
        assert torch.equal(times(kept, x[some].contiguous(), cut=cut), together[some])


@pytest.mark.parametrize("cut", [kernel.Split(1, 1), kernel.Split(2, 1), kernel.Split(2, 2)])
@pytest.mark.parametrize("zeros", [False, True])
def test_one_token_meets_groups_in_the_places_of_tokens(cut, zeros):
    """Rows of three blocks of 256 numbers, which two warps do not share evenly; plain, added to, and gated."""
    q, scale = torch.randint(16, (64, 24, 32), device=DEVICE), torch.rand(64, 24, device=DEVICE).half()
    other = -torch.randint(16, scale.shape, device=DEVICE).half() if zeros else torch.rand_like(scale) - 1
    kept = Int4Linear.stored(q.to(torch.uint8), scale, other, torch.randn(64, device=DEVICE).half(), zeros)
    x, residual = torch.randn(1, 768, device=DEVICE).half() / 10, torch.randn(1, 64, device=DEVICE).half()
    want = F.linear(x.double(), kept.whole(torch.float64), kept.bias.double())
    for given, exact in (
        ({"residual": residual}, want + residual.double()),
        ({"activation": "silu"}, F.silu(want[:, :32]) * want[:, 32:]),
    ):
        found = times(kept, x, cut=cut, zeros=zeros, **given).double()
        assert (found - exact).norm() / exact.norm() < 2e-3


@pytest.mark.parametrize(("depth", "gated"), [(576, False), (4096, True), (14336, False)])
def test_sums_of_few_bits_are_shared_alike_for_any_number_of_tokens(depth, gated):
    assert len({kernel.share_for(depth, n, gated).warps for n in (1, 8, 9, 64)}) == 1


def test_weights_that_were_rounded_so_before_are_kept_exactly():
    """A file of 4-bit weights has a scale and a least for every 32 of them, in float16."""
    q = torch.randint(16, (24, 4, 32), device=DEVICE)
    q[:, :, 0], q[:, :, 1] = 0, 15
    scale, least = (torch.rand(24, 4, 1, device=DEVICE).half().float() for _ in range(2))
    weight = (q * scale - least).view(24, 128)
    torch.testing.assert_close(Int4Linear.of(weight, None).whole(torch.float32), weight, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_matrix_is_applied_as_what_it_stands_for(kind):
    weight, bias, x = torch.randn(24, 128), torch.randn(24), torch.randn(3, 128)
    made = rounded(kind, DenseLinear, head=7)(weight, bias)
    torch.testing.assert_close(made(x), F.linear(x, made.whole(torch.float32), bias), atol=1e-5, rtol=1e-5)


class Noise:
    """A checkpoint of random weights, small enough for the interpreter."""

    shape = Shape("llama", 1, 64, 2, 1, 32, 64, 40, 256, 1e-5, 1e4)
    rope_factors = None

    def __init__(self, broken=False):
        self.broken = broken

    def tensor(self, name, dtype):
        size = self.shape.tensors()[name]
        generator = torch.Generator().manual_seed(len(name) + sum(map(ord, name)))
        values = torch.ones(size) if len(size) == 1 else torch.randn(size, generator=generator) * size[1] ** -0.5
        if self.broken and name == "model.norm.weight":
            values[3] = NAN
        return values.to(dtype)


@pytest.fixture
def _unsplit(monkeypatch):
    """Keys in one share: the interpreter takes its time for every program."""
    monkeypatch.setattr("unspool.kernels.tiling.MOST_SPLITS", 1)


@pytest.mark.usefixtures("_unsplit")
@pytest.mark.parametrize(("kind", "dtype"), crossed(["none", "int8", "int4"], [torch.float32, torch.float16], quick=2))
def test_the_fused_network_computes_with_few_bits_what_the_plain_one_does(kind, dtype):
    """A text that is read, written on, and followed by a tree: by kernels, and by PyTorch."""
    make = rounded(kind, DenseLinear, 40, TiledInt8Linear)
    ours = graph_model(Fused.load(Noise(), dtype, DEVICE, 200, make), sequences=8)
    theirs = CachedModel(Llama.load(Noise(), dtype, DEVICE, 200, make))
    tree = Tree(tuple(chosen(x) for x in (3, 4, 5)), (ROOT, 0, ROOT))
    found = []
    for model in (ours, theirs):
        session = model.open([i % 40 for i in range(12)])
        first = model.score([ScoreRequest(session, NOTHING)])[0].leaf[0]
        session.keep(NOTHING, (ROOT,), (7,))
        second = model.score([ScoreRequest(session, tree)])[0]
        found.append(torch.stack([law.scores.cpu() for law in (first, *second.leaf, *second.after)]))
        session.close()
    near = 2e-3 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(*(scores.float() for scores in found), atol=near, rtol=near)


@pytest.mark.usefixtures("_unsplit")
def test_broken_weights_are_reported_on_the_device_too():
    model = graph_model(Fused.load(Noise(broken=True), torch.float32, DEVICE, 400, DenseLinear), sequences=8)
    for method in (plain(), Speculate(Lookup(1, 1, 2))):  # one writes, the other checks
        engine = Engine({"target": model})
        job = engine.submit(method, (3,), Philox(0), stop=Stop(most=3), laws=False)
        engine.run()
        with pytest.raises(BadScores, match="NaN"):
            job.result()
    assert model.slots.in_use == 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("int8", 0.05), ("int4", 1e-6)])
def test_a_file_of_four_bit_weights_loses_nothing_in_four_bits_and_little_in_eight(
    smollm2_fp32, smollm2_path, kind, most
):
    """KL(whole ‖ rounded) after a prompt, in nats; the default model's file holds 4-bit weights."""
    rough = load(str(smollm2_path), dtype="fp32", device="cpu", quantization=kind)
    prompt = smollm2_fp32.encode([{"role": "user", "content": "Why is the sky blue?"}])
    found = []
    for lm in (smollm2_fp32, rough):
        session = lm.model.open(prompt)
        found.append(lm.model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores.double().log_softmax(-1))
        session.close()
        lm.model.forget()
    p, q = found
    assert 0 <= float((p.exp() * (p - q)).sum()) + 1e-9 < most
    assert (kind == "int8") != torch.allclose(p, q, atol=1e-3)


def test_transformers_is_not_asked_for_few_bits(smollm2_path):
    with pytest.raises(BadRequest, match="quantization='int4' needs the native runtime"):
        load(str(smollm2_path), runtime="transformers", quantization="int4")
