"""Files of trained drafters: every dialect is read as it is meant, and one of another target is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.drafterfiles import (
    DIM,
    KINDS,
    LAYER,
    LAYERS,
    VOCAB,
    dflash,
    dflash2,
    eagle1,
    eagle3,
    medusa,
    mtp_tensors,
)
from tests.support.littlemodel import little_model
from unspool import Settings, load
from unspool.api.trained_draft import trained_for
from unspool.core.errors import BadModel, BadRequest, BadScores
from unspool.models.drafters.forms import FORMS
from unspool.models.drafters.opening import is_drafter, open_drafter, open_native
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.table_model import Table
from unspool_train.drafter.export import eight_bits

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), LAYERS)


@pytest.fixture(scope="module")
def shape(target):
    return open_checkpoint(target).shape


LATTICE = ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")


def changed(folder, tensors=None, without=(), **settings):
    """The same folder with other settings and tensors."""
    file, config = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    held = {name: t for name, t in load_file(file).items() if name not in without}
    save_file({**held, **(tensors or {})}, file)
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder


@pytest.mark.parametrize(
    ("kind", "name", "states"),
    [
        ("eagle-1", "EAGLE-1/2", (LAYERS,)),
        ("eagle-3", "EAGLE-3", (2, 3, 3)),  # where a file does not say: 2, L/2, L − 3
        ("eagle-3, specforge", "EAGLE-3", (1, 3, 6)),  # outputs of layers 0, 2, 5
        ("eagle-3.1", "EAGLE-3.1", (2, 3, 3)),
        ("p-eagle", "P-EAGLE", (2, 3, 3)),
        ("dflash", "DFlash", (2, 5)),  # outputs of layers 1 and 4
        ("jetspec", "JetSpec", (2, 5)),
        ("dspark", "DSpark", (2, 5)),
        ("medusa", "Medusa", (LAYERS,)),
        ("mlp speculator", "MLP speculator", (LAYERS,)),
    ],
)
def test_kinds_are_told_apart(kind, name, states, shape, tmp_path):
    folder = KINDS[kind](tmp_path)
    spec = open_drafter(folder, shape).spec
    assert (spec.kind, spec.states) == (name, states)
    assert is_drafter(folder)


def test_a_model_is_no_drafter(target, tmp_path):
    assert not is_drafter(target)
    assert not is_drafter(tmp_path)


def test_speculators_count_hidden_states(shape, tmp_path):
    folder = eagle3(tmp_path, "speculators", eagle_aux_hidden_state_layer_ids=[0, 2, 5])
    assert open_drafter(folder, shape).spec.states == (0, 2, 5)


def test_whether_the_anchor_guesses(shape, tmp_path):
    assert open_drafter(dflash(tmp_path / "a"), shape).spec.depth == 3  # a block of 4, of which the first is known
    assert open_drafter(dflash(tmp_path / "b", "vanilla"), shape).spec.depth == 4
    assert open_drafter(dflash(tmp_path / "c", "vanilla", sample_from_anchor=False), shape).spec.depth == 3


def test_a_table_of_tokens_where_offsets_are_usual(shape, tmp_path):
    """t2d tells which it is: GGUF's absolute ids have come to safetensors too."""
    folder = eagle3(tmp_path)
    ids = open_drafter(folder, shape).tensors["ids"]
    told = load_file(folder / "model.safetensors")
    assert torch.equal(ids, told["d2t"] + torch.arange(len(ids)))
    assert bool(told["t2d"][ids].all())
    changed(folder, {"d2t": ids})
    assert torch.equal(open_drafter(folder, shape).tensors["ids"], ids)


@pytest.mark.parametrize("layout", ["deepseek", "qwen", "mimo"])
def test_a_module_inside_the_checkpoint(layout, target, tmp_path):
    folder = little_model(tmp_path, LAYERS)
    changed(folder, mtp_tensors(layout))
    lm = load(folder, draft="mtp")
    spec = lm.drafter.network.spec
    assert (spec.kind, spec.states, spec.recycles_normed) == ("MTP", (LAYERS,), True)
    assert spec.embedding_first == (layout != "mimo")
    norm = lm.drafter.network.tensors["norm.weight"]
    assert 0.5 < float(norm.mean()) < 1.5  # Qwen's are stored less one
    told = Settings(max_tokens=12, temperature=0)
    assert lm.generate("a text", told, "likeliest").tokens == lm.generate("a text", told).tokens


