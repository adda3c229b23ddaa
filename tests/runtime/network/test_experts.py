"""Mixtures of experts: LLaDA2 and Ling folders against a plain reference, and what their settings must not say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

import unspool
from unspool.api import native_models
from unspool.api.memory_plan import plan, weight_bytes
from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Canvas
from unspool.core.chance import Philox
from unspool.core.errors import BadModel
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Temperature
from unspool.models.shape import DiffusionSpec, Shape
from unspool.models.weights import open_checkpoint
from unspool.recipes.methods import method
from unspool.runtime.cuda.fusible import unfused
from unspool.runtime.engine.contracts import LookRequest, ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.experts import ExpertLoop, Experts, GroupedExperts, crowd_of
from unspool.runtime.network.linear import DenseLinear, GatedMLP, dense, gated_by
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.quantised import Int4Linear, Int8Linear, rounded

MASK = 61
LLADA2 = {
    "architectures": ["LLaDA2MoeModelLM"],
    "model_type": "llada2_moe",
    "vocab_size": 72,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "partial_rotary_factor": 0.5,
    "max_position_embeddings": 128,
    "rope_theta": 600000,
    "rope_scaling": None,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "use_qkv_bias": False,
    "use_bias": False,
    "use_qk_norm": True,
    "norm_head": False,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 1,
    "moe_intermediate_size": 24,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "router_dtype": "fp32",
    "moe_router_enable_expert_bias": True,
    "mask_token_id": MASK,
    "pad_token_id": 60,
    "block_size": 4,
}
LING = {
    **{name: value for name, value in LLADA2.items() if name not in ("mask_token_id", "block_size")},
    "architectures": ["BailingMoeV2ForCausalLM"],
    "model_type": "bailing_moe",
}
ROUTING = ("num_experts_per_tok", "hidden_size", "routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob")
EDGES = {
    "as it is": {},
    "one group": {"n_group": 1, "topk_group": 1},
    "all groups open": {"topk_group": 4},
    "one expert a token": {"num_experts_per_tok": 1},
    "weights as they are": {"norm_topk_prob": False},
    "no shared expert": {"num_shared_experts": 0},
    "two shared experts": {"num_shared_experts": 2},
    "no dense layer": {"first_k_dense_replace": 0},
    "only dense layers": {"first_k_dense_replace": 3},
    "biases": {"use_qkv_bias": True, "use_bias": True},
    "whole heads turned": {"partial_rotary_factor": 1.0},
    "tied": {"tie_word_embeddings": True},
    "no bias of choice": {"moe_router_enable_expert_bias": False},
    "stretched": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
}


class Reference:
    """A folder in the layout of the real ones, and its logits by loops over tokens and experts, in float64."""

    def __init__(self, folder: Path, config: dict[str, object]) -> None:
        self.config, self.folder = config, folder
        torch.manual_seed(5)
        self.tensors: dict[str, torch.Tensor] = {}
        c = config
        dim, width, heads, keys = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        self._add("model.word_embeddings.weight", c["vocab_size"], dim)
        self._add("model.norm.weight", dim)
        if not c["tie_word_embeddings"]:
            self._add("lm_head.weight", c["vocab_size"], dim)
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            self._add(f"{at}.input_layernorm.weight", dim)
            self._add(f"{at}.post_attention_layernorm.weight", dim)
            self._add(f"{at}.attention.query_key_value.weight", (heads + 2 * keys) * width, dim)
            self._add(f"{at}.attention.dense.weight", dim, heads * width)
            self._add(f"{at}.attention.query_layernorm.weight", width)
            self._add(f"{at}.attention.key_layernorm.weight", width)
            if c["use_qkv_bias"]:
                self._add(f"{at}.attention.query_key_value.bias", (heads + 2 * keys) * width)
            if c["use_bias"]:
                self._add(f"{at}.attention.dense.bias", dim)
            if layer < c["first_k_dense_replace"]:
                self._perceptron(f"{at}.mlp", c["intermediate_size"])
                continue
            self._add(f"{at}.mlp.gate.weight", c["num_experts"], dim)
            if c["moe_router_enable_expert_bias"]:
                self.tensors[f"{at}.mlp.gate.expert_bias"] = torch.randn(c["num_experts"])
            for number in range(c["num_experts"]):
                self._perceptron(f"{at}.mlp.experts.{number}", c["moe_intermediate_size"])
            if c["num_shared_experts"]:
                self._perceptron(f"{at}.mlp.shared_experts", c["moe_intermediate_size"] * c["num_shared_experts"])
        self.write()

    def _add(self, name: str, *size: int) -> None:
        self.tensors[name] = torch.rand(size) + 0.5 if len(size) == 1 else torch.randn(size) * 0.4

    def _perceptron(self, at: str, hidden: int) -> None:
        for part in ("gate", "up"):
            self._add(f"{at}.{part}_proj.weight", hidden, self.config["hidden_size"])
        self._add(f"{at}.down_proj.weight", self.config["hidden_size"], hidden)

    def write(self, **changed: object) -> Path:
        """Write the folder, in two shards with an index."""
        self.config = {**self.config, **changed}
        names = sorted(self.tensors)
        shards = {f"model-0000{n + 1}-of-00002.safetensors": names[n::2] for n in range(2)}
        for file, own in shards.items():
            save_file({name: self.tensors[name] for name in own}, self.folder / file)
        index = {"weight_map": {name: file for file, own in shards.items() for name in own}}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (self.folder / "config.json").write_text(json.dumps(self.config))
        return self.folder

    # ---- the arithmetic

    def _w(self, name: str) -> torch.Tensor:
        return self.tensors[name].double()

    def _rms(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]).sqrt() * self._w(name)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        bias = f"{name}.bias"
        return x @ self._w(f"{name}.weight").T + (self._w(bias) if bias in self.tensors else 0)

    def _gated(self, x: torch.Tensor, at: str) -> torch.Tensor:
        gate = self._linear(x, f"{at}.gate_proj")
        return self._linear(gate * torch.sigmoid(gate) * self._linear(x, f"{at}.up_proj"), f"{at}.down_proj")

    def choice(self, s: list[float], bias: list[float]) -> dict[int, float]:
        """The experts of one token and their weights."""
        c = self.config
        lifted = [a + b for a, b in zip(s, bias, strict=True)]
        each = c["num_experts"] // c["n_group"]
        groups = [range(g * each, (g + 1) * each) for g in range(c["n_group"])]
        groups.sort(key=lambda group: -sum(sorted(lifted[e] for e in group)[-2:]))
        allowed = [e for group in groups[: c["topk_group"]] for e in group]
        chosen = sorted(allowed, key=lambda e: -lifted[e])[: c["num_experts_per_tok"]]
        total = sum(s[e] for e in chosen) if c["norm_topk_prob"] and len(chosen) > 1 else 1.0
        return {e: s[e] / total * c["routed_scaling_factor"] for e in chosen}

    def _mixture(self, x: torch.Tensor, at: str) -> torch.Tensor:
        s = torch.sigmoid(self._linear(x, f"{at}.gate")).tolist()
        steered = self.config["moe_router_enable_expert_bias"]
        bias = self._w(f"{at}.gate.expert_bias").tolist() if steered else [0.0] * self.config["num_experts"]
        lines = []
        for token, scores in zip(x, s, strict=True):
            line = torch.zeros_like(token)
            for expert, weight in self.choice(scores, bias).items():
                line = line + weight * self._gated(token, f"{at}.experts.{expert}")
            shared = self.config["num_shared_experts"]
            lines.append(line + (self._gated(token, f"{at}.shared_experts") if shared else 0))
        return torch.stack(lines)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Turn the first part of each head [n, heads, width] by its place."""
        part = int(x.shape[-1] * self.config["partial_rotary_factor"])
        scaling = self.config["rope_scaling"] or {"factor": 1.0}
        frequency = 1.0 / self.config["rope_theta"] ** (torch.arange(0, part, 2) / part) / scaling["factor"]
        angle = torch.arange(len(x))[:, None] * frequency  # in float32, as the models have been trained
        cos, sin = angle.cos()[:, None].double(), angle.sin()[:, None].double()
        one, two, rest = x[..., : part // 2], x[..., part // 2 : part], x[..., part:]
        return torch.cat((one * cos - two * sin, two * cos + one * sin, rest), -1)

    def logits(self, tokens: list[int], sees: torch.Tensor) -> torch.Tensor:
        """The logits [n, vocab] of tokens of which each sees some."""
        c = self.config
        n, heads, keys, width = len(tokens), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        x = self._w("model.word_embeddings.weight")[tokens]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            qkv = self._linear(self._rms(x, f"{at}.input_layernorm.weight"), f"{at}.attention.query_key_value")
            q, k, v = qkv.view(n, -1, width).split((heads, keys, keys), 1)
            q = self._turned(self._rms(q, f"{at}.attention.query_layernorm.weight"))
            k = self._turned(self._rms(k, f"{at}.attention.key_layernorm.weight"))
            gathered = []
            for head in range(heads):
                own = head // (heads // keys)
                score = (q[:, head] @ k[:, own].T / width**0.5).masked_fill(~sees, -torch.inf)
                gathered.append(score.softmax(-1) @ v[:, own])
            x = x + self._linear(torch.cat(gathered, 1), f"{at}.attention.dense")
            h = self._rms(x, f"{at}.post_attention_layernorm.weight")
            dense_here = layer < c["first_k_dense_replace"]
            x = x + (self._gated(h, f"{at}.mlp") if dense_here else self._mixture(h, f"{at}.mlp"))
        head_name = "model.word_embeddings.weight" if c["tie_word_embeddings"] else "lm_head.weight"
        return self._rms(x, "model.norm.weight") @ self._w(head_name).T


def loaded(folder: Path, dtype: torch.dtype = torch.float64):
    return native_models.cached(Llama.load(open_checkpoint(folder), dtype))


def wanted(reference: Reference, canvas: Canvas, block: int = 4) -> torch.Tensor:
    """What the reference says at the holes of a canvas."""
    tokens = [MASK if x == HOLE else x for x in canvas.tokens]
    places = torch.arange(len(tokens)) // block
    want = reference.logits(tokens, places[:, None] >= places)
    want[:, MASK] = -torch.inf
    return want[list(canvas.holes)]


BLANK = Canvas.blank((5, 9, 33, 2, 17), 6)


@pytest.mark.parametrize("edge", EDGES)
def test_a_llada2_folder_has_the_laws_of_a_plain_reference_block_by_block(tmp_path, edge, one_thread):
    reference = Reference(tmp_path, LLADA2 | EDGES[edge])
    model = loaded(tmp_path)
    assert model.filling == DiffusionSpec("blocks", "aligned", MASK, block=4)
    session = model.open(BLANK.tokens[:5])
    for canvas in (BLANK, BLANK.fill({6: 4, 9: 8}), BLANK.fill({i: i for i in range(5, 9)}).within(9, 11)):
        (field,) = model.look([LookRequest(session, Look(canvas))])
        assert torch.allclose(field.scores, wanted(reference, canvas), rtol=0, atol=1e-9)
    assert field.rows == 4 + 3  # two blocks are finished, of which the first was before; the third has three places


def test_a_canvas_within_one_block_is_seen_whole(tmp_path, one_thread):
    reference = Reference(tmp_path, {name: value for name, value in LLADA2.items() if name != "block_size"})
    model = loaded(tmp_path)
    assert model.filling.block == 32
    (field,) = model.look([LookRequest(None, Look(BLANK))])
    assert torch.allclose(field.scores, wanted(reference, BLANK, 32), rtol=0, atol=1e-9)


def test_rows_of_a_batch_are_what_each_is_alone(tmp_path, one_thread):
    reference = Reference(tmp_path, LLADA2)
    model = loaded(tmp_path)
    canvases = [Canvas.blank(tuple(range(n, 3 * n)), 3 + n) for n in (1, 2, 4, 5)]
    for canvas, field in zip(canvases, model.look([LookRequest(None, Look(c)) for c in canvases]), strict=True):
        assert torch.allclose(field.scores, wanted(reference, canvas), rtol=0, atol=1e-9)


def test_texts_filled_beside_each_other_are_those_filled_alone(tmp_path, one_thread):
    Reference(tmp_path, LLADA2)
    prompts = [(5, 9, 33, 2, 17), (1, 2, 3), tuple(range(20, 29))]

    def filled(*texts):
        engine = Engine({"target": loaded(tmp_path)})
        spec = "dynamic:threshold=0.6,steps=4,block=4"
        jobs = [engine.submit(method(spec), text, Philox(3), Temperature(0.7), Stop(most=9)) for text in texts]
        engine.run()
        return [job.result().tokens for job in jobs]

    together = filled(*prompts)
    assert together == [filled(text)[0] for text in prompts]
    assert all(len(text) == 9 and MASK not in text for text in together)


@pytest.mark.parametrize("family", ["bailing_moe", "bailing_moe_v2"])
def test_ling_reads_from_left_to_right(tmp_path, family, one_thread):
    reference = Reference(tmp_path, LING | {"model_type": family, "num_nextn_predict_layers": 1})
    reference.tensors["model.layers.3.eh_proj.weight"] = torch.ones(2, 2)  # a head that looks further ahead
    model = loaded(reference.write())
    text = [5, 9, 33, 2, 17, 40, 8]
    want = reference.logits(text, torch.ones(7, 7).tril().bool())
    sessions = [model.open(text[:size]) for size in (7, 3)]
    for scores, size in zip(model.score([ScoreRequest(s, NOTHING) for s in sessions]), (7, 3), strict=True):
        assert torch.allclose(scores.leaf[0].scores, want[size - 1], rtol=0, atol=1e-9)


# ---- the choice


def mixture_of(folder: Path) -> Experts:
    return next(layer.mlp for layer in Llama.load(open_checkpoint(folder))._stack if isinstance(layer.mlp, Experts))


def test_the_bias_moves_the_choice_and_not_the_weights(tmp_path):
    reference = Reference(tmp_path, LLADA2 | {"n_group": 1, "topk_group": 1})
    experts, x = mixture_of(tmp_path), torch.randn(50, 32)
    plain = torch.sigmoid(x @ reference.tensors["model.layers.1.mlp.gate.weight"].T)
    chosen, weight = experts.route(x)
    assert any(set(a) != set(b) for a, b in zip(chosen.tolist(), plain.topk(3).indices.tolist(), strict=True))
    own = plain.gather(1, chosen)
    assert torch.allclose(weight, 2.5 * own / own.sum(1, keepdim=True), atol=1e-6)
    assert torch.allclose(weight.sum(1), torch.full((50,), 2.5))


def test_only_the_open_groups_are_used_and_the_first_of_equals(tmp_path):
    reference = Reference(tmp_path, LLADA2)
    reference.tensors["model.layers.1.mlp.gate.weight"].zero_()
    # Experts 0 and 1 have the best single one, but the sums of two say groups 1 (2, 3) and 3 (6, 7).
    reference.tensors["model.layers.1.mlp.gate.expert_bias"] = torch.tensor([5.0, -9, 2, 1, 0, 0, 2, 1])
    chosen, weight = mixture_of(reference.write()).route(torch.randn(4, 32))
    assert chosen.tolist() == [[2, 6, 3]] * 4
    assert torch.allclose(weight, torch.full((4, 3), 2.5 / 3))


def test_the_choice_is_that_of_a_router_in_transformers(tmp_path):
    theirs = pytest.importorskip("transformers.models.bailing_hybrid.modeling_bailing_hybrid")
    reference = Reference(tmp_path, LLADA2 | {"num_experts": 32})
    names = {"num_local_experts": 32, **{name: value for name, value in reference.config.items() if name in ROUTING}}
    router = theirs.BailingHybridTopkRouter(SimpleNamespace(**names))
    router.weight.data = reference.tensors["model.layers.1.mlp.gate.weight"]
    router.e_score_correction_bias = reference.tensors["model.layers.1.mlp.gate.expert_bias"]
    x = torch.randn(200, 32)
    chosen, weight = mixture_of(tmp_path).route(x)
    _, their_weight, their_chosen = router(x)
    order, their_order = chosen.argsort(1), their_chosen.argsort(1)
    assert torch.equal(chosen.gather(1, order), their_chosen.gather(1, their_order))
    assert torch.allclose(weight.gather(1, order), their_weight.gather(1, their_order), atol=1e-6)


def test_an_unused_expert_is_not_computed(tmp_path):
    reference = Reference(tmp_path, LLADA2)
    reference.tensors["model.layers.1.mlp.gate.expert_bias"] = torch.tensor([9.0, 9, 9, 0, 0, 0, 0, 0])
    for number in range(3, 8):
        reference.tensors[f"model.layers.1.mlp.experts.{number}.up_proj.weight"].fill_(torch.nan)
    assert mixture_of(reference.write())(torch.randn(6, 32)).isfinite().all()


def test_a_bias_in_the_weights_would_be_seen(tmp_path, monkeypatch, one_thread):
    reference = Reference(tmp_path, LLADA2)
    right = Experts.route

    def wrong(self, x):
        chosen, weight = right(self, x)
        return chosen, weight + self.bias[chosen]

    monkeypatch.setattr(Experts, "route", wrong)
    (field,) = loaded(tmp_path).look([LookRequest(None, Look(BLANK))])
    assert not torch.allclose(field.scores, wanted(reference, BLANK), rtol=0, atol=1e-2)


def test_stacked_experts_say_what_each_says():
    if not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("this torch has no grouped product")
    torch.manual_seed(0)
    experts = [
        GatedMLP(DenseLinear(torch.randn(48, 32), None), DenseLinear(torch.randn(32, 24), None), gated_by("silu"))
        for _ in range(5)
    ]
    sent, ends = torch.randn(20, 32), torch.tensor([3, 3, 10, 20, 20], dtype=torch.int32)
    assert torch.allclose(GroupedExperts.of(experts)(sent, ends), ExpertLoop(experts)(sent, ends), atol=1e-4)
    assert isinstance(crowd_of(experts), ExpertLoop)  # on a CPU one expert after the other is as fast


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_has_the_laws_of_the_reference_and_stacks_what_it_can(tmp_path):
    reference = Reference(tmp_path, LLADA2 | {"hidden_size": 64, "moe_intermediate_size": 32})
    want = wanted(reference, BLANK).softmax(-1)
    for dtype, crowd, most in (
        (torch.float64, ExpertLoop, 1e-6),
        (torch.float32, ExpertLoop, 1e-4),
        (torch.bfloat16, GroupedExperts, 0.1),
    ):
        network = Llama.load(open_checkpoint(tmp_path), dtype, "cuda")
        assert all(isinstance(layer.mlp.crowd, crowd) for layer in network._stack if isinstance(layer.mlp, Experts))
        (field,) = native_models.cached(network).look([LookRequest(None, Look(BLANK))])
        off = float((field.scores.double().cpu().softmax(-1) - want).abs().max())
        print(f"{dtype}: {off:.1e}")
        assert off < most


# ---- what it takes, and what else it runs with


def test_the_plan_counts_every_expert_and_the_router_whole(tmp_path):
    reference = Reference(tmp_path, LLADA2)
    shape = open_checkpoint(tmp_path).shape
    assert shape.parameters == sum(tensor.numel() for tensor in reference.tensors.values())
    routers = 2 * (8 * 32 + 8)  # in two layers, always in float32
    assert weight_bytes(shape, torch.float32) == 4 * shape.parameters
    assert weight_bytes(shape, torch.bfloat16) == 2 * shape.parameters + 2 * routers
    network = Llama.load(open_checkpoint(tmp_path), torch.bfloat16, linear=rounded("int8", dense, 72))
    kept = sum(_bytes(part) for part in _tensors(network))
    assert weight_bytes(shape, torch.bfloat16, "int8") == kept
    assert plan(shape, torch.bfloat16, device="cuda").tables == 0  # no graphs
    real = plan(Shape.from_config(MINI), torch.bfloat16, 4096)
    assert real.note.startswith("llada2_moe, 16,256 M parameters in bfloat16")


MINI = {
    **LLADA2,
    "vocab_size": 157184,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "n_group": 8,
    "topk_group": 4,
    "max_position_embeddings": 32768,
}
"""LLaDA2.0-mini's own sizes."""


def _tensors(found: object) -> list[torch.Tensor]:
    """All distinct tensors of weights that an object holds, a learned mask aside."""
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, Llama):
        ends = found.ends
        return [t for part in (ends.embedding, ends.norm, ends.head, *found._stack) for t in _tensors(part)]
    if isinstance(found, list | tuple):
        return [t for part in found for t in _tensors(part)]
    return [t for part in getattr(found, "__dict__", {}).values() for t in _tensors(part)]


