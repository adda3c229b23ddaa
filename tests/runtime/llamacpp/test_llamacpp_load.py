"""llama.cpp's runtime from outside: how a file is loaded, read and refused, and that methods run on it as on others."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

if find_spec("xllamacpp") is None:  # which is not imported: its shared object alone is used
    pytest.skip("the wheel xllamacpp is not installed: pip install 'unspool[llamacpp]'", allow_module_level=True)
pytest.importorskip("gguf", reason="the package gguf, which writes the little files, is not installed")

import gguf
from tinygguf import WORDS, tiny_gguf

import unspool
from unspool.core.errors import BadModel, BadRequest, MissingExtra, UnspoolError
from unspool.models.chat_template import Dialogue
from unspool.runtime.llamacpp import library as binding
from unspool.runtime.llamacpp.open_gguf import load_llamacpp
from unspool.runtime.llamacpp.tokenizer import LlamaCppVocabulary

GREEDY = unspool.Settings(max_tokens=24, temperature=0.0)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def lm(file):
    return unspool.load(file, runtime="llama.cpp", dtype="fp32", kv_cache_tokens=2048)


@pytest.mark.parametrize("method", ["plain", "lookup", "suffix", "recycle", "jacobi", "beam:width=3", "merge"])
def test_methods_write_what_they_write_natively(file, lm, method):
    native = unspool.load(file, runtime="native", dtype="fp32", device="cpu")
    for settings in (GREEDY, unspool.Settings(max_tokens=24, temperature=0.8, seed=5)):
        ours, theirs = (model.generate("abcab c", settings, method=method) for model in (lm, native))
        assert ours.tokens == theirs.tokens
    assert lm.model.slots.in_use <= 4 * 64  # the prefix cache holds finished texts, and nothing else is left


def test_batches_equal_texts_alone(lm):
    prompts = ["ab", "cd ab", "abab ab", "t s r"]
    together = lm.batch(prompts, GREEDY, method="suffix")
    assert [one.tokens for one in together] == [lm.generate(p, GREEDY).tokens for p in prompts]


def test_another_model_of_llamacpp_drafts(file, lm):
    paired = unspool.load(file, runtime="llama.cpp", dtype="fp32", kv_cache_tokens=2048, draft=file)
    drafted = paired.generate("abcab c", GREEDY, method="chain")
    assert drafted.tokens == lm.generate("abcab c", GREEDY).tokens
    assert drafted.trace.forwards["target"] < len(drafted.tokens)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "IQ4_NL"])
def test_quantised_files_run_as_they_are(tmp_path, kind):
    """IQ4_NL, which is not written by the package gguf, is a Q4_0 file whose blocks are read by another table."""
    stored = gguf.GGMLQuantizationType["Q4_0" if kind == "IQ4_NL" else kind]
    path = tiny_gguf(tmp_path / "model.gguf", kind=stored)
    if kind == "IQ4_NL":
        reader = gguf.GGUFReader(path, "r+")
        for tensor in reader.tensors:
            if tensor.tensor_type == stored:
                tensor.field.parts[4][0] = gguf.GGMLQuantizationType.IQ4_NL
        del reader
    found = unspool.load(path, runtime="llama.cpp")
    assert len(found.generate("ab", GREEDY).tokens) > 0
    if kind == "IQ4_NL":  # decoded at load, and the same text
        assert unspool.load(path, runtime="native").generate("ab", GREEDY).tokens == found.generate("ab", GREEDY).tokens


def test_text_is_cut_by_llamacpp_where_nobody_else_knows_how(tmp_path):
    """The same words under a name that our reader does not know give the tokens that it gives under one it knows."""
    known, ours = load_llamacpp(tiny_gguf(tmp_path / "known.gguf", pre="gpt-2"), room=256)
    strange, theirs = load_llamacpp(tiny_gguf(tmp_path / "strange.gguf", pre="olmo"), room=256)
    assert not isinstance(ours, LlamaCppVocabulary)
    assert isinstance(theirs, LlamaCppVocabulary)
    assert known.vocab == strange.vocab == len(WORDS)
    for text in ("", "ab", "abba cab", "a</s>b", "<s>ab"):
        for special in (True, False):
            if special or "<" not in text:  # what cannot be spelt is dropped by one and refused by none
                assert theirs.encode(text, special) == ours.encode(text, special), (text, special)
    assert [theirs.piece(x) for x in range(len(WORDS))] == [ours.piece(x) for x in range(len(WORDS))]
    assert theirs.eos == ours.eos
    assert (theirs.bos, theirs.add_bos, theirs.special) == (ours.bos, ours.add_bos, ours.special)
    assert theirs.name(1) == "</s>"
    assert theirs.token("</s>") == 1
    with pytest.raises(BadRequest, match="surrogate"):
        theirs.encode("a\ud800")


def test_messages_cannot_spell_control_tokens(tmp_path):
    template = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"
    _, words = load_llamacpp(tiny_gguf(tmp_path / "chat.gguf", pre="olmo"), room=256)
    words.chat_template = template
    dialogue = Dialogue([{"role": "user", "content": "ab</s>c"}])
    found = words.encode_chat(dialogue)
    assert found[0] == 0
    assert found[-1] == 1
    assert found.count(1) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantization": "int8"}, "quantization='int8' needs the native runtime"),
        ({"batch_invariant": True}, "batch_invariant needs the native runtime"),
        ({"ranks": 2}, "ranks=2 needs the native runtime"),
        ({"draft": "layers:1"}, "needs the native runtime"),
        ({"heads": "heads.safetensors"}, "needs the native runtime"),
        ({"runtime": "llamacpp"}, "choose one of: auto, llama.cpp, native, transformers"),
    ],
)
def test_what_it_does_not_do_is_refused_in_words(file, options, words):
    with pytest.raises(BadRequest, match=words):
        unspool.load(file, **{"runtime": "llama.cpp", **options})


def test_files_that_are_none_are_refused_before_llamacpp_sees_them(tmp_path, file, monkeypatch):
    monkeypatch.setattr("unspool.runtime.llamacpp.open_gguf.LlamaContext", None)
    raw = file.read_bytes()
    bad = tmp_path / "bad.gguf"
    for content, words in (
        (b"PK" + raw, "begins with"),
        (raw[: len(raw) // 2], "was cut short|ends after"),
        (raw.replace(b"llama.block_count\x04\0\0\0\x02", b"llama.block_count\x04\0\0\0\x00"), "block_count"),
        (raw.replace(b"llama.attention.head_count\x04\0\0\0\x04", b"llama.attention.head_count\x04\0\0\0\x00"), "head"),
    ):
        bad.write_bytes(content)
        assert content != raw
        with pytest.raises(BadModel, match=words):
            unspool.load(bad, runtime="llama.cpp")
    with pytest.raises(BadModel, match=r"opens .gguf files"):
        unspool.load(tmp_path, runtime="llama.cpp")


def test_a_file_that_llamacpp_refuses_says_why(tmp_path, file):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(file.read_bytes().replace(b"blk.1.ffn_up", b"blk.1.ffn_op"))
    with pytest.raises(BadModel, match=r"cannot load it \(.*ffn_up"):
        unspool.load(bad, runtime="llama.cpp")


def test_a_wheel_that_is_missing_or_unknown_is_named(monkeypatch):
    monkeypatch.setattr(binding.metadata, "version", lambda name: "2031.1.1")
    with pytest.raises(UnspoolError, match=r"xllamacpp 2031.1.1 is installed.*pip install 'xllamacpp=="):
        binding._found()
    monkeypatch.setattr(binding, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"unspool\[llamacpp\]"):
        binding._found()


def test_a_machine_without_avx2_is_told_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(binding.platform, "machine", lambda: "x86_64")
    with pytest.raises(UnspoolError, match="compiled for AVX2"):
        binding._found()


@pytest.mark.parametrize("name", ["n_ctx", "type_v", "swa_full", "added", "ctx_other"])
def test_a_layout_that_moved_is_found_out(name):
    given = binding.library().llama_context_default_params()
    binding._check_defaults(given, binding._CONTEXT_DEFAULTS)
    if isinstance(getattr(given, name), ctypes.Array):
        getattr(given, name)[1] = 3
    else:
        setattr(given, name, not getattr(given, name) if name == "swa_full" else 77)
    with pytest.raises(UnspoolError, match=f"gives {name} = .* by default"):
        binding._check_defaults(given, binding._CONTEXT_DEFAULTS)


def test_the_command_line_runs_it(file):
    options = ["--runtime", "llama.cpp", "--model", str(file), "--method", "lookup", "--max-tokens", "8", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "unspool", "run", "abcab c", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["tokens"]) == 8
