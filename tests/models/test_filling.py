"""Models that fill holes: deltas, the default one, folders of the known families, and what approximate caches cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import unspool
from unspool.api import native_models
from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Canvas
from unspool.core.errors import BadModel
from unspool.core.files import DELTAS, trained
from unspool.core.tree import NOTHING
from unspool.models.address import path
from unspool.models.catalog import CATALOG
from unspool.models.delta import base_of
from unspool.models.shape import DiffusionSpec
from unspool.models.weights import open_checkpoint
from unspool.runtime.diffusion.block_diffusion import BlockDiffusionModel
from unspool.runtime.engine.contracts import LookRequest, ScoreRequest
from unspool.runtime.network.llama import Llama

TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}
DOWN = "model.layers.1.mlp.down_proj.weight"


def folder_of(folder: Path, **settings: object) -> Path:
    """A folder with random weights under the names of transformers."""
    config = {"model_type": "llama", **TINY, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    shape = unspool.models.shape.Shape.from_config(config)
    torch.manual_seed(0)
    save_file({name: torch.randn(size) for name, size in shape.tensors().items()}, folder / "model.safetensors")
    return folder


def delta(folder: Path, changed: dict[str, torch.Tensor] | None = None, **metadata: str) -> Path:
    torch.manual_seed(1)
    tensors = {
        f"{DOWN}.a": torch.randint(-127, 128, (32, 3), dtype=torch.int8),
        f"{DOWN}.b": torch.randint(-127, 128, (64, 3), dtype=torch.int8),
        f"{DOWN}.a_scale": torch.rand(3).half(),
        f"{DOWN}.b_scale": torch.rand(3).half(),
        "model.norm.weight": torch.full((32,), 2.0),
        "model.mask": torch.full((32,), 3.0),
    }
    file = folder / "changed.safetensors"
    told = {"base": str(folder), "layout": "block", "reading": "shifted", "mask": "16"}
    save_file({k: v for k, v in (tensors | (changed or {})).items() if len(v)}, file, metadata=told | metadata)
    return file


def test_a_delta_changes_what_it_names_and_leaves_the_rest(tmp_path):
    base = open_checkpoint(folder_of(tmp_path))
    file = delta(tmp_path)
    model = open_checkpoint(file)
    assert model.shape.filling == DiffusionSpec("block", "shifted", 16, learned=True)
    assert model.names() == base.names() | {"model.mask"}
    stored = unspool.models.folder.safe_open(file, framework="pt")
    a, b, a_scale, b_scale = (stored.get_tensor(f"{DOWN}.{part}").double() for part in ("a", "b", "a_scale", "b_scale"))
    want = base.tensor(DOWN).double() + (a * a_scale) @ (b * b_scale).T
    assert float((model.tensor(DOWN, torch.float64) - want).abs().max()) < 1e-9
    assert torch.allclose(model.tensor(DOWN), want.float(), rtol=1e-6, atol=1e-2)
    assert torch.equal(model.tensor("model.norm.weight"), torch.full((32,), 2.0))
    assert torch.equal(model.tensor("model.embed_tokens.weight"), base.tensor("model.embed_tokens.weight"))
    assert model.bytes > base.bytes


@pytest.mark.parametrize(
    ("changed", "told", "words"),
    [
        ({f"{DOWN}.b_scale": torch.empty(0)}, {}, "lacks"),
        ({"model.layers.7.mlp.up_proj.weight.a": torch.ones(1)}, {}, "layers.7"),
        ({"model.norm.weight": torch.ones(5)}, {}, r"has shape \(5,\); expected \(32,\)"),
        ({f"{DOWN}.a": torch.ones(31, 3)}, {}, "has shape"),
        ({}, {"layout": "round"}, "expected one of block, blocks, full, causal"),
        ({}, {"mask": "x"}, "the number of a"),
    ],
)
def test_a_delta_of_another_model_is_refused_with_words(tmp_path, changed, told, words):
    folder_of(tmp_path)
    with pytest.raises(BadModel, match=words):
        open_checkpoint(delta(tmp_path, changed, **told))


def test_every_delta_of_the_catalogue_names_the_model_it_is_kept_with(smollm2_path):
    for listing in CATALOG.values():
        if listing.delta is not None:
            file = trained(DELTAS, listing.delta)
            assert base_of(file) == listing.folder != listing.name
            assert file.stat().st_size <= 40_000_000  # it travels in a wheel
            base = CATALOG[listing.folder]
            assert (listing.file, listing.sha256, listing.wheels) == (base.file, base.sha256, base.wheels)
    found = open_checkpoint(path("smollm2-diffusion"))
    assert found.shape.filling == DiffusionSpec("block", "shifted", 16, learned=True)
    assert found.bytes > smollm2_path.stat().st_size


# ---- folders of the known families, by a reference of their own

QWEN = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "before": "model.layers.{}.input_layernorm.weight",
    "after": "model.layers.{}.post_attention_layernorm.weight",
    **{part: f"model.layers.{{}}.self_attn.{part}_proj.weight" for part in "qkvo"},
    **{part: f"model.layers.{{}}.mlp.{part}_proj.weight" for part in ("gate", "up", "down")},
}
LLADA = {
    "embedding": "model.transformer.wte.weight",
    "norm": "model.transformer.ln_f.weight",
    "head": "model.transformer.ff_out.weight",
    "before": "model.transformer.blocks.{}.attn_norm.weight",
    "after": "model.transformer.blocks.{}.ff_norm.weight",
    **{part: f"model.transformer.blocks.{{}}.{part}_proj.weight" for part in "qkv"},
    "o": "model.transformer.blocks.{}.attn_out.weight",
    "gate": "model.transformer.blocks.{}.ff_proj.weight",
    "up": "model.transformer.blocks.{}.up_proj.weight",
    "down": "model.transformer.blocks.{}.ff_out.weight",
}
MASK, HEADS, KEYS, WIDTH = 61, 4, 2, 8
FAMILIES = {
    "llada": {
        "model_type": "llada",
        "d_model": 32,
        "n_layers": 2,
        "n_heads": HEADS,
        "n_kv_heads": KEYS,
        "mlp_hidden_size": 48,
        "embedding_size": 64,
        "vocab_size": 62,
        "max_sequence_length": 128,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "weight_tying": False,
        "activation_type": "silu",
        "block_type": "llama",
        "layer_norm_type": "rms",
        "mask_token_id": MASK,
    },
    "Dream": {"model_type": "Dream", **TINY, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "mask_token_id": MASK},
    "sdar": {
        "model_type": "sdar",
        **TINY,
        "head_dim": WIDTH,
        "rope_theta": 1e6,
        "mask_token_id": MASK,
        "block_size": 4,
    },
    "wedlm": {"model_type": "wedlm", **TINY, "head_dim": WIDTH, "rope_theta": 1e6, "mask_token_id": MASK},
    "wedlm of qwen2": {"model_type": "wedlm", **TINY, "rope_theta": 1e6, "mask_token_id": MASK, "qk_norm": False},
}


class Family:
    """A folder with random weights, and the logits of its model for tokens of which each sees some."""

    def __init__(self, folder: Path, name: str) -> None:
        config = FAMILIES[name]
        names, wide = (LLADA, 48) if name == "llada" else (QWEN, 64)
        sizes = {"q": (32, 32), "k": (16, 32), "v": (16, 32), "o": (32, 32), "before": (32,), "after": (32,)}
        sizes |= {"gate": (wide, 32), "up": (wide, 32), "down": (32, wide)}
        torch.manual_seed(3)
        self.tensors = {names[part]: torch.randn(size) for part, size in (("embedding", (64, 32)), ("head", (64, 32)))}
        self.tensors[names["norm"]] = torch.rand(32)
        for layer in range(2):
            for part, size in sizes.items():
                self.tensors[names[part].format(layer)] = torch.randn(size) * (0.3 if len(size) > 1 else 1)
            for part in "qkv" if name in ("Dream", "wedlm of qwen2") else "":
                self.tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = torch.randn(sizes[part][:1])
            for part in "qk" if name in ("sdar", "wedlm") else "":
                self.tensors[f"model.layers.{layer}.self_attn.{part}_norm.weight"] = torch.rand(WIDTH)
        save_file(self.tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        self.names, self.theta = names, config["rope_theta"]
        self.eps = config.get("rms_norm_eps", 1e-6)

    def _w(self, part: str, layer: int = 0, ending: str = "weight") -> torch.Tensor | None:
        name = self.names[part].format(layer).removesuffix("weight") + ending
        return self.tensors[name].double() if name in self.tensors else None

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * weight

    def _heads(self, x: torch.Tensor, part: str, layer: int) -> torch.Tensor:
        """Queries, keys or values [heads, n, width], turned by their places."""
        bias = self._w(part, layer, "bias")
        y = x @ self._w(part, layer).T + (0 if bias is None else bias)
        y = y.view(len(x), -1, WIDTH)
        if part == "v":
            return y.transpose(0, 1)
        norm = self.tensors.get(f"model.layers.{layer}.self_attn.{part}_norm.weight")
        y = y if norm is None else self._rms(y, norm.double())
        angle = torch.arange(len(x))[:, None] * self.theta ** (-torch.arange(0, WIDTH, 2).double() / WIDTH)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        one, two = y.chunk(2, -1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), -1).transpose(0, 1)

    def logits(self, tokens: list[int], sees: torch.Tensor) -> torch.Tensor:
        x = self._w("embedding")[tokens]
        for layer in range(2):
            h = self._rms(x, self._w("before", layer))
            q, k, v = (self._heads(h, part, layer) for part in "qkv")
            k, v = k.repeat_interleave(HEADS // KEYS, 0), v.repeat_interleave(HEADS // KEYS, 0)
            weights = (q @ k.transpose(1, 2) / WIDTH**0.5).masked_fill(~sees, -torch.inf).softmax(-1)
            x = x + (weights @ v).transpose(0, 1).reshape(len(tokens), -1) @ self._w("o", layer).T
            h = self._rms(x, self._w("after", layer))
            gate = torch.nn.functional.silu(h @ self._w("gate", layer).T)
            x = x + (gate * (h @ self._w("up", layer).T)) @ self._w("down", layer).T
        return self._rms(x, self._w("norm")) @ self._w("head").T


def loaded(folder: Path):
    return native_models.cached(Llama.load(open_checkpoint(folder), torch.float64))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_a_family_that_fills_holes_has_the_laws_of_a_plain_reference(tmp_path, name, one_thread):
    family, model = Family(tmp_path, name), loaded(tmp_path)
    blank = Canvas.blank((5, 9, 33, 2, 17), 6)
    session = model.open(blank.tokens[:5])
    for canvas in (blank, blank.fill({6: 4, 9: 8}), blank.fill({i: i for i in range(5, 9)}).within(9, 11)):
        tokens = [MASK if x == HOLE else x for x in canvas.tokens]
        places = torch.arange(len(tokens))
        sees = torch.ones(11, 11, dtype=torch.bool)
        if name == "sdar":
            sees = places[:, None] // 4 >= places // 4
        if name.startswith("wedlm"):  # what is filled comes first, and everything sees what came before it
            came = torch.tensor([11 + i if canvas.is_hole(i) else i for i in range(11)])
            sees = came[:, None] >= came
        want = family.logits(tokens, sees)
        want[:, MASK] = -torch.inf
        (field,) = model.look([LookRequest(session, Look(canvas))])
        at = torch.tensor(canvas.holes) - (1 if name == "Dream" else 0)
        assert torch.allclose(field.scores, want[at], atol=1e-6)
        assert max(law[MASK] for law in field.values()) == 0
    computed = {"sdar": 4 + 3, "wedlm": 4 + 2, "wedlm of qwen2": 4 + 2}  # what was filled last, and what is open
    assert field.rows == computed.get(name, 11)


@pytest.mark.parametrize(
    ("name", "odd", "words"),
    [
        ("llada", {"include_bias": True}, "include_bias is True"),
        ("llada", {"num_experts": 8}, "model_type is 'llada'"),
        ("Dream", {"mask_token_id": 64}, "mask is token 64, but it has only 64"),
        ("sdar", {"block_size": 0}, "'block_size' is 0; expected a positive whole number"),
        ("wedlm", {"qk_norm": 3}, "'qk_norm' is 3; expected true or false"),
    ],
)
def test_fillers_that_cannot_be_run_are_refused_with_words(tmp_path, name, odd, words):
    Family(tmp_path, name)
    (tmp_path / "config.json").write_text(json.dumps({**FAMILIES[name], **odd}))
    with pytest.raises(BadModel, match=words):
        open_checkpoint(tmp_path)


# ---- the default model's

TEXT = (
    "The sea is a vast and mysterious realm that has been a source of wonder and awe for centuries. It is a place "
    "where the boundaries between reality and the unknown are constantly blurred."
)


@pytest.fixture(scope="module")
def diffusion(smollm2_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in one_thread
    yield unspool.load("smollm2-diffusion", dtype="fp32", device="cpu")
    torch.set_num_threads(threads)


def test_the_default_filler_fills_every_other_place_and_reads_on_as_well(diffusion, record_property):
    model, block = diffusion.model, 16
    assert isinstance(model, BlockDiffusionModel)
    prompt = diffusion.encode([{"role": "user", "content": "Write two sentences about the sea."}])
    text = (*prompt, *diffusion.vocabulary.encode(TEXT))
    starts = range(len(prompt), len(text) - block + 1, block)
    looks = []
    for low in starts:
        known = {i: text[i] for i in range(low, low + block) if i % 2}
        looks.append(Look(Canvas.blank(text[:low], block).fill(known)))
    session = model.open(prompt)
    one_by_one = [model.look([LookRequest(session, look)])[0] for look in looks]
    session.close()
    model.forget()
    assert model.slots.in_use == 0
    together = model.look([LookRequest(None, look) for look in looks])
    assert model.slots.in_use == 0
    laws = {i: law for field in one_by_one for i, law in field.items()}
    apart = max(float((field[i].scores - laws[i].scores).nan_to_num().abs().max()) for field in together for i in field)
    record_property("largest difference of a logit, cached blocks or none", apart)
    print(f"largest difference of a logit, cached blocks or none: {apart:.1e}")
    assert apart < 2e-3
    right = [law.top(1)[0] == text[i] for i, law in laws.items()]
    assert sum(right) / len(right) > 0.5  # without the delta a tenth of them
    assert max(law[16] for law in laws.values()) == 0.0
    (scores,) = model.score([ScoreRequest(model.open(text[: starts[1]]), NOTHING)])
    assert scores.leaf[0][16] == 0.0
    assert scores.leaf[0].logprob(text[starts[1]]) > -3


def test_the_default_filler_writes_by_looks_and_frees_what_is_cancelled(diffusion):
    model = diffusion.model
    model.forget()
    held = model.slots.in_use
    prompt = diffusion.encode("The sun rises in the")
    stream = diffusion.stream(prompt, unspool.Settings(max_tokens=16), "confident:threshold=0.5,block=8")
    for _ in range(3):
        next(stream)
    stream.close()
    model.forget()
    assert model.slots.in_use == held
    done = diffusion.generate(prompt, unspool.Settings(max_tokens=8), "confident:threshold=0.2,block=8")
    assert 0 < done.trace.forwards["target"] < len(done.tokens) == 8
    assert done.trace.rows["target"] == len(prompt) + 8 * done.trace.forwards["target"]