def _bytes(tensor: torch.Tensor) -> int:
    """What it takes; the norms of heads are kept once for each, but stored and counted once."""
    count = 2 * 8 if tensor.shape == (6, 8) else tensor.numel()
    return count * tensor.element_size()


def test_the_command_line_plans_it(tmp_path, here):
    Reference(tmp_path, LLADA2)
    code, out, _ = here("plan", str(tmp_path), "--json", "--device", "cpu", "--dtype", "bf16")
    assert code == 0
    assert json.loads(out)["weights"] == weight_bytes(Shape.from_config(LLADA2), torch.bfloat16)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_few_bits_round_the_experts_and_leave_the_choice_whole(tmp_path, kind, one_thread):
    Reference(tmp_path, LLADA2 | {"hidden_size": 64, "moe_intermediate_size": 64})
    whole, few = (
        Llama.load(open_checkpoint(tmp_path), torch.float32, linear=rounded(which, dense, 72))
        for which in ("none", kind)
    )
    mine, theirs = (next(layer.mlp for layer in net._stack if isinstance(layer.mlp, Experts)) for net in (few, whole))
    assert (
        type(mine.crowd.experts[0].gate_up) is type(mine.shared.down) is {"int8": Int8Linear, "int4": Int4Linear}[kind]
    )
    x = torch.randn(20, 64)
    assert torch.equal(mine.route(x)[0], theirs.route(x)[0])
    a, b = mine(x), theirs(x)
    assert 0 < float((a - b).norm() / b.norm()) < {"int8": 0.02, "int4": 0.2}[kind]


