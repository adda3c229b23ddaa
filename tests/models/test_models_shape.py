"""Shapes and rotary frequencies are those transformers has for the same configuration."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hybridfamilies import HYBRIDS
from tests.support.hybridfamilies import YARN as STRETCHED
from unspool.core.errors import BadModel
from unspool.models.layer_shape import RopeScaling, RopeSpec
from unspool.models.rope_scaling import rope_frequencies
from unspool.models.shape import Shape

pytestmark = pytest.mark.filterwarnings("ignore")

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}


def config(family, **more):
    return {"model_type": family, **TINY, **more}


def transformers_config(settings):
    transformers = pytest.importorskip("transformers")
    rest = {key: value for key, value in settings.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(settings["model_type"], **rest)


FAMILIES = [
    config("llama"),
    config("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=16),
    config("mistral", sliding_window=16),
    config("mistral", sliding_window=None, head_dim=16),
    config("qwen2", tie_word_embeddings=True),
    config("qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=2),
    config("qwen3", head_dim=16),
    config("qwen3", head_dim=8, attention_bias=True),
    config("gemma3_text", head_dim=16, sliding_window=16, query_pre_attn_scalar=64),
    config("gemma3_text", head_dim=16, sliding_window=16, sliding_window_pattern=2),
]


@pytest.mark.parametrize("settings", FAMILIES, ids=lambda settings: settings["model_type"])
def test_tensors_are_those_of_transformers(settings):
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers_config(settings))
    shape = Shape.from_config(settings)
    theirs = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
    assert shape.tensors() == theirs
    assert shape.parameters == sum(tensor.numel() for tensor in model.parameters())


@pytest.mark.parametrize("settings", FAMILIES, ids=lambda settings: settings["model_type"])
def test_a_saved_config_says_the_same(settings):
    # transformers v5 saves rope_parameters where the Hub has rope_theta and rope_scaling; both must be understood.
    saved = transformers_config(settings).to_dict()
    assert Shape.from_config(saved) == Shape.from_config(settings)


@pytest.mark.parametrize("settings", FAMILIES, ids=lambda settings: settings["model_type"])
def test_windows_are_those_of_transformers(settings):
    theirs = transformers_config(settings)
    kinds = getattr(theirs, "layer_types", None)
    window = getattr(theirs, "sliding_window", None)
    if settings["model_type"] in ("llama", "mistral"):
        expected = (window,) * 4
    else:
        expected = tuple(window if kind == "sliding_attention" else None for kind in kinds)
    assert Shape.from_config(settings).windows == expected


SCALINGS = [
    None,
    {"rope_type": "linear", "factor": 4.0},
    {"type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "truncate": False, "beta_fast": 16},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "attention_factor": 1.25},
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 512,
    },
    {
        "rope_type": "longrope",
        "factor": 4.0,
        "short_factor": [1.0 + i / 9 for i in range(16)],
        "long_factor": [2.0 + i for i in range(16)],
        "original_max_position_embeddings": 1024,
    },
]


@pytest.mark.parametrize("length", [None, 4096, 9000])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling and next(iter(scaling.values())))
def test_rope_is_that_of_transformers(scaling, length):
    transformers = pytest.importorskip("transformers")
    settings = config("llama", hidden_size=128, rope_theta=50000.0, rope_scaling=scaling and dict(scaling))
    theirs = transformers_config({**settings, "rope_scaling": scaling and dict(scaling)})
    kind = theirs.rope_parameters["rope_type"]
    if kind == "default":
        model = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(theirs)
        inverse, scale = model.inv_freq, model.attention_scaling
    else:
        inverse, scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
    ours, our_scale = rope_frequencies(Shape.from_config(settings).rope, length=length)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, inverse, rtol=1e-6, atol=0)
    assert our_scale == pytest.approx(scale, rel=1e-12)


def test_gemma_turns_windowed_layers_with_their_own_base():
    shape = Shape.from_config(config("gemma3_text", head_dim=16, rope_scaling={"rope_type": "linear", "factor": 8.0}))
    assert (shape.rope_theta, shape.local_rope_theta) == (1e6, 1e4)
    plain = 1e4 ** -(torch.arange(0, 16, 2) / 16)
    torch.testing.assert_close(rope_frequencies(RopeSpec(shape.local_rope_theta, 16))[0], plain)
    torch.testing.assert_close(rope_frequencies(shape.rope)[0], 1e6 ** -(torch.arange(0, 16, 2) / 16) / 8)


def test_factors_divide_the_frequencies():
    shape = Shape.from_config(config("llama"))
    plain, _ = rope_frequencies(shape.rope)
    slowed, _ = rope_frequencies(shape.rope, factors=torch.tensor([1.0, 2.0, 4.0, 8.0]))
    torch.testing.assert_close(slowed, plain / torch.tensor([1.0, 2.0, 4.0, 8.0]))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'.*transformers runtime"),
        ({"model_type": 3}, "'model_type' is 3; expected a string"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "'spiral'.*known: linear"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'factor' is None; expected a positive number"),
        ({"rope_scaling": 5}, "expected a group"),
        ({"hidden_size": -1}, "'hidden_size' is -1"),
        ({"hidden_size": None}, "'hidden_size' is None"),
        ({"num_hidden_layers": 1 << 30}, "at most"),
        ({"num_key_value_heads": 3}, "cannot share 3"),
        ({"head_dim": 7}, "even number"),
        ({"hidden_act": "relu"}, "'relu'"),
        ({"attn_logit_softcapping": 50.0}, "it sets attn_logit_softcapping"),
        ({"rms_norm_eps": float("nan")}, "positive number"),
        ({"tie_word_embeddings": "yes"}, "true or false"),
    ],
)
def test_what_cannot_be_built_is_refused_with_words(more, words):
    with pytest.raises(BadModel, match=words):
        Shape.from_config({**config("llama"), **more})


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("lfm2", {"block_ffn_dim_multiplier": 1e308}, "'block_ffn_dim_multiplier' is 1e.308; expected a positive"),
        ("qwen3_5_text", {"partial_rotary_factor": 1e308}, "expected a positive number"),
        ("glm4_moe", {"partial_rotary_factor": 1e308}, "expected a positive number"),
        ("deepseek_v3", {"rope_parameters": {**STRETCHED, "mscale_all_dim": 1e308}}, "'mscale_all_dim' is 1e.308"),
        ("granitemoehybrid", {"time_step_limit": [0, 10**400]}, "expected two numbers"),
        ("granitemoehybrid", {"time_step_limit": [float("nan"), 1.0]}, "the larger one last"),
        ("granitemoehybrid", {"time_step_limit": [0.5, 0.1]}, "the larger one last"),
        ("granitemoehybrid", {"mamba_n_heads": 4096, "mamba_d_head": "auto"}, "4096 Mamba heads of 0"),
        ("nemotron_h", {"layers_block_type": ["mlp"] * 5000}, "a list of 1 to 4096 layer types"),
    ],
)
def test_numbers_beyond_all_sense_are_refused_with_words(kind, more, words):
    own = next((own for _, name, own in HYBRIDS if name == kind), {"head_dim": 8})
    with pytest.raises(BadModel, match=words):
        Shape.from_config({**TINY, **own, "model_type": kind, **more})


GGUF_LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.context_length": 4096,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 48,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 64,
}


def test_gguf_says_the_same_as_config_json():
    assert Shape.from_gguf(GGUF_LLAMA, ["output.weight"]) == Shape.from_config(config("llama"))
    scaled = {**GGUF_LLAMA, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    assert Shape.from_gguf(scaled).rope_scaling == RopeScaling("linear", 2.0, 4096)


def test_gguf_yarn_is_that_of_config_json():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    keys = {"type": "yarn", "factor": 4.0, "original_context_length": 1024}
    scaled = {**GGUF_LLAMA, **{f"llama.rope.scaling.{key}": value for key, value in keys.items()}}
    ours, scale = rope_frequencies(Shape.from_gguf(scaled).rope)
    theirs, their_scale = rope_frequencies(Shape.from_config(config("llama", rope_scaling=yarn)).rope)
    assert torch.equal(ours, theirs)
    assert scale == pytest.approx(their_scale)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"general.architecture": "rwkv"}, "'rwkv'.*transformers runtime"),
        ({"llama.expert_count": 8}, "expert_used_count"),
        ({"llama.expert_count": 8, "llama.expert_used_count": 2, "llama.expert_gating_func": 2}, "function 2"),
        ({"llama.attention.clamp_kqv": 8.0}, "it sets attention.clamp_kqv"),
        ({"llama.rope.dimension_count": 4}, "part of each head"),
        ({"llama.attention.value_length": 4}, "differ in width"),
        ({"llama.rope.scaling.type": "longrope"}, "longrope"),
        ({"llama.attention.head_count_kv": [1, 2]}, r"is \[1, 2\]; expected a positive whole number"),
        ({"llama.block_count": 1 << 20}, "at most"),
    ],
)
def test_gguf_that_cannot_be_built_is_refused_with_words(more, words):
    with pytest.raises(BadModel, match=words):
        Shape.from_gguf({**GGUF_LLAMA, **more})


JSON = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "x", "default"])
    | st.lists(st.integers(), max_size=3)
)


@given(st.dictionaries(st.sampled_from([*config("qwen2"), "layer_types", "rope_scaling", "head_dim"]), JSON))
def test_odd_settings_build_or_are_refused(odd):
    with contextlib.suppress(BadModel):
        Shape.from_config({**config("qwen2"), **odd})


def test_cache_bytes():
    shape = Shape.from_config(config("llama"))
    assert shape.kv_bytes(torch.bfloat16) == 2 * 4 * 2 * 8 * 2
