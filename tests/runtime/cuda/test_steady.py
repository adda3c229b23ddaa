"""Fixed shapes on fused kernels: the bits of a law depend on its text alone; in the interpreter, or on a GPU."""

from dataclasses import replace

import interpreted
import pytest
import torch
from test_fewbits import Noise

from unspool.core.asks import Check
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT
from unspool.core.warp import Prefix, Temperature
from unspool.kernels.linear import linear
from unspool.kernels.tile import Tile
from unspool.models.layer_shape import ExpertSpec
from unspool.recipes.methods import method
from unspool.rules.verify import sample_match
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.fusible import unfused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.batch_invariant import check
from unspool.runtime.network.linear import DenseLinear
from unspool.runtime.network.lookahead_heads import Matrices, MedusaHeads

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, of what kernels mask away


@pytest.fixture(autouse=True)
def _seeded(monkeypatch):
    torch.manual_seed(0)
    if interpreted.INTERPRETED:  # it takes its time for every program
        monkeypatch.setattr("unspool.kernels.tiling.MOST_SPLITS", 1)
        monkeypatch.setattr("unspool.kernels.tiling.STEADY_SPLITS", 2)


@pytest.mark.parametrize("cut", [Tile(16, 16, 32, 2, norms=True), Tile(16, 16, 32, turned=True)])
def test_a_product_gives_a_token_the_same_bits_in_any_company(cut):
    x, weight, norm = (torch.randn(size, device=DEVICE).half() for size in ((37, 100), (48, 100), (100,)))
    together = linear(x, weight, norm=norm, eps=1e-5, cut=cut)
    for some in ([0], [36], [5, 30, 17], list(range(20, 37))):
        assert torch.equal(linear(x[some].contiguous(), weight, norm=norm, eps=1e-5, cut=cut), together[some])


def test_a_law_has_the_same_bits_in_a_tree_a_prompt_and_step_by_step():
    check(graph_model(BatchInvariantFused.load(Noise(), torch.float32, DEVICE, 200, DenseLinear), sequences=8))


@pytest.mark.skipif(interpreted.INTERPRETED, reason="takes 15 s there")
def test_fused_kernels_with_free_shapes_are_found_out():
    with pytest.raises(BadRequest, match="cannot be kept here"):
        check(graph_model(Fused.load(Noise(), torch.float32, DEVICE, 200, DenseLinear), sequences=8))


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_drafted_and_batched_texts_are_those_of_plain_decoding_alone(temperature):
    model = graph_model(BatchInvariantFused.load(Noise(), torch.float32, DEVICE, 400, DenseLinear), sequences=8)
    prompts = [(3, 4, 5, 3, 4), (9, 9, 9)]

    def written(specs, prompts):
        engine = Engine({"target": model})
        warp, stop = Temperature(temperature), Stop(most=3)
        jobs = [
            engine.submit(method(spec), prompt, Philox(5), warp, stop, laws=False)
            for spec, prompt in zip(specs, prompts, strict=True)
        ]
        engine.run()
        model.forget()
        return [job.result().tokens for job in jobs]

    alone = [written(["plain"], [prompt])[0] for prompt in prompts]
    assert written(["recycle:nodes=3", "on_device"], prompts) == alone


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_heads_guess_in_the_same_step_where_the_accepted_path_ends(temperature):
    model = graph_model(Fused.load(Noise(), torch.float32, DEVICE, 200, DenseLinear), sequences=8)
    dim = model.network.shape.dim
    sizes = (3, 2, dim, dim), (3, 2, dim), (3, dim, dim)
    model.heads = MedusaHeads(Matrices(*(0.2 * torch.randn(size).to(DEVICE) for size in sizes)), model.network.ends)
    texts = (3, 4, 5), (9, 9)
    sessions = [model.open(text) for text in texts]
    trees = [NOTHING.grow(chosen(4), ROOT)[0].grow(chosen(5), 0)[0], NOTHING]
    prefixes = [Prefix.of(text, Temperature(temperature)) for text in texts]
    asked = [
        ScoreRequest(session, tree, ("heads:8", "hidden:-1")) for session, tree in zip(sessions, trees, strict=True)
    ]
    checks = [Check(tree, prefix, sample_match, Philox(5)) for tree, prefix in zip(trees, prefixes, strict=True)]
    for found in model.device.check(asked, checks):
        (node, token), ahead = found.verdict, found.scores.ahead
        states = found.scores.hidden["hidden:-1"]  # the one leaf is the last row
        for at in ((node, token), (node, (token + 1) % 8), (ROOT, token)):
            for told, wanted in zip(ahead(*at), model.heads.best(states[at[0]], at[1], 8), strict=True):
                assert [x for x, _ in told] == [x for x, _ in wanted]
                assert [p for _, p in told] == pytest.approx([p for _, p in wanted], rel=1e-3)


def test_some_layers_are_cut_as_all_of_them_are():
    network = BatchInvariantFused.load(Noise(), torch.float32, DEVICE, 200, DenseLinear)
    assert network.part((0,)).steady
    assert isinstance(network.part((0,)), BatchInvariantFused)


def test_narrow_heads_are_filled_up_to_what_kernels_multiply():
    shape = replace(Noise().shape, head_dim=8, rotary=8)
    assert unfused(shape) is None
    assert "few bits" in unfused(replace(shape, mixture=ExpertSpec(4, 2, 16)), rounded=True)
