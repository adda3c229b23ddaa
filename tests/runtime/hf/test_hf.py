"""Models of the transformers library, tiny and random, answer as their own plain forwards do, whatever runs them."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from contracts import exercise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from selection import crossed

from unspool.core.errors import BadModel, BadRequest, FetchFailed, MissingExtra, OutOfRoom
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.uncached_model import UncachedModel, maximal
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.hf import load as hf
from unspool.runtime.hf import probe as hf_probe
from unspool.runtime.hf.hf_network import HFModel, HFNetwork, branches
from unspool.runtime.hf.load import hf_vocabulary, load_hf
from unspool.runtime.hf.probe import FULL, MaskByKind, OneMask
from unspool.runtime.network.network import Batch, Row

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

VOCAB = 24
TINY = {"vocab_size": VOCAB, "initializer_range": 0.4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64} | TINY
LLAMA = {"intermediate_size": 24, "num_key_value_heads": 2} | SHAPE
MIXED = ["sliding_attention", "full_attention"]
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64} | TINY

TREE, KINDS, BRANCHES, WHOLE = "one mask", "a mask per kind", "branches", "whole texts"
MODELS = {
    "llama": ("LlamaConfig", LLAMA, TREE),
    "mistral": ("MistralConfig", LLAMA | {"sliding_window": 4}, TREE),
    "qwen2": ("Qwen2Config", LLAMA, TREE),
    "qwen2-mixed": (
        "Qwen2Config",
        LLAMA | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
        KINDS,
    ),
    "qwen3": ("Qwen3Config", LLAMA | {"head_dim": 8}, TREE),
    "gpt2": ("GPT2Config", GPT, TREE),
    "gpt-neox": ("GPTNeoXConfig", SHAPE | {"intermediate_size": 24}, TREE),
    "gemma3": ("Gemma3TextConfig", LLAMA | {"head_dim": 8, "sliding_window": 4, "layer_types": MIXED}, KINDS),
    "phi3": ("Phi3Config", LLAMA, TREE),
    "opt": ("OPTConfig", SHAPE | {"ffn_dim": 24, "word_embed_proj_dim": 16, "init_std": 0.4}, TREE),
    "bloom": ("BloomConfig", TINY | {"hidden_size": 16, "n_layer": 2, "n_head": 4}, BRANCHES),
    "mpt": ("MptConfig", TINY | {"d_model": 16, "n_layers": 2, "n_heads": 4}, BRANCHES),
    "gpt-neo": (
        "GPTNeoConfig",
        SHAPE | {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4},
        BRANCHES,
    ),
    "mamba": ("MambaConfig", TINY | {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}, WHOLE),
    "rwkv": ("RwkvConfig", TINY | {"hidden_size": 16, "num_hidden_layers": 2, "context_length": 64}, WHOLE),
    "lfm2": ("Lfm2Config", LLAMA | {"layer_types": ["conv", "full_attention"]}, WHOLE),
}
built: dict[str, torch.nn.Module] = {}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Matrices this small are slower on several threads, and much slower beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(name: str) -> torch.nn.Module:
    if name not in built:
        torch.manual_seed(len(name))
        kind, settings, _ = MODELS[name]
        if not hasattr(transformers, kind):
            pytest.skip(f"this transformers has no {kind}")
        model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**settings))
        built[name] = model.to(torch.float64)
    return built[name]


def way(model: CachedModel | UncachedModel) -> str:
    if isinstance(model, UncachedModel):
        return WHOLE
    return {OneMask: TREE, MaskByKind: KINDS, type(None): BRANCHES}[type(model.network.mask)]


def scratch(model: torch.nn.Module, text: tuple[int, ...]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([text])).logits[0, -1]


def tree_of(*nodes: tuple[int, int]) -> Tree:
    tree = NOTHING
    for token, under in nodes:
        tree, _ = tree.grow(Drawn(token, Law.point(token)), under)
    return tree


BUSH = tree_of((3, ~0), (4, ~0), (5, 0), (6, 0), (5, 1), (7, 2), (8, 3))


@pytest.mark.parametrize("name", MODELS)
def test_the_probe_finds_the_way(name):
    model = load_hf(tiny(name))
    assert way(model) == MODELS[name][2], model.note if isinstance(model, UncachedModel) else model.network.note
    assert model.vocab == VOCAB


@pytest.mark.parametrize("name", crossed(MODELS, quick=3))
def test_sessions_equal_plain_forwards(name):
    """Trees = chains, keeps = recomputation, batches = alone, forks = copies, in drawn programs; windows are passed."""
    plain = tiny(name)
    model = load_hf(plain, room=512)
    laws: dict[tuple[int, ...], torch.Tensor] = {}

    def truth(text: tuple[int, ...]) -> torch.Tensor:
        if text not in laws:
            laws[text] = scratch(plain, text)
        return laws[text]

    @given(st.data())
    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def programs(data):
        exercise(data, model, truth, tolerance=2e-5, steps=6, vocab=VOCAB, longest=8)

    programs()
    if isinstance(model, CachedModel):
        assert model.slots.in_use == 0


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_are_the_librarys_own(name):
    plain = tiny(name)
    model = load_hf(plain)
    text = (1, 9, 4, 11, 2, 7)
    session = model.open(text)
    names = ("hidden:0", "hidden:1", "hidden:-1")
    (scores,) = model.score([ScoreRequest(session, BUSH, names)])
    ends = [text + BUSH.tokens(BUSH.path(node)) for node in [*range(len(BUSH)), ~0]]
    for i, end in enumerate(ends):
        with torch.no_grad():
            states = plain(torch.tensor([end]), output_hidden_states=True).hidden_states
        for wanted in names:
            want = states[int(wanted.split(":")[1])][0, -1]
            torch.testing.assert_close(scores.hidden[wanted][i], want, atol=2e-5, rtol=1e-5)
    with pytest.raises(BadRequest, match="layer 7"):
        model.score([ScoreRequest(model.open(text), NOTHING, ("hidden:7",))])


@pytest.mark.parametrize("name", ["llama", "gemma3", "bloom"])
def test_eager_attention_takes_the_same_way(name):
    plain = tiny(name)
    before = plain.config._attn_implementation
    plain.set_attn_implementation("eager")
    try:
        assert way(load_hf(plain)) == MODELS[name][2]
    finally:
        plain.set_attn_implementation(before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rounding_is_not_taken_for_an_error(dtype):
    kind, settings, _ = MODELS["gemma3"]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**settings)
    model = load_hf(transformers.AutoModelForCausalLM.from_config(config), dtype=dtype)
    assert way(model) == KINDS
    (scores,) = model.score([ScoreRequest(model.open((1, 2, 3)), BUSH)])
    assert scores.leaf[0].scores.dtype is torch.float32


def test_a_mask_that_forgets_the_window_is_found_out():
    model = HFModel(tiny("mistral"))
    probe = hf_probe.Probe(model)
    assert probe.error(HFNetwork(model, probe.room, OneMask(model.config, FULL))) > 100 * probe.noise
    assert model.config.sliding_window == 4


def test_wide_windows_are_narrowed_for_the_probe_and_given_back():
    config = transformers.MistralConfig(**LLAMA, sliding_window=40)
    model = HFModel(transformers.AutoModelForCausalLM.from_config(config))
    probe = hf_probe.Probe(model)
    assert probe.error(HFNetwork(model, probe.room, OneMask(config, FULL))) > probe.noise
    assert model.config.sliding_window == 40
    assert isinstance(load_hf(model.model).network.mask, OneMask)


def test_what_cannot_be_measured_is_not_trusted():
    model = tiny("gpt-neo")
    model.config.window_size = 5000
    try:
        found = hf_probe.find_way(HFModel(model))
    finally:
        model.config.window_size = 4
    assert found.cached
    assert found.mask is None
    assert "window_size=5000" in found.note


def test_a_model_that_sees_the_future_is_refused():
    config = transformers.BertConfig(**SHAPE, intermediate_size=24)
    with pytest.raises(BadModel, match="not causal"):
        load_hf(transformers.AutoModelForCausalLM.from_config(config))


def test_a_model_that_cannot_run_is_refused():
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**LLAMA))
    model.forward = lambda input_ids, **given: 1 / 0
    with pytest.raises(BadModel, match="cannot read a text"):
        load_hf(model)


def test_rope_that_changes_old_keys_limits_the_cached_text():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0, "original_max_position_embeddings": 32}
    config = transformers.LlamaConfig(**LLAMA | {"rope_parameters": rope})
    model = load_hf(transformers.AutoModelForCausalLM.from_config(config))
    assert model.context == 32


@pytest.mark.parametrize("mask", [True, False])
def test_outputs_come_in_the_order_they_were_asked_for(mask):
    model = HFModel(tiny("llama"))
    network = HFNetwork(model, 16, OneMask(model.config, FULL) if mask else None)
    slots = network.slots.take(5)
    rows = [Row(0, 3, slots[:3], [0, 1, 2]), Row(3, 2, slots[3:], [0, 1])]
    read = [4, 0, 2]
    batch = Batch(torch.tensor([1, 2, 3, 4, 5]), torch.tensor([0, 1, 2, 0, 1]), slots, rows, torch.tensor(read), (1,))
    logits, hidden = network.forward(batch)
    for i, text in enumerate([(4, 5), (1,), (1, 2, 3)]):
        torch.testing.assert_close(logits[i], scratch(tiny("llama"), text))
        want = model.read(torch.tensor([text]), torch.tensor([len(text) - 1]), (1,)).hidden[1][0]
        torch.testing.assert_close(hidden[1][i], want)


def test_branches_are_plain_texts():
    hidden = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 0, 1], [0, 0, 1, 0, 0]], dtype=torch.bool)
    row = Row(10, 4, [7, 3, 4, 9, 1], [0, 1, 2, 2, 3], hidden)
    assert branches(row) == [Row(10, 2, [7, 3, 4], [0, 1, 2]), Row(12, 2, [7, 3, 9, 1], [0, 1, 2, 3])]


# ---- reading whole texts


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5).map(tuple), min_size=1, max_size=8))
def test_maximal_texts_cover_all_and_nothing_twice(texts):
    found = maximal(texts)
    assert {whole[:n] for whole, lengths in found.items() for n in lengths} == set(texts)
    assert sum(map(len, found.values())) == len(set(texts))
    assert not any(a != b and b[: len(a)] == a for a in found for b in found)


def test_whole_texts_are_read_once_per_path():
    model = load_hf(tiny("mamba"))
    session = model.open((1, 2, 3))
    (scores,) = model.score([ScoreRequest(session, BUSH)])
    assert scores.rows == 6 + 6 + 5
    assert len(scores.after) == len(BUSH)
    with pytest.raises(BadRequest, match="at least one"):
        model.open(())
    with pytest.raises(BadRequest, match="hidden:LAYER"):
        model.score([ScoreRequest(session, NOTHING, ("attention",))])


def test_whole_texts_keep_to_the_context():
    reader = HFModel(tiny("llama"))
    model = UncachedModel(reader)
    with pytest.raises(OutOfRoom, match="longer than the 64"):
        model.score([ScoreRequest(model.open([1] * 65), NOTHING)])


# ---- files and names


@pytest.fixture
def folder(tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {"<pad>": 0, "<s>": 1, "</s>": 2} | {c: i + 3 for i, c in enumerate("abcdeĠ")} | {"ab": 9}
    backend = Tokenizer(models.BPE(vocab=letters, merges=[("a", "b")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**LLAMA)).save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_gives_model_and_vocabulary(folder):
    model = load_hf(folder, dtype=torch.float64, room=100)
    assert isinstance(model, CachedModel)
    assert model.room == 100
    assert model.network.model.dtype is torch.float64
    vocabulary = hf_vocabulary(folder, model.vocab)
    assert vocabulary.size == VOCAB
    assert vocabulary.encode("ab c</s>") == (9, 8, 5, 2)
    assert vocabulary.decode((9, 8, 5, 2)) == "ab c"
    assert vocabulary.eos == {2}
    assert vocabulary.bos == 1
    assert vocabulary.chat([{"role": "user", "content": "abc"}]) == "abc</s>"
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    assert hf_vocabulary(loaded, VOCAB).encode("ab") == (9,)


def test_missing_files_and_bad_names_say_what_to_do(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    (tmp_path / "broken.gguf").write_bytes(b"x")
    for name, words in {
        tmp_path / "nowhere": "no such file or folder",
        tmp_path: "no config.json",
        tmp_path / "weights.bin": "not a .gguf",
        tmp_path / "broken.gguf": "cannot load|pip install",
        "two words": "no name of a model on the Hub",
        "./somewhere": "no such file or folder",
    }.items():
        with pytest.raises(BadModel, match=words):
            load_hf(name)


def test_without_a_network_a_hub_name_fails_at_once(monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FetchFailed, match=r"cannot be reached.*HF_ENDPOINT"):
        load_hf("nobody/nothing-of-the-kind")


def test_without_transformers_the_error_names_the_extra(monkeypatch, folder):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"unspool\[hf\]"):
        hf.load_hf(folder)
