"""A target of another family than Llama: Qwen2, with biases at queries, keys and values, and a chat template."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from selection import crossed
from tokenizers import Tokenizer, processors

np = pytest.importorskip("numpy")

from tests.support.littlemodel import little_model  # noqa: E402
from unspool import load  # noqa: E402
from unspool.api.settings import Settings  # noqa: E402
from unspool.core.errors import BadModel, BadRequest  # noqa: E402
from unspool.core.tree import NOTHING, ROOT  # noqa: E402
from unspool.runtime.engine.contracts import ScoreRequest  # noqa: E402
from unspool_train.drafter.drafter_training import DrafterSettings, drafter  # noqa: E402
from unspool_train.drafter.export import DELTA  # noqa: E402
from unspool_train.drafter.kinds import KINDS  # noqa: E402
from unspool_train.framing import Framing, of_documents, of_template  # noqa: E402
from unspool_train.speak import SpeakSettings, save, speak  # noqa: E402
from unspool_train.teacher import Teacher  # noqa: E402
from unspool_train.token_corpus import TokenCorpus  # noqa: E402
from unspool_train.training_network import Frozen  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
LAYERS = 4
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
TEMPLATE += "{% if add_generation_prompt %}assistant: {% endif %}"
CHANGES = [name for name, kind in KINDS.items() if kind.form == DELTA]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = little_model(tmp_path_factory.mktemp("qwen2"), LAYERS)
    for file, told in (
        ("config.json", {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}),
        ("tokenizer_config.json", {"chat_template": TEMPLATE}),
    ):
        (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), **told}))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))  # every text begins with <s>
    tensors, dice = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(3)
    for layer in range(LAYERS):
        for name, size in (("q", 32), ("k", 16), ("v", 16)):
            bias = torch.randn(size, generator=dice)
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = bias
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def spoken(target, tmp_path_factory):
    """What it answers to questions, framed by its own template."""
    folder = tmp_path_factory.mktemp("spoken")
    (folder / "asked").write_text("\n".join(f"what is {n}?" for n in range(12)))
    told = SpeakSettings(
        model=str(target), asked=str(folder / "asked"), out=str(folder / "answers.npz"), answer=24, rows=12, eager=True,
        device="cpu", drawn=0.5,
    )  # fmt: skip
    assert speak(told)["documents"] == 24
    return folder / "answers.npz"


def test_what_is_trained_on_is_what_the_runtime_computes(target):
    lm, frozen = load(target), Frozen.open(str(target), "cpu")
    assert len(frozen.biases) == LAYERS
    text = [0, *range(40, 60), 7, 7]
    states = Teacher(frozen).states(torch.tensor([text]))[0]
    session = lm.model.open(text)
    (scores,) = lm.model.score([ScoreRequest(session, NOTHING)])
    assert torch.allclose(states[-1] @ frozen.head.T, scores.law(ROOT).scores, atol=1e-3)
    session.close()


def test_answers_are_those_of_the_model_in_its_own_template(target, spoken):
    lm, corpus = load(target), TokenCorpus.read([spoken])
    asked = {tuple(lm.encode([{"role": "user", "content": f"what is {n}?"}])) for n in range(12)}
    greedy = 0
    for number in range(len(corpus)):
        one = corpus[number]
        prompt, answer = one.tokens[: one.prompt].tolist(), one.tokens[one.prompt :].tolist()
        assert tuple(prompt) in asked
        if corpus.greedy[number]:
            greedy += 1
            text = lm.generate(prompt, Settings(max_tokens=24, temperature=0, ignore_eos=True)).tokens
            assert answer == list(text[: len(answer)])
            assert answer, "and something was said"
    assert greedy == len(asked)


def test_a_template_and_the_documents_made_with_it_show_the_same_frame(target, spoken):
    vocabulary = load(target).vocabulary
    told = of_template(vocabulary)
    assert (vocabulary.decode(told.opening), vocabulary.decode(told.bridge), told.end) == ("user: ", "assistant: ", 1)
    assert told.opening[0] == vocabulary.bos
    shown = of_documents(TokenCorpus.read([spoken]))
    assert shown.opening[: len(told.opening)] == told.opening, "and what all twelve questions begin with"
    assert shown.bridge[-len(told.bridge) :] == told.bridge
    assert Framing([0, 5], [7], 1).prompt(vocabulary, "a")[:2] == [0, 5]
    assert Framing([0, 5], [7], 1).prompt(vocabulary, "a").count(0) == 1, "a text begins once"


def test_a_model_without_a_template_asks_for_documents(tmp_path):
    with pytest.raises(BadRequest, match="--like"):
        of_template(load(little_model(tmp_path)).vocabulary)


@pytest.mark.parametrize("kind", crossed(sorted(KINDS), quick=5))
def test_every_kind_learns_from_it_and_is_read(kind, target, spoken, tmp_path):
    found = drafter(
        DrafterSettings(
            model=str(target), corpus=str(spoken), out=str(tmp_path / "out"), device="cpu", steps=3, minutes=5.0,
            depth=2, vocabulary=90, tokens=512, held=0.2, exams=1, kind=kind, mask=3,
        )
    )  # fmt: skip
    assert found["steps"] == 3
    if kind in CHANGES:
        assert (tmp_path / "out" / "delta.safetensors").exists()
        return
    lm = load(target, draft=tmp_path / "out")
    plain = lm.generate("a text", Settings(max_tokens=8, temperature=0)).tokens
    assert lm.generate("a text", Settings(max_tokens=8, temperature=0), "likeliest").tokens == plain


def test_tokens_of_large_vocabularies_are_kept(tmp_path):
    texts = [([1, 2, 70_000, 151_935], 2, 1), ([3, 65_535, 65_536], 1, 1)]
    save(str(tmp_path / "wide.npz"), texts)
    save(str(tmp_path / "narrow.npz"), [([9, 10, 11], 1, 1)])
    read = TokenCorpus.read([tmp_path])
    assert sorted(read[n].tokens.tolist() for n in range(3)) == sorted([text for text, _, _ in texts] + [[9, 10, 11]])


def test_norms_in_the_heads_are_still_refused(target, tmp_path):
    config = json.loads((target / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    (tmp_path / "tokenizer.json").write_text((target / "tokenizer.json").read_text())
    tensors = load_file(target / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}
    for layer in range(LAYERS):
        tensors |= {f"model.layers.{layer}.self_attn.{name}_norm.weight": torch.ones(8) for name in ("q", "k")}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadModel, match="extra norms"):
        Frozen.open(str(tmp_path), "cpu")
