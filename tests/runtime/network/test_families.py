"""Every family that is read natively computes what transformers does, in trees, batches and forks."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from selection import crossed

from tests.support.draftfamilies import OWN, own_module
from tests.support.families import CHECKS, FAMILIES, SIZES, Family, written
from unspool.core.errors import BadModel, NotNative
from unspool.models.config import read_config
from unspool.models.families import FAMILIES as KNOWN
from unspool.models.families import TEXT_OF
from unspool.models.shape import Shape
from unspool.models.weights import open_checkpoint
from unspool.runtime.cpu.packed_llama import unpacked
from unspool.runtime.cuda.fusible import unfused
from unspool.runtime.network.llama import Llama

pytest.importorskip("transformers", reason="the reference needs transformers: pip install 'unspool[hf]'")

pytestmark = pytest.mark.usefixtures("one_thread")
Made = Callable[[Family], tuple[torch.nn.Module, Path]]
BY_KIND = {family.kind: family for family in FAMILIES if not family.vision}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Write a family's little model once."""
    known: dict[str, tuple[torch.nn.Module, Path]] = {}

    def make(family: Family) -> tuple[torch.nn.Module, Path]:
        if family.title not in known:
            folder = tmp_path_factory.mktemp(family.kind)
            known[family.title] = written(family, folder), folder
        return known[family.title]

    return make


TITLED = {family.title: family for family in FAMILIES}
ALWAYS = [check for check in CHECKS if check != "with a drafter"]  # which takes as long as all of these


@pytest.mark.parametrize(
    ("title", "check"),
    [*crossed(TITLED, ALWAYS, quick=1), *crossed(TITLED, ["with a drafter"], quick=3)],
)
def test_a_family_keeps_its_word(title: str, check: str, made: Made) -> None:
    CHECKS[check](*made(TITLED[title]))


@pytest.mark.parametrize("kind", sorted(OWN))
def test_a_module_that_predicts_tokens_guesses_what_its_formula_says(kind: str, made: Made, tmp_path: Path) -> None:
    own_module(*made(BY_KIND[kind]), tmp_path)


def test_no_family_is_read_that_is_not_tested() -> None:
    assert set(KNOWN) <= {*BY_KIND, *(TEXT_OF[family.kind] for family in FAMILIES if family.vision)}


def odd(made: Made, kind: str, **settings: object) -> Shape:
    _, folder = made(BY_KIND[kind])
    return read_config({**json.loads((folder / "config.json").read_text()), **settings}, "config.json")


@pytest.mark.parametrize("kind", BY_KIND)
def test_a_setting_that_nobody_knows_is_refused_by_its_name(kind: str, made: Made) -> None:
    with pytest.raises(NotNative, match="it sets mystery_scale"):
        odd(made, kind, mystery_scale=0.5)
    given = json.loads((made(BY_KIND[kind])[1] / "config.json").read_text()).get("rope_parameters")
    if given is None:  # of a family that does not tell places
        return
    group = next((name for name in ("full_attention",) if name in given), None)
    strange = {**given, "stretch": 2.0} if group is None else {**given, group: {**given[group], "stretch": 2.0}}
    with pytest.raises(NotNative, match=r"rope_parameters\..*stretch"):
        odd(made, kind, rope_parameters=strange)


