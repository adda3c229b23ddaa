"""Folders as people have them: what native does not know is run by transformers, and what is broken is refused."""

import json
import os
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from littlemodel import chatting_model, little_model
from safetensors.torch import load_file, save_file

from unspool import Settings, load
from unspool.core.errors import BadModel, BadRequest, MissingExtra, NotNative
from unspool.core.tree import NOTHING
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.hf.load import load_hf

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

FEW = Settings(max_tokens=6, ignore_eos=True)
SMALL = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 258}
THEIRS = {
    "gpt2": ("GPT2Config", SMALL),
    "mamba": ("MambaConfig", {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "vocab_size": 258}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("folders") / "little")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def other(folder, place, kind, settings, save=True, cls="AutoModelForCausalLM"):
    """A model of another architecture, with the little model's tokens."""
    torch.manual_seed(1)
    config = getattr(transformers, kind)(bos_token_id=0, eos_token_id=1, **settings)
    model = getattr(transformers, cls).from_config(config)
    model.save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, place / name)
    return model


def greedy(model, text, count):
    found = model.generate(torch.tensor([text]), do_sample=False, min_new_tokens=count, max_new_tokens=count)
    return tuple(found[0, len(text) :].tolist())


@pytest.mark.parametrize("name", THEIRS)
def test_what_native_does_not_know_is_run_by_transformers(folder, tmp_path, caplog, name):
    model = other(folder, tmp_path, *THEIRS[name])
    lm = load(tmp_path)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "unspool"]
    assert "transformers runs this model" in said
    assert name in said
    assert ("reads the whole text" in said) is (name == "mamba")
    text = lm.encode("abc")
    settings = Settings(max_tokens=6, ignore_eos=True)
    assert lm.generate(text, settings).tokens == greedy(model, text, 6)
    assert lm.generate(text, settings, "lookup").tokens == greedy(model, text, 6)
    for own in ({"runtime": "native"}, {"batch_invariant": True}, {"quantization": "int8"}):
        with pytest.raises(NotNative, match="--runtime transformers"):
            load(tmp_path, **own)


def test_a_plan_of_what_native_does_not_know_tells_the_size_of_its_weights(folder, tmp_path, here):
    other(folder, tmp_path, *THEIRS["gpt2"])
    code, out, err = here("plan", str(tmp_path))
    assert (code, out) == (1, "")
    assert "model_type is 'gpt2', which the native runtime does not do, and `unspool plan`" in err
    assert f"{(tmp_path / 'model.safetensors').stat().st_size / 1e6:,.1f} MB" in err


def test_pickled_weights_are_read_by_transformers(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "bin")
    torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
    (place / "model.safetensors").unlink()
    native = load(folder, dtype="fp32").generate("abc", FEW).tokens
    assert load(place, dtype="fp32").generate("abc", FEW).tokens == native


def test_scores_are_capped_where_the_usual_attention_would_not(folder, tmp_path, monkeypatch):
    """Up to 5.17 transformers takes its fused attention for Gemma 2 too, which leaves the caps out without a word."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 258, "attn_logit_softcapping": 0.5}
    model = other(folder, tmp_path, "Gemma2Config", sizes)
    model.set_attn_implementation("eager")
    monkeypatch.setattr(type(model), "_supports_sdpa", True)
    monkeypatch.setattr(type(model.model), "_supports_sdpa", True)
    text, found = (5, 6, 7, 8), load_hf(tmp_path, torch.float32)
    (scores,) = found.score([ScoreRequest(found.open(text), NOTHING)])
    with torch.no_grad():
        want = model(torch.tensor([text])).logits[0, -1]
    assert torch.allclose(scores.leaf[0].scores, want, atol=1e-5)


def test_without_transformers_the_extra_is_named(folder, tmp_path, monkeypatch):
    other(folder, tmp_path, *THEIRS["gpt2"])
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"\[hf\]"):
        load(tmp_path)


def test_a_missing_tensor_is_refused_by_both(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "less")
    kept = load_file(place / "model.safetensors")
    del kept["model.layers.1.mlp.up_proj.weight"]
    save_file(kept, place / "model.safetensors", metadata={"format": "pt"})
    for runtime in ("native", "transformers"):
        with pytest.raises(BadModel, match=r"layers\.1\.mlp\.up_proj\.weight"):
            load(place, runtime=runtime)


def test_half_a_file_is_no_mistake_of_ours(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "half")
    whole = (place / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    for runtime in ("native", "transformers"):
        with pytest.raises(BadModel, match="complete"):
            load(place, runtime=runtime)


def test_encoders_are_refused_shortly(folder, tmp_path):
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    size |= {"vocab_size": 258, "max_position_embeddings": 64}
    other(folder, tmp_path / "bert", "BertConfig", size, cls="AutoModelForMaskedLM")
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 258}
    other(folder, tmp_path / "t5", "T5Config", t5, cls="AutoModelForSeq2SeqLM")
    bare = other(folder, tmp_path / "bare", "BertConfig", size, cls="AutoModel")
    assert type(bare).__name__ == "BertModel"
    for name, words in (("bert", "both directions"), ("bare", "both directions"), ("t5", "encoder and decoder")):
        with pytest.raises(BadModel, match=words) as refused:
            load(tmp_path / name)
        assert len(str(refused.value)) < 400 + len(str(tmp_path))


def test_a_model_of_pictures_is_refused_by_what_it_reads(folder, tmp_path):
    text = {"model_type": "llama", "vocab_size": 258}
    (place := tmp_path / "llava").mkdir()
    transformers.LlavaConfig(text_config=text).save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(folder / name, place / name)
    with pytest.raises(BadModel, match="a llava model reads pictures or sound beside text"):
        load(place)


def test_an_error_of_transformers_is_cut(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "unknown")
    config = json.loads((place / "config.json").read_text()) | {
        "model_type": "vits",
        "architectures": ["VitsModel"],
    }
    (place / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModel, match="transformers cannot load it") as refused:
        load(place)
    assert len(str(refused.value)) < 700 + len(str(place))


def test_a_loaded_model_is_taken_with_its_tokenizer(tmp_path):
    place = chatting_model(tmp_path / "chatting")
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    lm, native = load(model, tokenizer), load(place, dtype="fp32")
    assert lm.generate("abc", FEW).tokens == native.generate("abc", FEW).tokens
    assert lm.generate("abc", FEW, "lookup").tokens == native.generate("abc", FEW).tokens
    with pytest.raises(BadRequest, match=r"load\(model, tokenizer\)"):
        load(model)
    with pytest.raises(BadRequest, match=r"load\(model, tokenizer\)"):
        load(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(BadRequest, match="tokenizer"):
        load(place, tokenizer)
    with pytest.raises(BadRequest, match="quantization"):
        load(model, tokenizer, quantization="int8")
