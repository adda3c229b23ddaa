"""Every family on CUDA graphs computes what the network without kernels does; in the interpreter, or on a GPU."""

from pathlib import Path

import interpreted
import pytest
import torch

from tests.support.families import FAMILIES, written
from tests.support.graphfamilies import graphs, invariant_graphs
from unspool.kernels import grouped as grouped_
from unspool.kernels import route as route_
from unspool.kernels.norm import rms
from unspool.models.weights import open_checkpoint
from unspool.runtime.cuda.fusible import unfused
from unspool.runtime.cuda.latent_kernels import per_head

pytest.importorskip("transformers", reason="the reference needs transformers: pip install 'unspool[hf]'")

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
    pytest.mark.usefixtures("one_thread"),
]
FEW = (
    *("Gemma 2", "Gemma 4 E2B, E4B (text)", "Phi-3, Phi-4", "gpt-oss", "Llama 4 (text)", "MiniCPM3"),
    *("Qwen3-Next", "LFM2, LFM2.5", "Nemotron-H, Nemotron 3 Nano"),
)
STEADY = ("SmolLM3", "Granite 4 H")  # attention, and states beside it
TWO = {"num_hidden_layers": 2}
SHALLOW = {  # as few layers as show all kinds of them: the interpreter takes a second for each
    "Gemma 2": TWO,
    "Gemma 4 E2B, E4B (text)": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "Phi-3, Phi-4": TWO,
    "gpt-oss": TWO,
    "Llama 4 (text)": {**TWO, "no_rope_layer_interval": 2},
    "SmolLM3": {**TWO, "num_attention_heads": 2, "num_key_value_heads": 1},
}


def some(titles):
    """All families; those that are not named when there is time."""
    slow = pytest.mark.slow
    return [pytest.param(f, id=f.title, marks=[] if f.title in titles else slow) for f in FAMILIES]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    if interpreted.INTERPRETED:  # it takes its time for every program
        monkeypatch.setattr("unspool.kernels.tiling.MOST_SPLITS", 2)
        monkeypatch.setattr("unspool.kernels.tiling.STEADY_SPLITS", 2)
        monkeypatch.setattr("unspool.kernels.attention_join.AT_ONCE", 2)
        monkeypatch.setattr("unspool.runtime.cuda.cuda_graph_executor.SHORTEST", 16)


def folder_of(family, tmp_path) -> Path:
    narrow = {name: 3 for name in ("sliding_window", "attention_chunk_size") if name in family.settings}
    written(family._replace(settings={**family.settings, **narrow, **SHALLOW.get(family.title, {})}), tmp_path)
    assert unfused(open_checkpoint(tmp_path).shape) is None
    return tmp_path


@pytest.mark.parametrize("family", some(FEW))
def test_a_family_in_graphs_computes_what_it_does_without(family, tmp_path):
    graphs(folder_of(family, tmp_path))


def test_recurrent_layers_of_few_bits_compute_what_they_do_without(tmp_path):
    family = next(family for family in FAMILIES if family.kind == "lfm2")
    graphs(folder_of(family, tmp_path), kind="int8")


@pytest.mark.parametrize("family", some(STEADY))
def test_the_bits_of_a_family_in_graphs_depend_on_the_text_alone(family, tmp_path):
    invariant_graphs(folder_of(family, tmp_path))


# ---- routing


@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("normed", [True, False])
def test_the_best_experts_are_chosen_and_the_first_of_equals(softmax, normed):
    scores = torch.randn(7, 11, device=DEVICE).round(decimals=1)  # some are equal
    scores[3] = 0.5
    bias = None if softmax else torch.randn(11, device=DEVICE)
    chosen, weight = route_.choose(scores, 3, bias, softmax, normed, 2.5)
    s = scores.double().softmax(1) if softmax else scores.double().sigmoid()
    best = (s if bias is None else s + bias).sort(dim=1, descending=True, stable=True).indices[:, :3]
    assert chosen.tolist() == best.tolist()
    want = s.gather(1, best)
    want = want / want.sum(1, keepdim=True) if normed else want
    assert torch.allclose(weight.double(), want * 2.5, atol=1e-6)