@pytest.mark.parametrize("kind", sorted(set(KNOWN) - {"glm4_moe"}))  # whose class's own numbers make no pairs
def test_an_absent_setting_means_what_the_class_of_transformers_has(kind: str) -> None:
    import transformers

    whole = json.loads(transformers.AutoConfig.for_model(kind).to_json_string(use_diff=False))
    expected = read_config(whole, "config.json")
    for name in whole.keys() - {"model_type", "tie_word_embeddings" if "_vl_" in kind else "model_type"}:
        less = {key: value for key, value in whole.items() if key != name}
        if name in SIZES or "experts" in name:  # which a file must have, unless it is a part of one that also sees
            with suppress(BadModel):
                assert read_config(less, "config.json") == expected, name
        else:
            assert read_config(less, "config.json") == expected, name


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv"),
        ("gemma2", {"use_bidirectional_attention": True}, "both directions"),
        ("llama", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "part of each head"),
        ("qwen3", {"layer_types": ["linear_attention"] * 4}, "layers of type linear_attention"),
        ("granite", {"hidden_act": "relu2"}, "activation"),
    ],
)
def test_what_a_family_has_not_is_refused(kind: str, settings: dict[str, object], why: str, made: Made) -> None:
    with pytest.raises(NotNative, match=why):
        odd(made, kind, **settings)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("qwen3_moe", {"num_local_experts": 1 << 20}),
        ("mixtral", {"num_experts_per_tok": 9}),
        ("smollm3", {"no_rope_layers": [1, 2]}),
        ("glm4_moe", {"n_group": 3}),
        ("phi3", {"rope_parameters": {"partial_rotary_factor": 0.001, "rope_theta": 1e4}}),
    ],
)
def test_damaged_numbers_are_refused(kind: str, settings: dict[str, object], made: Made) -> None:
    with pytest.raises(BadModel):
        odd(made, kind, **settings)


def test_kernels_of_the_plain_family_refuse_what_they_do_not_know(made: Made) -> None:
    known = {"llama", "mistral", "ministral", "qwen2", "qwen3", "gemma3_text", "qwen3_vl"}
    for family in FAMILIES:
        shape = open_checkpoint(made(family)[1]).shape
        assert (shape.oddity() is None) == (family.kind in known), family.kind
        if family.kind not in known:
            assert unpacked(shape) is not None
        assert unfused(shape) is None


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_model_that_also_sees_is_read(prefix: str, made: Made, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model, folder = made(BY_KIND["gemma3_text"])
    tensors = load_file(folder / "model.safetensors")
    tensors = {name.replace("model.", prefix, 1): tensor for name, tensor in tensors.items()}
    save_file({**tensors, "vision_tower.patch.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    text = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 8}, "image_token_index": 3}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    CHECKS["logits = transformers"](model, tmp_path)


def test_experts_are_read_whichever_way_they_lie(made: Made, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    (family,) = (family for family in FAMILIES if family.kind == "qwen3_vl_moe")
    model, folder = made(family)
    tensors = load_file(folder / "model.safetensors")
    turned = {name: t.mT.contiguous() if ".experts." in name else t for name, t in tensors.items()}
    save_file(turned, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    CHECKS["logits = transformers"](model, tmp_path)


def test_the_page_of_models_lists_what_is_tested() -> None:
    """`scripts/models` writes the table after trying every cell; here every cell has been tried above."""
    script = Path(__file__).parents[3] / "scripts" / "models"
    script_globals = runpy.run_path(str(script))
    told = script_globals["table"]({family.title: ["yes"] * (1 + len(CHECKS)) for family in FAMILIES})
    assert told in script_globals["PAGE"].read_text(), "run scripts/models"


def test_factors_of_a_file_stretch_the_turns_of_layers_that_see_all_alone(made: Made) -> None:
    """Where windowed layers turn by another base, `rope_freqs` of a GGUF file are not theirs."""
    checkpoint = open_checkpoint(made(BY_KIND["gemma3_text"])[1])
    two = replace(checkpoint.shape, local_rope_theta=100.0, windows=(7, None, 7, None))

    class Stretched:
        shape, tensor = two, staticmethod(checkpoint.tensor)

        def __init__(self, factors: torch.Tensor | None) -> None:
            self.rope_factors = factors

    plain = Llama.load(Stretched(None))  # type: ignore[arg-type]
    found = Llama.load(Stretched(torch.full((two.head_dim // 2,), 4.0)))  # type: ignore[arg-type]
    assert len(found._rotaries) == 2
    for rope, rotary in found._rotaries.items():
        same = torch.equal(rotary.table(9)[0], plain._rotaries[rope].table(9)[0])
        assert same == (rope != two.rope)
