"""The native network is the one transformers computes, however its tokens are cut, packed and stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from unspool.core.errors import BadRequest, OutOfRoom
from unspool.models.weights import Checkpoint, open_checkpoint
from unspool.runtime.network.linear import dense
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import Batch, NetworkOutputs, Row

transformers = pytest.importorskip("transformers", reason="the reference needs transformers: pip install 'unspool[hf]'")

VOCAB, LENGTH = 97, 40
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def rope(kind: str, **settings: float) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **settings}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
FAMILIES: dict[str, Callable[[], object]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "llama-biased": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, head_dim=10),
    "llama3": lambda: transformers.LlamaConfig(**SIZES, **LLAMA3),
    "linear": lambda: transformers.LlamaConfig(**SIZES, **rope("linear", factor=4.0)),
    "yarn": lambda: transformers.LlamaConfig(**SIZES, **rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=7),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2-windowed": lambda: transformers.Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=7, max_window_layers=1
    ),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=16),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **SIZES,
        head_dim=16,
        query_pre_attn_scalar=12,
        sliding_window=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing from a second thread and stall where its core is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make a random model of a family once, with weights large enough to matter."""
    made: dict[str, Path] = {}

    def save(family: str) -> Path:
        if family not in made:
            torch.manual_seed(7)
            model = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]())
            for name, weight in model.named_parameters():
                weight.data.normal_(std=0.3 if weight.dim() == 2 else 0.2)
                if "norm" in name and family != "gemma3":
                    weight.data += 1
            made[family] = tmp_path_factory.mktemp(family)
            model.save_pretrained(made[family])
        return made[family]

    return save


