"""Settings files of a model folder: any JSON value at any place is read, or refused in words."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from littlemodel import CONFIG, chatting_model

from unspool.core.errors import BadModel, BadRequest
from unspool.models.weights import open_checkpoint

VALUES = [
    *(None, True, False, 0, -1, 7, 10**15, 10**400, -(10**400), 1.5, 1e308),
    *("", "x", "silu", "</s>", "\ud800", "a" * 5000, [], [[]], [None], [1, "a"], [{}], [1] * 99),
    *({}, {"a": {}}, {"content": []}, {"content": "\ud800"}, [{"name": "default"}]),
    *([{"name": "default", "template": 5}], [{"name": "default", "template": "{{ 1"}], {"factor": 10**400}),
]
ROPE = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {
        "rope_type": "yarn",
        "factor": 2.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": True,
        "attention_factor": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 4, "long_factor": [1.0] * 4},
}
MORE = {
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 1,
    "layer_types": None,
    "rope_parameters": None,
    "quantization_config": None,
    "mask_token_id": 5,
    "block_size": 4,
    "num_experts": None,
    "vocab_size": 258,
    "eos_token_id": [1],
    "bos_token_id": 0,
    "original_max_position_embeddings": 64,
    "head_dim": 8,
}
CONFIGS = {
    **{f"llama-{kind}": {**CONFIG, **MORE, "rope_scaling": rope} for kind, rope in ROPE.items()},
    "mistral": {**CONFIG, **MORE, "model_type": "mistral"},
    "qwen2": {**CONFIG, **MORE, "model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]},
    "gemma": {**CONFIG, **MORE, "model_type": "gemma3_text", "rope_parameters": {"full_attention": ROPE["linear"]}},
    "llada": {**CONFIG, **MORE, "model_type": "llada", "n_layers": 2, "d_model": 32, "embedding_size": 258},
    "sdar": {**CONFIG, **MORE, "model_type": "sdar"},
    "wedlm": {**CONFIG, **MORE, "model_type": "wedlm", "qk_norm": True},
    "ling": {**CONFIG, **MORE, "model_type": "bailing_moe", "num_experts": 4, "num_experts_per_tok": 2},
}
NAMED = {"content": "</s>", "special": True}
TOKENIZER = {
    "bos_token": "<s>",
    "eos_token": NAMED,
    "unk_token": None,
    "pad_token": "</s>",
    "chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}, {"name": "other", "template": "a"}],
}


def places(value, at=()):
    """Every place in a JSON value, its own first."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from places(part, (*at, name))


def changed(value, at, new):
    """The value with another one at a place."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = changed(value[at[0]], at[1:], new)
    return copy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("settings") / "little")


def opened(folder):
    """Read a model as far as its settings decide anything."""
    with suppress(BadModel):  # and no other error
        checkpoint = open_checkpoint(folder)
        words = checkpoint.vocabulary()
        if words.chat_template is not None:
            with suppress(BadRequest):
                words.encode(words.chat([{"role": "user", "content": "Hello"}]))


def spoil(folder, name, whole, within=()):
    """Every value at every place of a file, or inside one of them."""
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    try:
        for at in places(whole):
            for new in VALUES if at[: len(within)] == within else ():
                path.write_text(json.dumps(changed(whole, at, new)))
                try:
                    opened(folder)
                except Exception as error:
                    raise AssertionError(f"{name}: {new!r:.80} at {at}: {type(error).__name__}: {error}") from error
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)


@pytest.mark.parametrize("kind", CONFIGS)
def test_config(folder, kind):
    others = kind.startswith("llama-") and kind != "llama-linear"  # which differ in one place alone
    spoil(folder, "config.json", CONFIGS[kind], ("rope_scaling",) if others else ())


def test_tokenizer_config(folder):
    spoil(folder, "tokenizer_config.json", TOKENIZER)


def test_generation_config(folder):
    spoil(folder, "generation_config.json", {"eos_token_id": [1, 2], "bos_token_id": 0})


@pytest.mark.parametrize("name", ["added_tokens", "decoder", "model", "pre_tokenizer", "version"])
def test_tokenizer(folder, name):
    whole = json.loads((folder / "tokenizer.json").read_text())
    part = whole[name] if name != "model" else {}  # its inside is the affair of the package that reads it

    for at in places(part):
        for new in VALUES:
            spoilt = {**whole, name: changed(part, at, new)}
            (folder / "tokenizer.json").write_text(json.dumps(spoilt))
            try:
                opened(folder)
            except Exception as error:
                raise AssertionError(f"{name}{at} = {new!r:.80}: {type(error).__name__}: {error}") from error
            finally:
                (folder / "tokenizer.json").write_text(json.dumps(whole))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja"])
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff\xfe", b'{"a": 1' + b"0" * 5000 + b"}", b"5", b"null"])
def test_files_that_are_no_settings(folder, name, content):
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        opened(folder)
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)


@pytest.mark.parametrize("template", [[[]], [5], 5, {}, [{"name": "default", "template": []}], "a\ud800"])
def test_templates_that_are_none(folder, template):
    path = folder / "tokenizer_config.json"
    before = path.read_text()
    path.write_text(json.dumps({"chat_template": template}))
    try:
        with pytest.raises(BadModel, match="'chat_template'"):
            open_checkpoint(folder).vocabulary()
    finally:
        path.write_text(before)