def test_a_model_without_a_module(target):
    with pytest.raises(BadModel, match="no module that predicts several tokens"):
        load(target, draft="mtp")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: changed(f, vocab_size=1000), "vocabulary of 1000 tokens, and the target has 258"),
        (
            lambda f: changed(f, {"fc.weight": torch.zeros(DIM, 3 * 48)}),
            r"fuse.weight \(32, 144\) \(expected \(32, 96\)\)",
        ),
        (lambda f: changed(f, without=["fc.weight", "norm.weight"]), "misses 2 of .*: fuse.weight, norm.weight"),
        (lambda f: changed(f, without=["lm_head.weight"]), "has no head"),
        (lambda f: changed(f, {"d2t": torch.full((60,), 10**6)}), "belongs to another vocabulary"),
        (lambda f: changed(f, {"t2d": torch.ones(9, dtype=torch.bool)}), "t2d has 9 rows"),
        (
            lambda f: changed(f, eagle_aux_hidden_state_layer_ids=[1, 2, 40]),
            "hidden states 1, 2, 40, and the target has",
        ),
        (lambda f: changed(f, eagle_aux_hidden_state_layer_ids="all"), "expected a list of layer numbers"),
        (lambda f: changed(f, target_hidden_size=64), "64 wide, and the target's are 32"),
        (lambda f: changed(f, num_hidden_layers=10**6), "num_hidden_layers"),
        (lambda f: changed(f, speculators_model_type="oracle"), "'oracle', which cannot be read"),
        (lambda f: changed(f, {"refiner_head.readout.weight": torch.zeros(2)}), "cannot be read yet"),
        (
            lambda f: changed(f, {"layers.0.attention_conv.base_kernel": torch.zeros(2)}),
            "its layers have attention_conv",
        ),
    ],
)
def test_wrong_pairs_are_refused_by_name(damage, said, target, tmp_path):
    with pytest.raises(BadModel, match=said):
        load(target, draft=damage(eagle3(tmp_path)))


@pytest.mark.parametrize(
    "make",
    [eagle1, dflash, dflash2, medusa, KINDS["mlp speculator"], KINDS["p-eagle"], *(KINDS[name] for name in FORMS)],
)
def test_every_kind_refuses_another_target(make, tmp_path):
    small = open_checkpoint(little_model(tmp_path / "target", 1)).shape
    folder = make(tmp_path / "drafter")
    if make in (dflash, dflash2):
        with pytest.raises(BadModel, match="trained for another model"):
            open_drafter(folder, small)
    with pytest.raises(BadModel, match=r"trained for|does not fit|the target's are"):
        open_drafter(folder, replace(small, dim=64, vocab=VOCAB))


def test_a_block_drafter_whose_convolutions_would_be_passed_over_is_refused(target, tmp_path):
    folder = changed(dflash2(tmp_path), without=[f"candidate_selector.{name}" for name in LATTICE])
    with pytest.raises(BadModel, match="its layers have attention_conv, mlp_conv"):
        load(target, draft=folder)


@pytest.mark.parametrize(
    ("flags", "tensors", "said"),
    [
        ({"conv_group_size": 5}, {}, "conv_group_size is 5, which does not divide its width 32"),
        ({"conv_kernel_size": 10**9}, {}, "conv_kernel_size"),
        ({"conv_kernel_size": 3}, {}, "base_kernel"),
        ({"selector_top_k": 0}, {}, "selector_top_k"),
        ({"selector_rank": 6}, {}, r"selector.before \(258, 5\) \(expected \(258, 6\)\)"),
        ({"output_multiplier": float("nan")}, {}, "output_multiplier"),
        ({"final_logit_softcapping": -3}, {}, "final_logit_softcapping"),
        ({}, {"candidate_selector.successor_codebook": torch.zeros(40, 5)}, "selector.after"),
    ],
)
def test_a_damaged_lattice_is_refused_by_name(flags, tensors, said, target, tmp_path):
    folder = dflash2(tmp_path)
    told = json.loads((folder / "config.json").read_text())
    with pytest.raises(BadModel, match=said):
        load(target, draft=changed(folder, tensors, dflash_config=told["dflash_config"] | flags))


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("hydra", {"drafter": "oracle"}, "'oracle', which is not known; these are: bpd, hydra"),
        ("hydra", {"depth": 10**6}, "depth is 1000000; expected 1 to 16"),
        ("hydra", {"vocab_size": 99}, "vocabulary of 99 tokens"),
        ("hydra", {"depth": 5}, "misses .* of .*: heads.3.pass.weight"),
        ("clover2", {"layers": 3}, "its layers are 2 of 32; expected 3 of 32"),
        ("chimera", {"layers": 2}, "layers is 2; expected 1 to 1"),
        ("specdec", {"mask_token_id": -1}, "mask_token_id"),
        (
            "clover",
            {"transformer_layer_config": {**LAYER, "num_attention_heads": 6}},
            "6 heads do not divide a state of 32",
        ),
        ("jakiro", {"target_hidden_size": 64}, "64 wide, and the target's are 32"),
    ],
)
def test_a_form_of_our_own_is_refused_by_name(name, damage, said, shape, tmp_path):
    with pytest.raises(BadModel, match=said):
        open_drafter(changed(KINDS[name](tmp_path), **damage), shape)


