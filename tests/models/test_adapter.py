"""LoRA adapters: a model with one added is the model that transformers has with the same sums in its weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from families import FAMILIES, LENGTH, near, run, text, written
from littlemodel import little_model, loaded
from safetensors.torch import load_file, save_file

from unspool import load
from unspool.core.errors import BadModel, BadRequest
from unspool.models.adapter import AdaptedCheckpoint
from unspool.models.weights import open_checkpoint
from unspool.runtime.network.llama import Llama

TOLD = {"peft_type": "LORA", "r": 3, "lora_alpha": 12, "bias": "none", "task_type": "CAUSAL_LM"}


def saved(folder: Path, sizes: dict[str, tuple[int, int]], rank: int = 3, **told: object) -> dict[str, torch.Tensor]:
    """Write an adapter as PEFT does for matrices of these sizes; what each of them gains, without its scale."""
    folder.mkdir(parents=True, exist_ok=True)
    dice, tensors, gains = torch.Generator().manual_seed(5), {}, {}
    for module, (rows, columns) in sizes.items():
        a, b = torch.randn(rank, columns, generator=dice) * 0.2, torch.randn(rows, rank, generator=dice) * 0.2
        gains[module] = b @ a
        tensors |= {f"base_model.model.{module}.lora_{part}.weight": x for part, x in (("A", a), ("B", b))}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({**TOLD, "r": rank, **told}))
    return gains


@pytest.mark.parametrize(
    ("kind", "told", "scale"),
    [
        ("Llama", {}, 4.0),
        ("Llama", {"use_rslora": True}, 12 / math.sqrt(3)),
        ("Llama", {"alpha_pattern": {"q_proj": 6, "^model.layers.0.mlp.up_proj": 3}}, None),
        ("Phi-3, Phi-4", {"target_modules": ["qkv_proj", "o_proj"]}, 4.0),
    ],
)
def test_logits_are_those_of_the_sums(tmp_path, kind, told, scale):
    pytest.importorskip("transformers")
    kind = next(each for each in FAMILIES if each.title.startswith(kind.split(",")[0]))
    model = written(kind, tmp_path / "base")
    wanted = ("q_proj", "o_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj", "lm_head")
    linear = {name: m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    linear = {name: m for name, m in linear.items() if name.split(".")[-1] in wanted}
    gains = saved(tmp_path / "lora", {name: tuple(m.weight.shape) for name, m in linear.items()}, **told)
    before = model(text(0)[None]).logits[0].detach()
    for name, module in linear.items():
        own = scale or {"q_proj": 2.0}.get(name.split(".")[-1], 1.0 if name == "model.layers.0.mlp.up_proj" else 4.0)
        module.weight.data += own * gains[name]
    with torch.no_grad():
        want = model(text(0)[None]).logits[0]
    assert float((want - before).abs().max()) > 0.5
    adapted = AdaptedCheckpoint(open_checkpoint(tmp_path / "base"), tmp_path / "lora")
    near(run(Llama.load(adapted), text(0), list(range(LENGTH))), want, 2e-4)
    assert f"{adapted}".endswith("changed by lora (LoRA, rank 3)")


SIZES = {"model.layers.0.self_attn.q_proj": (32, 32), "model.layers.1.mlp.down_proj": (32, 64)}


@pytest.fixture
def base(tmp_path):
    return little_model(tmp_path / "base")


def test_a_model_is_loaded_with_it_by_python_and_the_command_line(base, tmp_path, here):
    saved(tmp_path / "lora", SIZES, lora_alpha=96)
    with loaded(base) as plain, loaded(base, adapter=tmp_path / "lora") as adapted:
        one, other = (lm.generate("abc", max_tokens=24, raw=True) for lm in (plain, adapted))
        assert one.tokens != other.tokens
        assert adapted.generate("abc", max_tokens=24, raw=True, method="lookup").tokens == other.tokens
        assert "2 matrices changed by lora" in repr(adapted)
        assert adapted.key != plain.key
    code, out, _ = here("run", "abc", "--raw", "-m", str(base), "--adapter", str(tmp_path / "lora"), "-q",
                        "--max-tokens", "24")  # fmt: skip
    assert (code, out) == (0, other.text)


def test_a_draft_of_the_model_itself_has_it_too(base, tmp_path):
    saved(tmp_path / "lora", SIZES, lora_alpha=96)
    with loaded(base, adapter=tmp_path / "lora", draft="self:bf16") as lm:
        assert "changed by lora" in repr(lm.draft)


@pytest.mark.parametrize(
    ("sizes", "told", "why"),
    [
        ({"model.layers.0.self_attn.c_attn": (32, 32)}, {}, "changes 'model.layers.0.self_attn.c_attn', which the"),
        ({"model.layers.7.self_attn.q_proj": (32, 32)}, {}, "model.layers.7.self_attn.q_proj"),
        ({"model.embed_tokens": (258, 32)}, {}, "model.embed_tokens"),
        ({"lm_head": (258, 32)}, {}, "lm_head"),  # it is the embedding's
        ({"model.layers.0.self_attn.q_proj": (64, 32)}, {}, r"lora_B \[64, 3\] for .* is \[32, 32\] here"),
        ({"model.layers.0.self_attn.k_proj": (16, 48)}, {}, r"lora_A \[3, 48\]"),
        (SIZES, {"r": 4}, "has rank 4, and its factors have 3"),
        (SIZES, {"rank_pattern": {"q_proj": 2}}, "has rank 2, and its factors have 3"),
        (SIZES, {"rank_pattern": {"(a+)+b": 3}}, "rank_pattern.*expected names of modules"),
        (SIZES, {"alpha_pattern": {f"m{n}": 3 for n in range(1025)}}, "alpha_pattern.*at most 1024"),
        (SIZES, {"lora_alpha": 1e9}, "lora_alpha"),
        (SIZES, {"lora_alpha": "many"}, "lora_alpha"),
        (SIZES, {"lora_alpha": float("nan")}, "lora_alpha"),
        (SIZES, {"r": 0}, "'r' is 0"),
        (SIZES, {"use_dora": True}, "has use_dora"),
        (SIZES, {"modules_to_save": ["lm_head"]}, "has modules_to_save"),
        (SIZES, {"bias": "all"}, "changes biases"),
        (SIZES, {"peft_type": "IA3"}, "of the kind 'IA3'"),
        (SIZES, {"target_modules": ["q_proj", "down_proj", "v_proj"]}, "says that it changes 'v_proj'"),
        ({}, {}, "changes nothing"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(base, tmp_path, sizes, told, why):
    saved(tmp_path / "lora", sizes, **told)
    with pytest.raises(BadModel, match=why):
        load(base, adapter=tmp_path / "lora")


def test_a_rank_above_the_matrix_is_another_models(base, tmp_path):
    saved(tmp_path / "lora", {"model.layers.0.self_attn.k_proj": (16, 32)}, rank=17)
    with pytest.raises(BadModel, match="another model's"):
        load(base, adapter=tmp_path / "lora")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("Granite 3 MoE", "model.layers.0.block_sparse_moe.input_linear"),
        ("GLM-4 0414", "model.layers.0.self_attn.q_proj"),
    ],
)
def test_experts_and_other_orders_of_rows_are_refused(tmp_path, name, module):
    pytest.importorskip("transformers")
    kind = next(each for each in FAMILIES if each.title == name)
    written(kind, tmp_path / "base")
    saved(tmp_path / "lora", {module: (32, 32)})
    with pytest.raises(BadModel, match="order"):
        AdaptedCheckpoint(open_checkpoint(tmp_path / "base"), tmp_path / "lora")


def damaged(folder: Path, how: str) -> None:
    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    if how == "cut":
        weights.write_bytes(weights.read_bytes()[:100])
    elif how == "huge settings":
        config.write_text('{"peft_type": "' + "A" * (1 << 21) + '"}')
    elif how == "no settings":
        config.unlink()
    elif how == "old":
        weights.rename(folder / "adapter_model.bin")
    elif how == "a list":
        config.write_text("[]")
    else:
        parts = {f"base_model.model.{m}.lora_{p}.weight": torch.ones(3, 32) for m in SIZES for p in "AB"}
        name = next(iter(parts))
        if how == "half":
            del parts[name]
        elif how == "whole":
            parts["base_model.model.model.norm.weight"] = torch.ones(32)
        elif how == "integers":
            parts[name] = torch.ones(3, 32, dtype=torch.int8)
        elif how == "vector":
            parts[name] = torch.ones(3)
        save_file(parts, weights)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("cut", "not a complete safetensors file"),
        ("huge settings", "larger than settings are"),
        ("no settings", "holds no adapter_config.json"),
        ("old", "save it as safetensors"),
        ("a list", "settings by name"),
        ("half", "has lora_B of .* alone"),
        ("whole", "expected factors alone"),
        ("integers", "I8.*expected a matrix of floats"),
        ("vector", "expected a matrix of floats"),
    ],
)
def test_damaged_files_are_refused(base, tmp_path, how, why):
    saved(tmp_path / "lora", SIZES)
    damaged(tmp_path / "lora", how)
    with pytest.raises(BadModel, match=why):
        load(base, adapter=tmp_path / "lora")


def test_numbers_that_are_not_finite_are_refused(base, tmp_path):
    saved(tmp_path / "lora", SIZES)
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    held = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    held[f"{name}.lora_A.weight"][0, 0] = float("inf")
    save_file(held, tmp_path / "lora" / "adapter_model.safetensors")
    with pytest.raises(BadModel, match="not finite"):
        load(base, adapter=tmp_path / "lora")


@pytest.mark.parametrize("more", [{"runtime": "transformers"}, {"runtime": "llama.cpp"}, {"ranks": 2}])
def test_other_runtimes_do_not_take_one(base, tmp_path, more):
    with pytest.raises(BadRequest, match="needs the native runtime and one rank"):
        load(base, adapter=tmp_path / "lora", **more)
    with pytest.raises(BadRequest, match="adapter is 5"):
        load(base, adapter=5)
    with pytest.raises(BadRequest, match="cannot stay packed"):
        load(base, adapter=tmp_path / "lora", quantization="packed")
