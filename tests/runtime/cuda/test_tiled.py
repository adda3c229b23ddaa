"""Weights that a file has in few bits, laid out for the kernels as they are: nothing of them is lost."""

import sys
from pathlib import Path

import interpreted
import pytest
import torch
import torch.nn.functional as F

from unspool.api.native_models import packed_on_graphs
from unspool.core.errors import BadRequest
from unspool.core.tree import NOTHING
from unspool.models.codes import FloatCodes, GroupedCodes, codes_of
from unspool.models.quant import FORMATS, QuantBlocks
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cpu.packed import resolved
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.cuda.tiled import TiledLoader, check_packed, laid_out, times
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.linear import DenseLinear
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.quantised import Int4Linear, TiledFloat8Linear, TiledInt8Linear

sys.path.append(str(Path(__file__).parents[2] / "models"))
import test_coded as files

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
PLACE = torch.device(DEVICE)
NUMBERS = ("packed int4", "awq", "gptq_v2 in 8 bits", "gptq in cut groups", "packed int8")
FLOATS = ("fp8 in blocks", "float-quantised", "float-quantised in blocks")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def codes(rows, columns, group, bits=4, leasts=False, middle=False):
    torch.manual_seed(rows)
    q = torch.randint(1 << bits, (rows, columns))
    scale = torch.rand(rows, columns // group).half() + 0.01
    other = torch.rand(rows, columns // group).half() if leasts else torch.randint(1 << bits, scale.shape)
    return GroupedCodes(q, scale, torch.full_like(other, 1 << (bits - 1)) if middle else other, bits, group, leasts)


@pytest.mark.parametrize(("bits", "group", "leasts"), [(4, 32, False), (4, 64, False), (4, 32, True), (8, 128, False)])
def test_codes_in_tiles_are_the_matrix_that_they_were(bits, group, leasts):
    parts = [
        codes(24, 128, group, bits, leasts, middle=bits == 8),
        codes(8, 128, group, bits, leasts, middle=bits == 8),
    ]
    made = laid_out(parts, None, PLACE)
    assert isinstance(made, Int4Linear if bits == 4 else TiledInt8Linear)
    want = torch.cat([part.whole() for part in parts])
    assert torch.equal(made.whole(torch.float32).cpu(), want)
    x = torch.randn(3, 128, device=DEVICE).half()
    found, exact = times(made, x, None, None), F.linear(x.double(), made.whole(torch.float64))
    assert (found.double() - exact).norm() / exact.norm() < 1e-3


def floats(rows, columns, high, wide):
    torch.manual_seed(rows)
    scale = torch.rand(-(-rows // high), -(-columns // wide)) + 0.01
    return FloatCodes(torch.randn(rows, columns).to(torch.float8_e4m3fn), scale[torch.arange(rows) // high], wide)


@pytest.mark.parametrize(("high", "wide"), [(1, 160), (24, 160), (16, 64), (48, 128)])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_floats_in_tiles_are_the_matrix_that_they_were(high, wide, kind):
    parts = [floats(48, 160, high, wide), floats(24, 160, high, wide)]
    bias = torch.randn(72, device=DEVICE).to(kind)
    made = laid_out(parts, bias, PLACE)
    assert isinstance(made, TiledFloat8Linear)
    assert made.scale.dim() == 1 + (wide < 160)
    assert torch.equal(made.whole(torch.float32).cpu(), torch.cat([part.whole() for part in parts]))
    x, exact = torch.randn(9, 160, device=DEVICE).to(kind), made.whole(torch.float64)
    exact = F.linear(x.double(), exact, bias.double())
    off = 1e-3 if kind == torch.float16 else 5e-3
    for n in (1, 3, 9):
        found = times(made, x[:n].contiguous(), None, None)
        assert (found.double() - exact[:n]).norm() / exact[:n].norm() < off


@pytest.mark.parametrize("wide", [64, 128])
def test_halves_of_a_gated_product_have_the_scales_of_their_own_blocks(wide):
    gate = floats(32, 128, 16, wide)
    made = laid_out([gate, FloatCodes(gate.codes, 2 * gate.scale.flip(1), wide)], None, PLACE)
    x = torch.randn(2, 128, device=DEVICE).half()
    g, u = F.linear(x.double(), made.whole(torch.float64)).chunk(2, 1)
    found = times(made, x, None, "silu")
    assert (found.double() - F.silu(g) * u).norm() / (F.silu(g) * u).norm() < 2e-3


def test_floats_that_the_kernels_do_not_know_are_left_alone():
    assert laid_out([floats(32, 96, 16, 48)], None, PLACE) is None  # blocks that are no whole pieces
    assert laid_out([floats(32, 128, 8, 64)], None, PLACE) is None  # nor whole tiles
    assert laid_out([floats(16, 128, 16, 64), floats(16, 128, 16, 128)], None, PLACE) is None
    assert laid_out([floats(32, 64, 1, 64), codes(16, 64, 32)], None, PLACE) is None
    some = floats(32, 64, 1, 64)
    wide = FloatCodes(some.codes.float().to(torch.float8_e5m2), some.scale, 64)
    assert laid_out([wide], None, PLACE) is None
    some.codes.view(torch.uint8)[3, 5] = 255
    assert laid_out([some], None, PLACE) is None  # which is no number


def test_codes_that_the_kernels_do_not_know_are_left_alone():
    assert laid_out([codes(16, 96, 24)], None, PLACE) is None  # groups that are no whole ones of 32
    assert laid_out([codes(16, 64, 32, bits=8)], None, PLACE) is None  # many scales a row
    assert laid_out([codes(16, 64, 32), codes(16, 64, 64)], None, PLACE) is None
    wide = codes(16, 64, 32)
    wide = GroupedCodes(wide.codes, wide.scale.float() + 1e-6, wide.other, 4, 32)
    assert laid_out([wide], None, PLACE) is None  # float16 would round the scales


@pytest.mark.parametrize("number", [2, 3])
def test_blocks_of_a_gguf_file_are_such_codes(number):
    form = FORMATS[number]
    torch.manual_seed(number)
    data = torch.randint(256, (6, 4 * form.width), dtype=torch.uint8)
    data.view(6, 4, form.width)[..., 1 : 2 if number == 2 else 4 : 2] &= 0x3B  # no infinite scales
    blocks = QuantBlocks(form, data)
    assert torch.equal(codes_of(blocks).whole(), blocks.whole())


@pytest.mark.parametrize(
    "kind", ["packed int4", "awq", "gptq_v2 in 8 bits", "gptq in cut groups", "packed int8", *FLOATS]
)
def test_codes_of_a_folder_are_what_its_matrices_are_made_of(kind, tmp_path):
    config, held, truth = files.folder_of(kind)
    checkpoint = files.opened(tmp_path, config, held)
    for name, want in truth.items():
        torch.testing.assert_close(checkpoint.codes(name).whole(), want, rtol=1e-6, atol=0)
    assert checkpoint.codes("model.embed_tokens.weight") is None


@pytest.mark.parametrize("kind", ["awq", "plain int8", "float-quantised"])
def test_a_folder_of_few_bits_is_read_into_tiles(kind, tmp_path, monkeypatch):
    """The network has the scores of one whose weights are whole. Groups of 16 are not known, and decoded."""
    monkeypatch.setattr("unspool.kernels.tiling.MOST_SPLITS", 1)
    config, held, _ = files.folder_of(kind)
    held |= {name: part / 100 for name, part in held.items() if name.endswith(("scale", "scales"))}
    checkpoint = files.opened(tmp_path, config, held)
    tiled = Fused.load(checkpoint, torch.float16, DEVICE, 100, DenseLinear, loader=TiledLoader)
    kinds = {"awq": DenseLinear, "plain int8": TiledInt8Linear, "float-quantised": TiledFloat8Linear}
    assert isinstance(tiled._stack[0].attention.out, kinds[kind])
    found = []
    for model in (graph_model(tiled, sequences=4), CachedModel(Llama.load(checkpoint, torch.float32, DEVICE, 100))):
        session = model.open([5, 3, 9, 1])
        found.append(model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores.float().cpu())
        session.close()
    torch.testing.assert_close(*found, atol=0.05, rtol=0.05)


def test_a_model_without_such_weights_is_refused(tmp_path):
    config, held, _ = files.folder_of("bitsandbytes nf4")
    with pytest.raises(BadRequest, match="this model has none"):
        check_packed(files.opened(tmp_path, config, held))


def test_packed_weights_on_a_gpu_have_free_shapes(tmp_path):
    config, held, _ = files.folder_of("plain int8")
    checkpoint = files.opened(tmp_path, config, held)
    with pytest.raises(BadRequest, match="no batch_invariant"):
        packed_on_graphs(checkpoint, torch.float16, "cuda", 100, 16)
    assert resolved("packed", "bf16", "cuda", 1, checkpoint) == "packed"
    with pytest.raises(BadRequest, match="this model has none"):
        resolved("packed", "auto", "cpu", 1, checkpoint)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_packed_weights_are_loaded_in_tiles(tmp_path):
    config, held, _ = files.folder_of("plain int8")
    model = packed_on_graphs(files.opened(tmp_path, config, held), torch.float16, "cuda", 100, None)
    assert isinstance(model.network._stack[0].attention.out, TiledInt8Linear)
