"""Names that people know: papers', systems', numbers on arXiv; and a word for those that nobody knows."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest
from repository import ROOT

from unspool.apps.cli import root
from unspool.apps.cli.group import known_method
from unspool.core.errors import BadRequest
from unspool.proof import prove
from unspool.recipes.aliases import DRAFTER_PAPERS, ELSEWHERE, KNOWN_AS, PAPERS
from unspool.recipes.methods import entries, method, named, needs, requested
from unspool.recipes.names import (
    _JOINED,
    HOMES,
    NEAR,
    RENAMED,
    canonical,
    checked,
    known,
    parts_of,
    plainly,
    suggestions,
)


def test_the_table_is_the_registry():
    """Where each rule stands is written down, so that it can be found without importing all of them."""
    assert {name: home.family for name, home in HOMES.items()} == {e.name: e.family for e in entries().values()}
    for name in HOMES:
        assert named(name) is entries()[name]


def test_every_other_name_is_of_a_rule_and_no_rule_is_called_so():
    assert {*KNOWN_AS.values()} <= {*HOMES}
    ours = {plainly(name) for name in HOMES}
    assert not [alias for alias in KNOWN_AS if plainly(alias) in ours]
    assert len({plainly(alias) for alias in KNOWN_AS}) == len(KNOWN_AS)


def test_every_paper_of_the_registry_is_known():
    papers = {entry.paper for entry in entries().values() if entry.paper}
    assert papers == {*PAPERS}
    for paper, name in PAPERS.items():
        assert entries()[name].paper == paper
    assert {*DRAFTER_PAPERS.values()} <= {*entries()}
    assert not {*DRAFTER_PAPERS} & {*PAPERS}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("medusa", "heads"),
        ("Medusa", "heads"),
        ("eagle-2", "likeliest"),
        ("DySpec", "dyspec"),
        ("RSD-S", "rsd_s"),
        ("sample match", "sample_match"),
        ("token_recycling", "recycle"),
        ("Token Recycling", "recycle"),
        ("fast-dllm", "confident"),
        ("prompt-lookup", "lookup"),
        ("PLD", "lookup"),
        ("spectr", "kseq"),
        ("best-of-N", "several"),
        ("LLaDA2.1", "edit"),
        ("2304.04487", "lookup"),
        ("2402.05109", "likeliest"),  # Hydra, a trained drafter
        ("arXiv:2304.04487v3", "lookup"),
        ("cached-dual", "cached_dual"),
        ("lookup", "lookup"),
    ],
)
def test_people_s_names(said, name):
    assert known(said) == name
    assert named(said).name == name


# The systems of the first families, as their papers call them.
SYSTEMS = """
ADED, SpecMQuant, Token Recycling, Aggressive decoding, STAND, SpecTr, DySpec, Lookahead, Jacobi, PJ, PGJ, HGJ, DDGviz,
PD-VLA,
SAM-Decoding, OPT-Tree, SLEM, SLRS, TLI, FastCoT, CodeSwift, Leviathan, SpecReason, ReSpec, Ouroboros, BiLD, S2D,
AASD, SpecDec++, RSD, RSD-C, RSD-S, GBV, REST, Sequoia, SpecInfer, SuffixDecoding, GAD++, MBR, LayerSkip, Draft&Verify,
AWRS, JSONSchemaBench, AutoTemplate, NeuroLogic A*esque, ASAp, STATIC, Learn2PD, WeDLM, ETE, ParallelBench,
Window-Diffusion, R²-dLLM, MDGR, APD, POINTER, AR2Diff, GenMol, AS-ARM, ASSD, LRD, Dimple, LocalLeap, S2D2, Prophet,
dParallel, CreditDecoding, CFG-constrained diffusion, LAVE, AdaBlock, PG-TD, Diverse beam, A*-decoding, CNTP, SED,
Predictive-Decoding, SMC reward-guided, CARS, EAGLE-2, Medusa, Spec-Bench, LUD, PPD, Chimera, Clover, Clover-2, FLASH,
LLM-to-SLM, SpecDec, KOALA, Amphista, Jakiro, Hydra, Hydra++, direct alignment, TVD++, Falcon, CLLM,
Blockwise parallel decoding, Set Block Decoding, RecycleGPT, SpecVLM, SPACE, EAGLE, EAGLE-3, EAGLE-3.1, MTP, P-EAGLE,
DFlash, DSpark, JetSpec, DDTree, Hidden Transfer, AdaEDL, SVIP, PEARL, TETRIS, SpecHub, Judge decoding, KLASS, dInfer,
LRD, dLLM-Cache, dKV-Cache, Fast-dLLM, LLaDA, Dream, MDLM, ReMDM, MaskGIT, EB-Sampler, SlowFast, Power-SMC,
Whisper-LLaDA, AWRS + SMC, predicted outputs, token healing, 2401.07851, 2411.13157, 2502.19732, 2404.16710, 2309.08168,
2501.10868, 2508.10111, 2510.04767
"""


@pytest.mark.parametrize("system", [name.strip() for name in SYSTEMS.split(",")])
def test_every_system_is_found_by_its_paper_s_name(system):
    if (name := known(system)) is not None:
        assert named(system) is entries()[name]
        return
    with pytest.raises(BadRequest, match="is no method by itself: ") as told:
        method(system)
    commands = re.findall(r"`unspool (\w+)(?: (\w+))?", str(told.value))
    objects = re.findall(r"(unspool\.[\w.]+)\.(\w+)", str(told.value))
    assert all(hasattr(import_module(module), name) for module, name in objects)
    for group, inner in commands:
        command = root.root.get_command(None, group)
        assert command is not None
        if inner and hasattr(command, "get_command"):
            assert command.get_command(None, inner) is not None
    assert commands or objects or "`--" in str(told.value)


def test_a_system_of_the_page_is_found_by_what_stands_before_its_variant():
    """As in `AASD, alignment sampling`, `AWRS with SMC`, `S2D2, routed`: by the first name, or one that it lists."""
    page = (ROOT / "docs/systems.md").read_text("utf-8").split("## In the terms")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`unspool run" in line]
    names = [row.split("|")[1].strip() for row in rows]
    assert len(names) > 100
    for name in names:
        said = {name, *re.split(r", | \(|: | with ", name)}
        assert any(map(known, said)) or {*map(plainly, said)} & {*map(plainly, ELSEWHERE)}, name


def test_what_is_found_elsewhere_is_no_method():
    assert not [name for name in ELSEWHERE if known(name)]


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_understood_for_one_release_with_a_note(old):
    assert named(old).name == known(old) == RENAMED[old]
    if entries()[RENAMED[old]].build is not None:
        with pytest.warns(FutureWarning, match=f"{old!r} is now called {RENAMED[old]!r}"):
            method(old)


def test_the_command_line_notes_an_old_name_once(capsys):
    assert known_method(None, None, "bush:widths=2+1") == "rsd_c:widths=2+1"
    assert known_method(None, None, ("plain", "walk")) == ("plain", "sample_match")
    assert capsys.readouterr().err.count("note: the method") == 2
    assert known_method(None, None, "PLD") == "PLD"
    assert not capsys.readouterr().err


def test_a_method_by_another_name_is_the_same_method_everywhere(monkeypatch):
    assert method("PLD:ngram=2,depth=4") == method("lookup:ngram=2,depth=4")
    assert requested("token recycling:nodes=4") == method("recycle:nodes=4")
    assert needs("Speculative decoding") == needs("chain") == ("draft",)
    assert canonical("PLD:ngram=2") == "lookup:ngram=2"
    assert canonical("nobody:x=1") == "nobody:x=1"
    assert method("arxiv:2304.04487:ngram=2") == method("arXiv:2304.04487:ngram=2") == method("lookup:ngram=2")
    monkeypatch.setattr(sys.modules[prove.__module__], "prove_entry", lambda entry, quick: entry.name)
    assert prove("sample match", quick=True) == "sample_match"


def test_another_name_opens_no_file():
    with pytest.raises(BadRequest, match="only the operator"):
        requested("PG-TD:reward=/etc/hostname:x")


@pytest.mark.parametrize(("said", "meant"), [("lokup", "lookup"), ("eagel2", "EAGLE-2"), ("medsua", "medusa")])
def test_a_mistyped_name_gets_a_few_suggestions(said, meant):
    assert meant in suggestions(said)
    with pytest.raises(BadRequest, match=f"Did you mean .*'{meant}'") as told:
        method(said)
    assert len(str(told.value)) < 250


@pytest.mark.parametrize("said", ["", "?", "x" * 5000, "9999.99999", "é" * 70, "zzzzqqq"])
def test_what_nobody_knows(said):
    assert known(said) is None
    assert len(suggestions(said)) <= NEAR
    with pytest.raises(BadRequest, match=r"no method is called|lacks a name") as told:
        method(said)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("said", ["mine.py", "mine.py:", "lookup + a/mine.py"])
def test_a_file_alone_is_answered_with_how_its_method_is_named(said):
    with pytest.raises(BadRequest, match=r"mine\.py is a file; name a method in it, as in .*mine\.py:method"):
        checked(said)


def test_a_part_of_methods_is_no_method():
    with pytest.raises(BadRequest, match="'static' is a part of methods, of the family constrain"):
        method("STATIC")


def test_the_command_line_refuses_it_before_torch_is_there():
    code = "import sys; sys.modules['torch'] = None\nfrom unspool.apps.cli import main\nmain(sys.argv[1:])"
    for words in (["run", "hi"], ["chat"], ["trace", "hi"], ["batch", "a", "b"], ["serve"], ["auto-tune"]):
        ran = subprocess.run([sys.executable, "-c", code, *words, "--method", "lokup"], capture_output=True, text=True)
        assert ran.returncode == 2, words
        assert "Did you mean 'lookup'?" in ran.stderr, words


@pytest.mark.parametrize(
    "spec", ["lookup" + " " * 130 + "NONSENSE", "MBR" + " " * 130 + "x", "look" + "-" * 200 + "up!"]
)
def test_a_name_counts_to_its_end(spec):
    """However long the run of blanks is before what makes it another name."""
    with pytest.raises(BadRequest, match="no method is called"):
        method(spec)
    with pytest.raises(BadRequest, match="no method is called"):
        requested(spec)


def test_an_option_is_given_once():
    with pytest.raises(BadRequest, match=r"gives the option 'ngram' twice"):
        method("lookup:ngram=2, ngram=3")


def test_blanks_are_read_in_one_pass():
    """A run of blanks in a request's spec is not searched again from each of them, which would be quadratic."""
    assert _JOINED.search("a" + " " * 4000 + "b") is None
    starts = [place for place in range(40) if _JOINED.match("a" + " " * 30 + "+ b", place)]
    assert starts == [1]
    assert [part.said for part in parts_of("lookup \t + \n greedy")] == ["lookup", "greedy"]
