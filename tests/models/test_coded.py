"""Quantised safetensors mean the numbers that their formats define, written once more here; damage is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from unspool.core.errors import BadModel, NotNative
from unspool.models.folder import SafetensorsCheckpoint

DIM, HIDDEN, VOCAB = 64, 32, 16
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": VOCAB,
    "tie_word_embeddings": True,
}
OSS = CONFIG | {
    "model_type": "gpt_oss",
    "head_dim": 16,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "layer_types": ["full_attention"],
}
Parts = dict[str, Tensor]
Encoder = Callable[[str, int, int, torch.Generator], tuple[Parts, Tensor]]


def whole(low: int, high: int, size: tuple[int, ...], dice: torch.Generator) -> Tensor:
    return torch.randint(low, high, size, generator=dice)


def words(codes: Tensor, bits: int) -> Tensor:
    """Numbers [n, k] packed along k into 32-bit words, the lowest first, one by one."""
    rows = []
    for line in codes.tolist():
        packed = []
        for start in range(0, len(line), 32 // bits):
            word = 0
            for place, code in enumerate(line[start : start + 32 // bits]):
                word |= code << (bits * place)
            packed.append(word - (1 << 32) if word >> 31 else word)
        rows.append(packed)
    return torch.tensor(rows, dtype=torch.int32)


def fp8(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    codes = torch.randn(rows, columns, generator=dice).to(torch.float8_e4m3fn)
    scale = torch.rand(-(-rows // 24), -(-columns // 48), generator=dice) + 0.5
    truth = torch.stack(
        [torch.stack([codes[i, j].float() * scale[i // 24, j // 48] for j in range(columns)]) for i in range(rows)]
    )
    return {f"{name}.weight": codes, f"{name}.weight_scale_inv": scale}, truth


def packed_int4(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    codes = whole(0, 16, (rows, columns), dice)
    zeros = whole(0, 16, (rows, columns // 16), dice)
    scale = (torch.rand(rows, columns // 16, generator=dice) + 0.5).half()
    truth = (codes - zeros.repeat_interleave(16, 1)).float() * scale.float().repeat_interleave(16, 1)
    parts = {"weight_packed": words(codes, 4), "weight_zero_point": words(zeros.T, 4).T.contiguous()}
    parts |= {"weight_scale": scale, "weight_shape": torch.tensor([rows, columns])}
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}, truth


def plain_int8(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    codes, scale = whole(-128, 128, (rows, columns), dice).to(torch.int8), torch.rand(rows, 1, generator=dice)
    return {f"{name}.weight": codes, f"{name}.weight_scale": scale}, codes.float() * scale


def float_quantised(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    codes, scale = torch.randn(rows, columns, generator=dice).to(torch.float8_e4m3fn), torch.rand(1, generator=dice)
    return {f"{name}.weight": codes, f"{name}.weight_scale": scale}, codes.float() * scale


def in_blocks(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    """QuantBlocks of 24 x 48: those at the edges are cut, and two rows of them do not halve 32 rows."""
    parts, truth = fp8(name, rows, columns, dice)
    return {f"{name}.weight": parts[f"{name}.weight"], f"{name}.weight_scale": parts[f"{name}.weight_scale_inv"]}, truth


def uneven_gptq(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    """Groups of 24 columns, the last one cut, and no list of them."""
    count = -(-columns // 24)
    codes, zeros = whole(0, 16, (columns, rows), dice), whole(0, 15, (count, rows), dice)
    scale, group = torch.rand(count, rows, generator=dice) + 0.5, torch.arange(columns) // 24
    truth = ((codes - zeros[group] - 1).float() * scale[group]).T
    parts = {"qweight": words(codes.T, 4).T.contiguous(), "qzeros": words(zeros, 4), "scales": scale}
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}, truth


def awq(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    codes, zeros = whole(0, 16, (columns, rows), dice), whole(0, 16, (columns // 16, rows), dice)
    scale = (torch.rand(columns // 16, rows, generator=dice) + 0.5).half()
    truth = ((codes - zeros.repeat_interleave(16, 0)).float() * scale.float().repeat_interleave(16, 0)).T
    woven = [0, 2, 4, 6, 1, 3, 5, 7]  # the column that each place of a word holds

    def weave(found: Tensor) -> Tensor:
        return words(found.view(len(found), -1, 8)[:, :, woven].flatten(1), 4)

    return {f"{name}.qweight": weave(codes), f"{name}.qzeros": weave(zeros), f"{name}.scales": scale}, truth


def gptq(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    groups = columns // 16
    codes, zeros = whole(0, 16, (columns, rows), dice), whole(0, 15, (groups, rows), dice)
    scale = (torch.rand(groups, rows, generator=dice) + 0.5).half()
    order = torch.randint(0, groups, (columns,), generator=dice).int()
    truth = torch.stack([(codes[c] - zeros[order[c]] - 1).float() * scale[order[c]].float() for c in range(columns)]).T
    parts = {"qweight": words(codes.T, 4).T.contiguous(), "qzeros": words(zeros, 4), "scales": scale, "g_idx": order}
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}, truth


def gptq8(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    """The second version, in eight bits, without an order of columns."""
    codes, zeros = whole(0, 256, (columns, rows), dice), whole(0, 256, (columns // 16, rows), dice)
    scale = torch.rand(columns // 16, rows, generator=dice) + 0.5
    truth = ((codes - zeros.repeat_interleave(16, 0)).float() * scale.repeat_interleave(16, 0)).T
    parts = {"qweight": words(codes.T, 8).T.contiguous(), "qzeros": words(zeros, 8), "scales": scale}
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}, truth


def packed_int8(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    """Around zero, with a scale for each row."""
    codes, scale = whole(0, 256, (rows, columns), dice), torch.rand(rows, 1, generator=dice)
    return {f"{name}.weight_packed": words(codes, 8), f"{name}.weight_scale": scale}, (codes - 128).float() * scale


def nf4(name: str, rows: int, columns: int, dice: torch.Generator) -> tuple[Parts, Tensor]:
    count, block = rows * columns, 64
    blocks = -(-count // block)
    codes, table = whole(0, 16, (count,), dice), torch.randn(16, generator=dice).sort().values
    inner, outer_table = whole(0, 256, (blocks,), dice).byte(), torch.rand(256, generator=dice)
    outer = torch.rand(-(-blocks // 256), generator=dice) + 0.5
    scale = outer_table[inner.long()] * outer.repeat_interleave(256)[:blocks] + 0.25
    truth = (table[codes] * scale.repeat_interleave(block)[:count]).view(rows, columns)
    told = {"shape": [rows, columns], "blocksize": block, "nested_blocksize": 256, "nested_offset": 0.25}
    at = f"{name}.weight"
    return {
        at: (codes[::2] << 4 | codes[1::2]).byte()[:, None],
        f"{at}.absmax": inner,
        f"{at}.quant_map": table,
        f"{at}.nested_absmax": outer,
        f"{at}.nested_quant_map": outer_table,
        f"{at}.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8),
    }, truth


def group(**weights: object) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


KINDS: dict[str, tuple[Encoder, dict[str, Any]]] = {
    "fp8 in blocks": (fp8, {"quant_method": "fp8", "weight_block_size": [24, 48]}),
    "packed int4": (packed_int4, group(num_bits=4, type="int", strategy="group", group_size=16)),
    "plain int8": (plain_int8, group(num_bits=8, type="int", strategy="channel")),
    "float-quantised": (float_quantised, group(num_bits=8, type="float", strategy="tensor")),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True}),
    "gptq_v2 in 8 bits": (gptq8, {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"}),
    "gptq in cut groups": (uneven_gptq, {"quant_method": "gptq", "bits": 4, "group_size": 24}),
    "float-quantised in blocks": (
        in_blocks,
        group(num_bits=8, type="float", strategy="block", block_structure=[24, 48]),
    ),
    "packed int8": (packed_int8, group(num_bits=8, type="int", strategy="channel")),
    "bitsandbytes nf4": (nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
}


def folder_of(kind: str) -> tuple[dict[str, Any], Parts, Parts]:
    """The config.json of a coded folder, what its file holds, and what its matrices mean."""
    encode, told = KINDS[kind]
    dice, held, truth = torch.Generator().manual_seed(3), dict[str, Tensor](), dict[str, Tensor]()
    at = "model.layers.0."
    for name, rows, columns in (
        ("self_attn.q_proj", DIM, DIM),
        ("self_attn.k_proj", DIM // 2, DIM),
        ("self_attn.v_proj", DIM // 2, DIM),
        ("self_attn.o_proj", DIM, DIM),
        ("mlp.gate_proj", HIDDEN, DIM),
        ("mlp.up_proj", HIDDEN, DIM),
        ("mlp.down_proj", DIM, HIDDEN),
    ):
        parts, truth[f"{at}{name}.weight"] = encode(at + name, rows, columns, dice)
        held |= parts
    for name, size in (("model.embed_tokens.weight", (VOCAB, DIM)), ("model.norm.weight", (DIM,))):
        held[name] = torch.randn(size, generator=dice)
    held |= {f"{at}{name}.weight": torch.ones(DIM) for name in ("input_layernorm", "post_attention_layernorm")}
    return {**CONFIG, "quantization_config": told}, held, truth


def opened(folder: Path, config: dict[str, Any], held: Parts) -> SafetensorsCheckpoint:
    save_file({name: tensor.contiguous() for name, tensor in held.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_mean_what_the_format_says(kind: str, tmp_path: Path) -> None:
    config, held, truth = folder_of(kind)
    checkpoint = opened(tmp_path, config, held)
    for name, expected in truth.items():
        torch.testing.assert_close(checkpoint.tensor(name), expected, rtol=1e-6, atol=0)
    assert torch.equal(checkpoint.tensor("model.embed_tokens.weight"), held["model.embed_tokens.weight"])


def oss() -> tuple[dict[str, Any], Parts]:
    dice, at = torch.Generator().manual_seed(3), "model.layers.0."
    held = {"model.embed_tokens.weight": torch.randn(VOCAB, DIM), "model.norm.weight": torch.ones(DIM)}
    for name, rows in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
        held |= {
            f"{at}self_attn.{name}_proj.weight": torch.randn(rows, 64),
            f"{at}self_attn.{name}_proj.bias": torch.ones(rows),
        }
    held |= {
        f"{at}self_attn.sinks": torch.ones(4),
        f"{at}mlp.router.weight": torch.ones(2, DIM),
        f"{at}mlp.router.bias": torch.ones(2),
    }
    for name, rows, columns in (("gate_up_proj", 2 * HIDDEN, DIM), ("down_proj", DIM, HIDDEN)):
        held[f"{at}mlp.experts.{name}_blocks"] = whole(0, 256, (2, rows, columns // 32, 16), dice).byte()
        held[f"{at}mlp.experts.{name}_scales"] = whole(120, 134, (2, rows, columns // 32), dice).byte()
        held[f"{at}mlp.experts.{name}_bias"] = torch.ones(2, rows)
    held |= {f"{at}{name}.weight": torch.ones(DIM) for name in ("input_layernorm", "post_attention_layernorm")}
    config = {**OSS, "tie_word_embeddings": True, "quantization_config": {"quant_method": "mxfp4"}}
    return config, held


def test_mxfp4_experts_are_those_of_transformers(tmp_path: Path) -> None:
    found = pytest.importorskip("transformers.integrations.mxfp4")
    config, held = oss()
    checkpoint, at = opened(tmp_path, config, held), "model.layers.0.mlp.experts."
    both = found.convert_moe_packed_tensors(
        held[f"{at}gate_up_proj_blocks"], held[f"{at}gate_up_proj_scales"], dtype=torch.float32
    )
    down = found.convert_moe_packed_tensors(
        held[f"{at}down_proj_blocks"], held[f"{at}down_proj_scales"], dtype=torch.float32
    )
    for expert in range(2):
        assert torch.equal(checkpoint.tensor(f"{at}{expert}.gate_proj.weight"), both[expert].T[::2])
        assert torch.equal(checkpoint.tensor(f"{at}{expert}.up_proj.weight"), both[expert].T[1::2])
        assert torch.equal(checkpoint.tensor(f"{at}{expert}.down_proj.weight"), down[expert].T)


@pytest.mark.parametrize(
    ("kind", "changed", "why"),
    [
        ("awq", {"bits": 3}, "3 bits"),
        ("awq", {"version": "gemv"}, "gemv"),
        ("gptq", {"quant_method": "quip"}, "quip"),
        ("fp8 in blocks", {"weight_block_size": None}, "weight_block_size"),
        ("bitsandbytes nf4", {"load_in_4bit": False}, "4 bits"),
        ("packed int4", {"transform_config": {"rotate": True}}, "transform_config"),
        ("plain int8", group(num_bits=6), "6 bits"),
        ("gptq", {"checkpoint_format": "marlin"}, "marlin"),
        ("fp8 in blocks", {"weight_block_size": [10**30, 10**30]}, "weight_block_size"),
        ("float-quantised", group(num_bits=8, type="float", strategy="block"), "block_structure"),
    ],
)
def test_what_is_not_decoded_is_refused_by_name(kind: str, changed: dict, why: str, tmp_path: Path) -> None:
    config, held, _ = folder_of(kind)
    config["quantization_config"] = {**config["quantization_config"], **changed}
    with pytest.raises(NotNative, match=why):
        opened(tmp_path, config, held)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("packed int4", group(num_bits=4, type="int", strategy="group", group_size=32)),
        ("gptq in cut groups", {"group_size": 32}),
        ("awq", {"group_size": 32}),
        ("awq", {"group_size": "all"}),
        ("float-quantised in blocks", group(num_bits=8, type="float", strategy="block", block_structure=[16, 48])),
    ],
)
def test_groups_that_are_not_those_of_the_file_are_refused(kind: str, changed: dict, tmp_path: Path) -> None:
    config, held, _ = folder_of(kind)
    config["quantization_config"] = {**config["quantization_config"], **changed}
    with pytest.raises(BadModel):
        opened(tmp_path, config, held)


def mutated(config: dict[str, Any], held: Parts, dice: random.Random) -> tuple[dict[str, Any], Parts]:
    """The same with one thing wrong: a part gone, cut, widened or of another type, or a setting replaced."""
    config, held = json.loads(json.dumps(config)), dict(held)
    coded = sorted(name for name in held if "layers.0" in name and "layernorm" not in name)
    name, act = dice.choice(coded), dice.randrange(5)
    if act == 0:
        del held[name]
    elif act == 1:
        held[name] = held[name][: len(held[name]) // 2].clone()
    elif act == 2:
        held[name] = torch.cat((held[name], held[name]))
    elif act == 3:
        held[name] = held[name].to(torch.int32 if held[name].dtype != torch.int32 else torch.float32)
    else:
        groups, told = [config["quantization_config"]], list[tuple[dict[str, Any], str]]()
        for values in groups:
            told += [(values, key) for key in values]
            groups += [value for value in values.values() if isinstance(value, dict)]
        values, key = dice.choice(told)
        values[key] = dice.choice([None, -1, 0, 3, 1 << 40, "strange", [], {}, [0, 0], True])
    return config, held


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [*KINDS, "mxfp4"])
def test_damage_is_refused_in_words_or_changes_no_shape(kind: str, count: int, tmp_path: Path) -> None:
    config, held = oss() if kind == "mxfp4" else folder_of(kind)[:2]
    dice, refused = random.Random(11), list[str]()
    for _ in range(count):
        try:
            checkpoint = opened(tmp_path, *mutated(config, held, dice))
            for name, size in checkpoint.shape.tensors().items():
                assert checkpoint.tensor(name).shape == size
        except BadModel as error:
            refused.append(str(error))
    assert len(refused) > count // 2
    assert all(len(words) > 20 for words in refused)
