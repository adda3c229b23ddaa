"""Bad input on the command line ends in one line that says what to do, without a traceback or anything left behind."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

CONFIG = {
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


def refused(code: int, out: str, err: str) -> str:
    """The one line that a command says."""
    assert code in (1, 2)
    assert out == ""
    assert "Traceback" not in err
    (line,) = err.splitlines()
    assert line.startswith("unspool: ")
    return line


def alone(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """The command in a process of its own: (exit status, stdout, stderr)."""
    ran = subprocess.run(
        [sys.executable, "-m", "unspool", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture
def broken_model(tmp_path, smollm2):
    """A tiny model whose last norm is NaN."""
    shapes = {
        "model.embed_tokens.weight": (49152, 16),
        "model.norm.weight": (16,),
        "model.layers.0.input_layernorm.weight": (16,),
        "model.layers.0.post_attention_layernorm.weight": (16,),
        "model.layers.0.self_attn.q_proj.weight": (16, 16),
        "model.layers.0.self_attn.k_proj.weight": (8, 16),
        "model.layers.0.self_attn.v_proj.weight": (8, 16),
        "model.layers.0.self_attn.o_proj.weight": (16, 16),
        "model.layers.0.mlp.gate_proj.weight": (16, 16),
        "model.layers.0.mlp.up_proj.weight": (16, 16),
        "model.layers.0.mlp.down_proj.weight": (16, 16),
    }
    tensors = {name: torch.ones(shape) for name, shape in shapes.items()}
    tensors["model.norm.weight"].fill_(float("nan"))
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tokenizer = Tokenizer.from_str(smollm2.vocabulary._tokenizer.to_str())
    tokenizer.decoder = ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


EVIL = "llama\nunspool: all is well\r\x1b[2J\x9b31m\u2028\u202e\x7f"


@pytest.mark.parametrize("field", ["model_type", "hidden_act", "architectures", "torch_dtype", "rope_scaling"])
def test_a_model_file_cannot_write_lines_or_steer_a_screen(tmp_path, here, field):
    value = {"architectures": [EVIL], "rope_scaling": {"rope_type": EVIL, EVIL: 2}}.get(field, EVIL)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, field: value, "vocab_size": 7}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": EVIL, "model": {"type": EVIL}}))
    save_file({EVIL: torch.ones(1)}, tmp_path / "model.safetensors")
    for command in (("run", "-m", str(tmp_path), "a"), ("plan", "-m", str(tmp_path)), ("plan", str(tmp_path))):
        code, _, err = here(*command)
        assert code in (1, 2)
        assert all(line.isprintable() for line in err.split("\n"))
        assert sum(line.startswith("unspool: ") for line in err.split("\n")) == 1


@pytest.mark.parametrize("arguments", [("--method", f"lookup:ngram={EVIL}"), ("--method", EVIL)])
def test_what_was_typed_is_repeated_on_one_line(here, arguments):
    assert refused(*here("run", *arguments, "a")).isprintable()


def test_a_file_name_cannot_begin_a_line_of_ours(here):
    code, _, err = here("run", "--json-schema", EVIL, "a")
    assert code == 2
    assert [line.startswith("unspool: ") for line in err.split("\n")] == [True, False, False]
    assert err.split("\n")[1].startswith("  unspool: all is well")


@pytest.mark.parametrize("options", [(), ("--temperature", "1"), ("--method", "lookup")])
def test_nan_logits(broken_model, here, options):
    run = here if options else alone
    line = refused(*run("run", "hello", "--raw", "--model", str(broken_model), "--max-tokens", "4", *options))
    assert "NaN" in line
    assert "fp32" in line


def test_a_truncated_and_a_corrupted_model_file(tmp_path, smollm2_path, here):
    whole = smollm2_path.read_bytes()
    (tmp_path / "short.gguf").write_bytes(whole[: len(whole) // 2])
    assert "cut short" in refused(*here("run", "hello", "--model", str(tmp_path / "short.gguf")))
    (tmp_path / "wrong.gguf").write_bytes(whole[:300] + b"\xff" * 2000 + whole[2300:5000])
    assert "download it again" in refused(*here("run", "hello", "--model", str(tmp_path / "wrong.gguf")))


def test_no_network(tmp_path):
    away = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0"}
    line = refused(*alone("run", "hello", UNSPOOL_HOME=str(tmp_path), PIP_CONFIG_FILE=os.devnull, **away))
    assert "Check the network" in line
    assert "unspool pull smollm2 --from" in line
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".lock"]


def test_offline(tmp_path, here, monkeypatch):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path))
    monkeypatch.setenv("UNSPOOL_OFFLINE", "1")
    line = refused(*here("run", "hello"))
    assert "UNSPOOL_OFFLINE is set" in line
    assert "pip download" in line


def test_the_fast_precision_is_the_one_that_the_clock_says(monkeypatch):
    import torch

    from unspool.api.loader import dtype_of
    from unspool.runtime.network import linear as precision

    for bf16, said in ((0.5, torch.bfloat16), (0.95, torch.float32), (2.0, torch.float32)):
        precision.fastest.cache_clear()
        monkeypatch.setattr(precision, "_timed", lambda dtype, bf16=bf16: [bf16 if dtype is torch.bfloat16 else 1.0])
        assert dtype_of("fast", "cpu") is said
    precision.fastest.cache_clear()
    assert dtype_of("fast", "cuda") is torch.bfloat16


def test_a_hole_has_its_own_size(here):
    line = refused(*here("run", "--infill", "Hello ___ world", "--max-tokens", "3"))
    assert "--max-tokens and --infill" in line
    assert "___(12)" in line