def test_fixed_shapes_give_the_same_bits_alone_and_in_a_batch(tmp_path, monkeypatch, one_thread):
    Reference(tmp_path, LLADA2)
    words = SimpleNamespace(in_blocks=lambda size: words)
    monkeypatch.setattr("unspool.models.folder.SafetensorsCheckpoint.vocabulary", lambda self: words)
    model = unspool.load(str(tmp_path), dtype="fp32", device="cpu", batch_invariant=True).model
    looks = [LookRequest(None, Look(Canvas.blank(tuple(range(n, 3 * n)), 3 + n))) for n in (1, 2, 4, 5, 8, 11)]
    for look, field in zip(looks, model.look(looks), strict=True):
        assert torch.equal(model.look([look])[0].scores, field.scores)


def test_the_kernels_take_experts_but_not_those_of_few_bits(tmp_path):
    Reference(tmp_path, LING)
    shape = open_checkpoint(tmp_path).shape
    assert unfused(shape) is None
    assert "few bits" in unfused(shape, rounded=True)
    assert "fills holes" in unfused(replace(shape, filling=DiffusionSpec("blocks", "aligned", 3, block=4)))
    assert native_models.on_graphs(open_checkpoint(tmp_path), torch.bfloat16, "cuda", None, "int4") is None