def test_scores_that_are_no_numbers_choose_experts_that_exist():
    chosen, weight = route_.choose(torch.full((2, 5), float("nan"), device=DEVICE), 3, None, True, True, 1.0)
    assert ((chosen >= 0) & (chosen < 5)).all()
    assert weight.isnan().all()


@pytest.mark.parametrize("tokens", [1, 9, 40])
def test_pairs_stand_in_the_order_of_their_experts(tokens):
    chosen = torch.stack([torch.randperm(6)[:3] for _ in range(tokens)]).int().to(DEVICE)
    order, ends = route_.arrange(chosen, 6)
    assert order.tolist() == chosen.flatten().sort(stable=True).indices.tolist()
    assert ends.tolist() == [int((chosen <= e).sum()) for e in range(6)]


@pytest.mark.parametrize("tokens", [3, 70])
def test_a_token_has_the_same_scores_in_any_company(tokens):
    x, weight = torch.randn(tokens, 50, device=DEVICE), torch.randn(9, 50, device=DEVICE)
    found = route_.scores(x, weight)
    assert torch.allclose(found, x @ weight.T, atol=1e-4)
    assert torch.equal(route_.scores(x[1:2].contiguous(), weight)[0], found[1])


@pytest.mark.parametrize("step", [64, 16])
def test_tokens_are_normed_on_the_way_to_their_scores(step, monkeypatch):
    monkeypatch.setattr(route_, "STEP", step)  # a row at once, or piece by piece
    x, weight, norm = (torch.randn(size, device=DEVICE) for size in ((5, 50), (9, 50), (50,)))
    normed, found = route_.normed_scores(x, norm, 1e-5, weight)
    assert torch.equal(normed, rms(x, norm, 1e-5))
    assert torch.equal(found, route_.scores(normed, weight))


# ---- grouped products


def test_the_heads_of_a_token_are_multiplied_alike_alone_and_beside_others():
    wide, weight = torch.randn(3, 4, 9, device=DEVICE), torch.randn(4, 6, 5, device=DEVICE)
    heads = wide[..., 2:7]  # a part of each, as queries come
    found = per_head(heads, weight)
    assert torch.allclose(found, torch.einsum("nhi,hoi->nho", heads, weight), atol=1e-5)
    assert torch.equal(per_head(heads[1:2], weight)[0], found[1])


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "clamped_swish", "relu2"])
@pytest.mark.parametrize("listed", [True, False])
def test_every_pair_is_multiplied_by_its_own_expert(activation, listed):
    torch.manual_seed(3)
    hidden, dim, count, active, n = 12, 20, 5, 2, 4
    both = hidden if activation == "relu2" else 2 * hidden
    x, first, down = (torch.randn(s, device=DEVICE) for s in ((n, dim), (count, both, dim), (count, dim, hidden)))
    bias = torch.randn(count, both, device=DEVICE)
    chosen = torch.stack([torch.randperm(count)[:active] for _ in range(n)]).int().to(DEVICE)
    order, ends = route_.arrange(chosen, count)
    told = (chosen.view(-1), None) if listed else (ends, order)
    bent = grouped_.grouped(x, first, bias, *told, share=active, activation=activation)
    said = grouped_.grouped(bent, down, None, *told, puts=True)
    want = grouped_.reference(x, chosen, first, bias, down, activation)
    assert torch.allclose(said.view(n, active, dim), want, rtol=1e-3, atol=1e-3)
    weights = torch.rand(n, active, device=DEVICE)
    summed = grouped_.combine(said, weights, x, 2 * x)
    assert torch.allclose(summed, (want * weights[..., None]).sum(1) + 3 * x, rtol=1e-3, atol=1e-3)


def test_factors_multiply_what_enters_and_not_the_bias():
    x, first = torch.ones(1, 16, device=DEVICE), torch.ones(2, 8, 16, device=DEVICE)
    chosen, bias = torch.tensor([1], dtype=torch.int32, device=DEVICE), torch.ones(2, 8, device=DEVICE)
    found = grouped_.grouped(x, first, bias, chosen, None, share=1, factors=torch.tensor([0.5], device=DEVICE))
    assert found.tolist() == [[9.0] * 8]
