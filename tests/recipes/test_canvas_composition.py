"""What fills canvases, composed by name: which holes, where, by which looks; blocks of the model's own size."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from canvases import Noise, Scripted, counted, told
from letters import Letters

from unspool.api.ignored import ignored
from unspool.core.canvas import Canvas
from unspool.core.chance import Philox
from unspool.core.claim import HEURISTIC, LAW
from unspool.core.errors import BadRequest
from unspool.core.option import MODEL
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.loops.denoise import Denoise
from unspool.loops.unmasker import FixedBlocks, ModelBlocks, blocks_of, whole
from unspool.models.shape import DiffusionSpec
from unspool.proof.prove import prove_entry
from unspool.recipes.canvas_parts import ROLES, STANDS_FOR
from unspool.recipes.methods import claim_of, described, entries, fitted, method, requested, runnable
from unspool.rules import unmask
from unspool.rules.unmask.filtered import Filter, Filtered
from unspool.runtime.engine.engine import Engine

WORDS = Letters(tuple("abcdefgh \n"), controls=0, ends=2)
UNMASK = [entry.name for entry in runnable() if entry.family == "unmask" and entry.name != "filtered"]


CACHES = ("cached_dual", "cached_prefix", "delayed", "interval", "windowed")


@dataclass(frozen=True)
class Blocked(Letters):
    """Letters of a model that fills so many places together."""

    block: int | None = 3


def test_the_products_of_the_papers_can_be_said():
    assert method("factor + cached_dual") == Denoise(unmask.Factor(1.0), 0, ModelBlocks(), unmask.CachedDual())
    assert method("confident:threshold=0.8 + credited") == Denoise(
        unmask.Confident(0.8), 0, ModelBlocks(), unmask.Credited()
    )
    assert method("adaptive + cached_prefix") == Denoise(
        unmask.Confident(), 0, unmask.Adaptive(MODEL), unmask.CachedPrefix()
    )
    over = method("credited + cached_dual + factor:block=8,size=24")
    assert over == Denoise(unmask.Factor(1.0), 24, FixedBlocks(8), unmask.Credited(view=unmask.CachedDual()))
    early = method("factor:block=8 + early")
    assert early == Denoise(unmask.Early(unmask.Factor(1.0), FixedBlocks(8)), 0, whole)
    assert requested("factor + cached_dual") == method("factor + cached_dual")


def test_a_filter_brings_the_size_of_its_blocks_to_the_end_of_text(tmp_path):
    Filter(4, 4).save(tmp_path / "filter.safetensors")
    for spec in ("filtered:file={} + foreseen", "foreseen + filtered:file={}"):
        made = method(spec.format(tmp_path / "filter.safetensors"))
        assert isinstance(made.unmask, Filtered)
        assert made.blocks == unmask.Foreseen(4)


def test_the_order_of_parts_says_nothing_where_each_decides_its_own():
    assert method("cached_dual + factor + adaptive") == method("adaptive + cached_dual + factor")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("factor + confident", "factor and confident both say which holes are filled"),
        ("credited:threshold=0.8 + factor", "credited and factor both say which holes are filled"),
        ("adaptive + foreseen", "adaptive and foreseen both say where is looked"),
        ("guided + cached_dual", "guided and cached_dual both say how is looked"),
        ("quota:ends=never + cached_dual", "quota and cached_dual both say how is looked"),
        ("cached_prefix + credited + cached_dual", "both say how is looked"),
        ("early + early", "early and early both say which holes are filled"),
        ("early + factor + early", "factor and early both say which holes are filled"),
        ("factor:block=4 + adaptive:block=8", "says block 2 times"),
        ("factor + block", "'block' is of the family verify; expected parts that fill a canvas"),
        ("factor + cached_dual:nonsense=1", "'cached_dual' has no option 'nonsense'"),
        ("one + one + one + one + one + one", "has 6 parts; expected at most 5"),
    ],
)
def test_two_that_decide_the_same_are_refused_by_name(spec, why):
    for read in (method, requested):
        with pytest.raises(BadRequest, match=why):
            read(spec)


def test_a_composition_promises_no_more_than_each_of_its_parts():
    assert claim_of("one") is LAW
    assert claim_of("one + cached_dual") is claim_of("cached_dual + one") is HEURISTIC
    proof = prove_entry(described("factor:size=2 + cached_dual"), quick=True)
    assert proof.ok


def test_every_name_stands_for_something_that_it_has():
    for name in UNMASK:
        made, plain = method(name), Denoise(unmask.Confident())
        for role in STANDS_FOR.get(name, ("unmask",)):
            assert role in ROLES
            if role != "unmask":
                assert getattr(made, role) != getattr(plain, role), (name, role)


@pytest.mark.parametrize("view", ["cached_dual", "credited", "cached_prefix + credited", "delayed"])
@pytest.mark.parametrize(
    "choice", ["factor", "entropy_bound", "local + adaptive", "edit + dynamic", "quota + foreseen"]
)
def test_every_product_writes_a_text(choice, view):
    torch.manual_seed(0)
    engine = Engine({"target": Noise(WORDS.size, 3)})
    job = engine.submit(
        counted(fitted(f"{choice} + {view}", WORDS), 100), (0, 1), Philox(1), Temperature(1.0), Stop(WORDS.eos, most=9)
    )
    engine.run()
    tokens = job.result().tokens
    assert 1 <= len(tokens) <= 9
    assert len(tokens) == 9 or tokens[-1] in WORDS.eos


# ---- blocks of the model's own size


def test_a_block_is_the_models_unless_it_is_said():
    own = Blocked(WORDS.pieces)
    assert fitted("confident", own).blocks == FixedBlocks(3)
    assert fitted("confident", WORDS).blocks == FixedBlocks(32)  # it does not say
    assert fitted("confident:block=5", own).blocks == FixedBlocks(5)
    assert fitted("confident:block=0", own).blocks is whole
    assert fitted("dynamic", WORDS).blocks == FixedBlocks(4)
    assert fitted("adaptive", own).blocks.size == 3
    assert fitted("foreseen", own).blocks.block == 3
    assert fitted("cycle:block=-1", own).blocks.block == 3
    assert fitted("early", own).unmask.blocks == FixedBlocks(3)
    assert blocks_of(MODEL)(Canvas.blank((0,), 40)).window == (1, 33)
    assert DiffusionSpec("blocks", "aligned", 0, block=4).together == 4
    assert DiffusionSpec("block", "aligned", 0).together == 8
    assert DiffusionSpec("full", "aligned", 0).together is None


# ---- ends of text

END = 5


def test_a_run_of_ends_is_filled_by_its_first_and_not_one_by_one():
    """Of five places the last three end the text by the best guess, the later the surer: three looks, not five."""
    unsure = {1: (0, 0.5), 2: (1, 0.4), 3: (END, 0.6), 4: (END, 0.7), 5: (END, 0.8)}
    tokens, looks, _ = told(Denoise(unmask.Confident(0.9), 5), Scripted(unsure), stop=Stop(frozenset({END})))
    assert tokens == (0, 1, END)
    assert looks == 3


def test_a_sure_end_fills_all_to_its_right():
    sure = {1: (0, 0.95), 2: (1, 0.95), 3: (END, 0.95), 4: (2, 0.3), 5: (3, 0.3)}
    tokens, looks, _ = told(Denoise(unmask.Confident(0.9), 5), Scripted(sure), stop=Stop(frozenset({END})))
    assert (tokens, looks) == ((0, 1, END), 1)


def test_an_end_before_other_words_has_no_run():
    """What stands behind it by the best guess is no end: it may be filled first, as ever."""
    words = {1: (0, 0.5), 2: (END, 0.4), 3: (1, 0.95)}
    _, _, canvases = told(Denoise(unmask.Confident(0.9), 3), Scripted(words), stop=Stop(frozenset({END})))
    assert canvases[0].tokens[3] == 1


# ---- what a model pays no heed to


class Filling:
    """A model that fills, and keeps keys or not."""

    def __init__(self, keeps):
        self.vocab, self.filling, self.keeps_keys = 4, DiffusionSpec("block", "aligned", 0), keeps

    def look(self, asked):
        raise AssertionError("not asked here")


@pytest.mark.parametrize("name", [*CACHES, "credited + delayed"])
def test_a_cache_that_the_model_ignores_is_named(name):
    assert "does nothing here" in ignored(method(name), Filling(keeps=False))
    assert ignored(method(name), Filling(keeps=True)) is None
    assert ignored(method("credited"), Filling(keeps=False)) is None
    assert ignored(method(name), SimpleNamespace()) is None


def test_every_view_that_speaks_of_old_keys_is_declared():
    """By its claim: what is exact only where nothing is old."""
    spoken = {name for name in UNMASK if "nothing of it is old" in (entries()[name].rule.__doc__ or "")}
    assert spoken == {*CACHES}