class ExactNorm(torch.nn.Module):
    """The norm of a transformers model in its own type; transformers rounds to float32 there, even in float64."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.factors, self.eps = weight, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.factors


def reference(folder: Path, tokens: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return the logits and hidden states of transformers in float64."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa"
    ).eval()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                gemma = "Gemma" in type(child).__name__
                # Gemma adds 1 in float32, where the rounding belongs to the model.
                weight = (child.weight.float() + 1).double() if gemma else child.weight
                setattr(parent, name, ExactNorm(weight, child.eps if gemma else child.variance_epsilon))
    with torch.no_grad():
        out = model(tokens[None], output_hidden_states=True)
    return out.logits[0], tuple(state[0] for state in out.hidden_states)


def text(seed: int, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def run(net: Llama, tokens: torch.Tensor, slots: list[int], past: int, want: tuple[int, ...] = ()) -> NetworkOutputs:
    """Read `tokens`, which stand behind `past` tokens of the same text, and return all their logits."""
    count = len(tokens)
    row = Row(0, count, slots[: past + count], list(range(past + count)))
    places = torch.arange(past, past + count)
    return net.forward(Batch(tokens, places, slots[past : past + count], [row], torch.arange(count), want))


def scattered(count: int) -> list[int]:
    return torch.randperm(2 * count, generator=torch.Generator().manual_seed(3))[:count].tolist()


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_hidden_states_are_those_of_transformers(family: str, saved: Callable[[str], Path]) -> None:
    tokens = text(0)
    expected, states = reference(saved(family), tokens)
    net = Llama.load(open_checkpoint(saved(family)), torch.float64)
    found = run(net, tokens, list(range(LENGTH)), 0, want=(0, 1, -1))
    assert expected.abs().max() > 1
    assert far(found.logits, expected) < 1e-9
    assert found.logits.dtype == torch.float64
    for layer, state in ((0, states[0]), (1, states[1]), (-1, states[-1])):
        assert far(found.hidden[layer], state) < 1e-9


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_narrower_types_stay_close(family: str, dtype: torch.dtype, bound: float, saved: Callable[[str], Path]) -> None:
    tokens = text(0)
    exact = Llama.load(open_checkpoint(saved(family)), torch.float64)
    expected = run(exact, tokens, list(range(LENGTH)), 0).logits
    net = Llama.load(open_checkpoint(saved(family)), dtype)
    for cut in (LENGTH, 1, 2, 3):
        slots = net.slots.take(LENGTH)
        found = [run(net, tokens[i : i + cut], slots, i).logits for i in range(0, LENGTH, cut)]
        net.slots.drop(slots)
        assert found[0].dtype == torch.float32
        assert far(torch.cat(found), expected) < bound * float(expected.abs().max())


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
@pytest.mark.parametrize("cut", [1, 3, 11])
@pytest.mark.parametrize("place", [lambda n: list(range(5, 5 + n)), scattered], ids=["run", "scattered"])
def test_piece_by_piece_is_one_go(
    family: str, cut: int, place: Callable[[int], list[int]], saved: Callable[[str], Path]
) -> None:
    tokens, net = text(1), Llama.load(open_checkpoint(saved(family)), torch.float64)
    whole = run(net, tokens, list(range(LENGTH)), 0).logits
    slots = place(LENGTH)
    found = [run(net, tokens[i : i + cut], slots, i).logits for i in range(0, LENGTH, cut)]
    assert far(torch.cat(found), whole) < 1e-11


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_a_packed_batch_is_each_row_alone(family: str, saved: Callable[[str], Path]) -> None:
    net = Llama.load(open_checkpoint(saved(family)), torch.float64)
    lengths, olds = (1, 17, 5), (9, 0, 12)
    texts = [text(seed, old + new) for seed, (new, old) in enumerate(zip(lengths, olds, strict=True))]
    slots, alone = [], []
    for tokens, old in zip(texts, olds, strict=True):
        slots.append(net.slots.take(len(tokens)))
        if old:
            run(net, tokens[:old], slots[-1], 0)
        alone.append(run(net, tokens[old:], slots[-1], old).logits)
    rows, first = [], 0
    for tokens, held, count in zip(texts, slots, lengths, strict=True):
        rows.append(Row(first, count, held, list(range(len(tokens)))))
        first += count
    new = [slot for held, count in zip(slots, lengths, strict=True) for slot in held[-count:]]
    packed = torch.cat([tokens[old:] for tokens, old in zip(texts, olds, strict=True)])
    places = torch.cat([torch.arange(old, len(tokens)) for tokens, old in zip(texts, olds, strict=True)])
    read = torch.tensor([0, 17, 22])
    found = net.forward(Batch(packed, places, new, rows, read))
    assert far(found.logits, torch.cat(alone)[read]) < 1e-11


@pytest.mark.parametrize("family", ["llama3", "mistral", "gemma3"])
@pytest.mark.parametrize("siblings", [3, 9])
def test_a_tree_is_each_of_its_paths(family: str, siblings: int, saved: Callable[[str], Path]) -> None:
    """Behind 12 tokens: `siblings` tokens at the same place, and a child of each."""
    net, past = Llama.load(open_checkpoint(saved(family)), torch.float64), 12
    tokens, drafted = text(4, past), text(5, 2 * siblings)
    places = [*range(past), *[past] * siblings, *[past + 1] * siblings]
    hidden = torch.ones(2 * siblings, past + 2 * siblings, dtype=torch.bool)
    hidden[:, :past] = False
    for node in range(2 * siblings):
        hidden[node, past + node] = hidden[node, past + node % siblings] = False
    slots = scattered(past + 2 * siblings)
    run(net, tokens, slots, 0)
    row = Row(0, 2 * siblings, slots, places, hidden)
    batch = Batch(drafted, torch.tensor(places[past:]), slots[past:], [row], torch.arange(2 * siblings))
    found = net.forward(batch).logits
    free = [slot for slot in range(200) if slot not in slots][: past + 2]
    for node in range(siblings):
        path = torch.cat((tokens, drafted[[node, siblings + node]]))
        alone = run(net, path, free, 0).logits
        assert far(found[[node, siblings + node]], alone[past:]) < 1e-11


def test_a_long_prefill_is_cut_into_blocks(saved: Callable[[str], Path]) -> None:
    tokens = text(2, 256).repeat(2)[:250]
    for family in ("mistral", "llama"):
        net = Llama.load(open_checkpoint(saved(family)), torch.float64)
        expected, _ = reference(saved(family), tokens)
        slots = net.slots.take(256)
        whole = run(net, tokens, slots, 0).logits
        run(net, tokens[:3], slots, 0)
        assert far(whole, expected) < 1e-9
        assert far(run(net, tokens[3:], slots, 3).logits, expected[3:]) < 1e-9


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float64, 1e-13)])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_kernel_is_the_same_product(dtype: torch.dtype, bound: float, threads: int) -> None:
    torch.set_num_threads(threads)
    make = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(80, 64, generator=make) / 8, torch.randn(80, generator=make)
    weight, bias = weight.to(dtype), bias.to(dtype)
    for count in (0, 1, 2, 3, 8, 12, 16, 70):
        x = torch.randn(count, 64, generator=make).to(dtype)
        for b in (None, bias):
            expected = x.double() @ weight.double().T + (0 if b is None else b.double())
            found = dense(weight, b)(x)
            assert found.shape == (count, 80)
            assert torch.allclose(found.double(), expected, rtol=bound, atol=bound)
    assert torch.backends.mkldnn.enabled


def test_a_tied_head_is_the_embedding(saved: Callable[[str], Path]) -> None:
    net = Llama.load(open_checkpoint(saved("qwen2")), torch.float32)
    assert net.ends.head.weight.data_ptr() == net.ends.embedding.data_ptr()


def test_what_cannot_be_run_says_why(saved: Callable[[str], Path]) -> None:
    checkpoint = open_checkpoint(saved("llama"))
    with pytest.raises(BadRequest, match=r"torch\.int64"):
        Llama.load(checkpoint, torch.int64)
    with pytest.raises(BadRequest, match="room is 0"):
        Llama.load(checkpoint, room=0)
    net = Llama.load(checkpoint)
    assert (net.vocab, net.context, net.layers, net.slots.room) == (VOCAB, 256, 3, 256)
    one = torch.tensor([3])
    with pytest.raises(OutOfRoom, match="position 256"):
        net.forward(Batch(one, torch.tensor([256]), [0], [Row(0, 1, [0], [256])], torch.tensor([0])))
    with pytest.raises(BadRequest, match="hidden:3 was asked for"):
        net.forward(Batch(one, torch.tensor([0]), [0], [Row(0, 1, [0], [0])], torch.tensor([0]), want=(3,)))


@pytest.fixture
def default_model(request: pytest.FixtureRequest) -> Path:
    given = os.environ.get("UNSPOOL_TEST_GGUF")
    return Path(given if given else request.getfixturevalue("smollm2_path"))


def agrees(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    prompt = "The quick brown fox jumps over the lazy dog. In 1905, Albert Einstein published four papers that"
    tokens = torch.tensor(checkpoint.vocabulary().encode(prompt))
    with torch.no_grad():
        expected = model.eval()(tokens[None]).logits[0]
    net = Llama.load(checkpoint, torch.float32, room=64)
    slots = net.slots.take(len(tokens))
    assert far(run(net, tokens, slots, 0).logits, expected) < 1e-3
    alone = torch.cat([run(net, tokens[i : i + 1], slots, i).logits for i in range(8)])
    assert far(alone, expected[:8]) < 1e-3


def test_the_default_model_is_that_of_transformers(default_model: Path) -> None:
    """Give transformers our tensors: quick, and it checks all but how the file was read."""
    checkpoint = open_checkpoint(default_model)
    shape = checkpoint.shape
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.dim,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        rms_norm_eps=shape.norm_eps,
        tie_word_embeddings=shape.tied,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({name: checkpoint.tensor(name) for name in checkpoint.names()}, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    agrees(model, checkpoint)


@pytest.mark.slow
def test_the_default_model_is_that_of_transformers_read_from_the_same_file(default_model: Path) -> None:
    for needed in ("gguf", "accelerate"):
        pytest.importorskip(needed, reason=f"transformers reads GGUF files with {needed}: pip install {needed}")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        default_model.parent, gguf_file=default_model.name, dtype=torch.float32
    )
    agrees(model, open_checkpoint(default_model))