def test_half_of_what_adds_states_is_refused(shape, tmp_path):
    with pytest.raises(BadModel, match="without the other"):
        open_drafter(changed(KINDS["llm-to-slm"](tmp_path), without=["lift.down.weight"]), shape)


@pytest.mark.parametrize("name", FORMS)
def test_nan_ends_a_request_of_every_form(name, target, tmp_path):
    folder = KINDS[name](tmp_path)
    held = load_file(folder / "model.safetensors")
    broken = next(n for n in held if n.endswith(("norm.weight", "up.weight", "pass.weight")))
    lm = load(target, draft=changed(folder, {broken: torch.full_like(held[broken], float("nan"))}))
    with pytest.raises(BadScores, match=r"the drafter .* returned NaN"):
        lm.generate("a text", Settings(max_tokens=8), "chain")
    assert lm.generate("a text", Settings(max_tokens=8)).tokens


def test_matrices_in_eight_bits(shape, tmp_path):
    """What a row was scaled by stands beside it; a matrix without is refused, and so is one of another height."""
    whole = open_drafter(KINDS["hydra"](tmp_path), shape).tensors
    held = load_file(tmp_path / "model.safetensors")
    save_file(eight_bits(held, held), tmp_path / "model.safetensors")
    found = open_drafter(tmp_path, shape).tensors
    for name, tensor in whole.items():
        step = tensor.abs().amax(-1, keepdim=True) / 127
        assert bool(((found[name] - tensor).abs() <= step / 2 + 1e-6).all()), name
    narrow = load_file(tmp_path / "model.safetensors")
    name = "heads.0.pass.weight.scale"
    for damage in ({"without": [name]}, {"tensors": {name: narrow[name][:-1].clone()}}):
        save_file(narrow, tmp_path / "model.safetensors")
        with pytest.raises(BadModel, match="is stored in 8 bits; expected a matrix with"):
            open_drafter(changed(tmp_path, **damage), shape)


def test_a_truncated_file_is_refused(target, tmp_path):
    folder = eagle3(tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BadModel, match="not a complete safetensors file"):
        load(target, draft=folder)


@pytest.mark.parametrize(
    ("make", "more", "said"),
    [
        (medusa, {"token_map": torch.tensor(3)}, "has no 'token_map' with rows"),
        (partial(dflash, markov="vanilla"), {"d2t": torch.tensor(3)}, "has no 'd2t' with rows"),
        (medusa, {f"{'1' * 5000}.0.weight": torch.zeros(1)}, ""),
    ],
)
def test_numbers_where_tables_should_be_are_refused(make, more, said, shape, tmp_path):
    folder = changed(make(tmp_path), more)
    if not said:  # a name that is none of a head's, however many figures it has
        assert open_drafter(folder, shape).spec.depth == 3
        return
    with pytest.raises(BadModel, match=said):
        open_drafter(folder, shape)


def test_pickles_are_not_read(target, tmp_path):
    folder = medusa(tmp_path)
    (folder / "model.safetensors").rename(folder / "medusa_lm_head.pt")
    with pytest.raises(BadModel, match="is a pickle, which may run any code"):
        load(target, draft=folder)


def test_a_drafter_needs_the_native_runtime(tmp_path):
    with pytest.raises(BadRequest, match="needs the native runtime"):
        trained_for(Table(2, lambda _: (1, 1)), "a table", eagle3(tmp_path))


def test_nan_ends_its_own_request(target, tmp_path):
    folder = changed(eagle3(tmp_path), {"norm.weight": torch.full((DIM,), float("nan"))})
    lm = load(target, draft=folder)
    with pytest.raises(BadScores, match=r"the drafter .* returned NaN"):
        lm.generate("a text", Settings(max_tokens=8), "chain")
    assert lm.generate("a text", Settings(max_tokens=8)).tokens  # others go on


def test_the_file_itself_may_be_named(target, tmp_path):
    assert load(target, draft=eagle3(tmp_path) / "model.safetensors").drafter is not None


def test_native_modules_are_found_by_their_names(shape, tmp_path):
    with pytest.raises(BadModel, match="no module"):
        open_native(eagle3(tmp_path), shape)