# ---- what is refused


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"num_experts": 9}, "9 experts cannot be cut into 4 equal groups"),
        ({"n_group": 8}, "8 groups of one expert"),
        ({"topk_group": 5}, "may use 5 groups of 4"),
        ({"topk_group": 1}, "uses 3 experts, of 2 it may"),
        ({"num_experts": 0}, "'num_experts' is 0; expected a positive whole number"),
        ({"num_experts": 1 << 30}, "expected at most 4096"),
        ({"partial_rotary_factor": 0.1}, "expected a share of each head"),
        ({"num_shared_experts": -1}, "'num_shared_experts' is -1; expected a whole number from 0 on"),
        ({"moe_intermediate_size": None}, "'moe_intermediate_size' is None"),
        ({"score_function": "softmax"}, "score_function is 'softmax'; of the Ling family"),
        ({"norm_head": True}, "norm_head is True"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"hidden_act": "relu"}, "activation is 'relu'"),
        ({"partial_rotary_factor": 0.4}, "3 numbers of a head are turned"),
        ({"partial_rotary_factor": 2.0}, "16 numbers of a head are turned, but it has 8"),
        ({"mask_token_id": 72}, "mask is token 72, but it has only 72"),
        ({"model_type": "bailing_moe", "score_function": None}, "score_function is 'softmax'"),
        ({"model_type": "llada2_moe_veomni"}, "model_type is 'llada2_moe_veomni'"),
        ({"moe_router_enable_expert_bias": False}, "has 2 tensors that a llada2_moe model of these settings does not"),
        ({"num_experts": 4, "n_group": 1, "topk_group": 1}, r"gate.weight \(8, 32\) \(expected \(4, 32\)\)"),
        ({"num_hidden_layers": 2}, r"such as 'model.layers.2"),
        ({"num_experts": 16}, "misses 48 of .* model.layers.1.mlp.experts.8.gate_proj.weight"),
        ({"num_shared_experts": 2}, r"shared_experts.gate_proj.weight \(24, 32\) \(expected \(48, 32\)\)"),
        ({"num_key_value_heads": 4}, r"attention.query_key_value.weight \(64, 32\) \(expected \(96, 32\)\)"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_words(tmp_path, odd, words):
    reference = Reference(tmp_path, LLADA2)
    with pytest.raises(BadModel, match=words):
        open_checkpoint(reference.write(**odd))
