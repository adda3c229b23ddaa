"""Checkpoints give the tensors transformers has, under its names, from folders and from GGUF files."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest
import torch

from unspool.core.errors import BadModel
from unspool.models.address import model_folder
from unspool.models.catalog import CATALOG
from unspool.models.shape import Shape
from unspool.models.weights import GGUFCheckpoint, open_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")

TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}


def tiny_model(family, **more):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **TINY, **more)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"tie_word_embeddings": True}),
        ("mistral", {"sliding_window": 8}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 16}),
        ("gemma3_text", {"head_dim": 16, "sliding_window": 8}),
    ],
)
def test_folders_give_the_tensors_of_transformers(tmp_path, family, more):
    model = tiny_model(family, **more)
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    stored = dict(model.named_parameters())
    assert checkpoint.names() == stored.keys()
    for name in checkpoint.names():
        expected = stored[name].detach()
        if family == "gemma3_text" and "norm." in name:
            expected = expected + 1
        assert torch.equal(checkpoint.tensor(name), expected)
        assert torch.equal(checkpoint.tensor(name, torch.bfloat16), expected.bfloat16())
    assert checkpoint.title == tmp_path.name
    assert checkpoint.bytes == (tmp_path / "model.safetensors").stat().st_size


def test_shards_are_one_model(tmp_path):
    model = tiny_model("llama")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    checkpoint = open_checkpoint(tmp_path)
    for name, expected in model.named_parameters():
        assert torch.equal(checkpoint.tensor(name), expected)
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(BadModel, match="not there: model-00002"):
        open_checkpoint(tmp_path)


def test_half_precision_stays_what_it_is(tmp_path):
    tiny_model("llama").bfloat16().save_pretrained(tmp_path)
    assert open_checkpoint(tmp_path / "model.safetensors").tensor("model.norm.weight").dtype == torch.bfloat16


def spoil(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_what_is_missing_or_misshapen_is_listed(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    spoil(tmp_path, num_hidden_layers=3)
    with pytest.raises(BadModel, match=r"misses 9 of 30 tensors.*model\.layers\.2\.input_layernorm\.weight"):
        open_checkpoint(tmp_path)
    spoil(tmp_path, num_hidden_layers=2, intermediate_size=65)
    with pytest.raises(BadModel, match=r"wrong shape for 6 .*\(64, 32\) \(expected \(65, 32\)\)"):
        open_checkpoint(tmp_path)


def test_broken_folders_are_refused_with_words(tmp_path):
    with pytest.raises(BadModel, match=r"no config\.json and no \.gguf"):
        open_checkpoint(tmp_path)
    with pytest.raises(BadModel, match="no such file"):
        open_checkpoint(tmp_path / "nowhere")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(BadModel, match=r"a LoRA adapter, not a model.*--adapter"):
        open_checkpoint(tmp_path)
    tiny_model("llama").save_pretrained(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for broken in (whole[:100], whole[:-4], b"", b"\xff" * 64):
        (tmp_path / "model.safetensors").write_bytes(broken)
        with pytest.raises(BadModel, match="not a complete safetensors file"):
            open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadModel, match=r"neither model.safetensors"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    with pytest.raises(BadModel, match="must name files of this folder"):
        open_checkpoint(tmp_path)
    for broken in ("{", "[1]", "\xff"):
        (tmp_path / "config.json").write_text(broken, encoding="latin-1")
        with pytest.raises(BadModel, match=r"config\.json"):
            open_checkpoint(tmp_path)


NAMES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(tensor, heads):
    """The row order of llama.cpp's converter: row i and row i + head_dim/2 of a head become neighbours."""
    rows = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return rows.swapaxes(1, 2).reshape(tensor.shape)


def write_gguf(path: Path, model, arch="llama", drop=(), factors=None):
    gguf = pytest.importorskip("gguf")
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    for name, tensor in model.named_parameters():
        tensor = tensor.detach()
        if arch == "llama" and ".q_proj." in name:
            tensor = interleaved(tensor, config.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            tensor = interleaved(tensor, config.num_key_value_heads)
        parts = name.split(".")
        stored = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}.get(parts[-2])
        stored = stored or f"blk.{parts[2]}.{NAMES[parts[-2]]}"
        if stored not in drop:
            writer.add_tensor(f"{stored}.{parts[-1]}", tensor.numpy())
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("family", "more"), [("llama", {}), ("llama", {"attention_bias": True}), ("qwen2", {})])
def test_gguf_rows_come_back_in_the_order_of_transformers(tmp_path, family, more):
    model = tiny_model(family, **more)
    write_gguf(tmp_path / "tiny.gguf", model, family)
    checkpoint = open_checkpoint(tmp_path)
    assert isinstance(checkpoint, GGUFCheckpoint)
    stored = dict(model.named_parameters())
    assert checkpoint.names() == stored.keys()
    for name, expected in stored.items():
        assert torch.equal(checkpoint.tensor(name), expected), name
    assert checkpoint.title == "tiny"
    assert checkpoint.rope_factors is None


def test_gguf_rope_factors(tmp_path):
    factors = torch.tensor([1.0, 1.0, 4.0, 8.0])
    write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), factors=factors)
    found = open_checkpoint(tmp_path / "tiny.gguf").rope_factors
    assert found is not None
    assert torch.equal(found, factors)
    write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), factors=factors[:2])
    with pytest.raises(BadModel, match="one per pair"):
        _ = open_checkpoint(tmp_path / "tiny.gguf").rope_factors


def test_gguf_missing_tensors_are_listed(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), drop=("blk.1.attn_k",))
    with pytest.raises(BadModel, match=r"misses 1 of 21 tensors.*layers\.1\.self_attn\.k_proj\.weight"):
        open_checkpoint(tmp_path)
    write_gguf(tmp_path / "other.gguf", tiny_model("llama"))
    with pytest.raises(BadModel, match=r"2 \.gguf files \(other\.gguf, tiny\.gguf\)"):
        open_checkpoint(tmp_path)
    with pytest.raises(BadModel, match="no tensor 'x'"):
        open_checkpoint(tmp_path / "other.gguf").tensor("x")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2"])
def test_catalog_models_load_as_in_transformers(name):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    folder, file = model_folder(name), CATALOG[name].file
    if not (folder / file).is_file():
        pytest.skip(f"{name} is not in the cache folder")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    checkpoint = open_checkpoint(folder / file)
    assert (
        Shape.from_config({**model.config.to_dict(), "quantization_config": None}).tensors()
        == checkpoint.shape.tensors()
    )
    theirs = dict(model.named_parameters())
    assert checkpoint.names() == theirs.keys()
    for name in checkpoint.names():
        expected = theirs[name].detach()
        expected = expected + 1 if checkpoint.shape.post_norms and "norm." in name else expected
        assert (checkpoint.tensor(name) - expected).abs().max() == 0, name


def test_any_flipped_header_bytes_open_or_are_refused(tmp_path):
    path = tmp_path / "tiny.gguf"
    model = tiny_model("llama")
    write_gguf(path, model)
    raw = path.read_bytes()
    header = len(raw) - 4 * sum(parameter.numel() for parameter in model.parameters())
    draw = random.Random(0)
    for _ in range(300):
        spoilt = bytearray(raw)
        for _ in range(draw.choice((1, 2, 9))):
            spoilt[draw.randrange(header)] = draw.choice((0, 1, 2, 4, 8, 9, 255, draw.randrange(256)))
        path.write_bytes(spoilt)
        with contextlib.suppress(BadModel):
            checkpoint = open_checkpoint(path)
            checkpoint.tensor("model.layers.1.self_attn.q_proj.weight")
