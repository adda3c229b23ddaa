"""`compare` judges a method by what it claims, and says how likely its texts are to the model."""

from __future__ import annotations

import pytest
from littlemodel import little_model, loaded

from unspool import Settings, compare, method
from unspool.api.comparison import Comparison, MethodRow
from unspool.api.diverge import Divergence
from unspool.api.papers import escaped
from unspool.apps.cli.compare import report, verdict
from unspool.core.errors import BadRequest
from unspool.core.trace import Trace
from unspool.recipes.methods import named

MOST = Settings(max_tokens=12, ignore_eos=True)
WRONG = (0, Divergence(3, 1, 2, gap=5.0, noise=1e-6))
ROUNDING = (0, Divergence(3, 1, 2, gap=1e-7, noise=1e-6))


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    with loaded(little_model(tmp_path_factory.mktemp("compare") / "little")) as made:
        yield made


class Text:
    """As much of an output as is counted."""

    def __init__(self, drafted=0):
        self.trace = Trace(tokens=4, rounds=4, drafted=drafted, seconds_total=1.0)


def row(name, *parted, nats=4.0, known=True):
    found = MethodRow(name, [Text(1)], 0 if parted or not known else 1, list(parted), nats=nats)
    found.entry = named(name) if known else None
    return found


def test_a_heuristic_is_no_bug_and_no_speculation():
    plain = row("plain", nats=2.0)
    for name in ("beam", "confident", "typical"):
        found = row(name, nats=4.0)
        found.same = 0
        said = verdict(found, plain, greedy=True)
        assert "bug" not in said
        assert "as its claim allows (HEURISTIC" in said
        assert "0.500 nats per token less likely" in said
        assert ("speculat" in said) is False
    assert "likely" not in verdict(row("beam", nats=2.0), plain, greedy=True)  # whose texts are all the same
    alike = row("beam", nats=2.0004)
    alike.same = 0
    assert "To the model they are as likely." in verdict(alike, plain, greedy=True)
    slow = row("confident")
    slow.outputs[0].trace.seconds_total = 3.0
    assert "slower here: 0.33×" in verdict(slow, plain, greedy=True)
    slow = row("lookup")
    slow.outputs[0].trace.seconds_total = 3.0
    assert "do not speculate here" in verdict(slow, plain, greedy=True)


def test_what_claims_the_text_is_held_to_it():
    plain = row("plain")
    assert "that is a bug" in verdict(row("lookup", WRONG), plain, greedy=True)
    assert "that is a bug" in verdict(row("greedy", WRONG), plain, greedy=True)
    assert "near ties" in verdict(row("lookup", ROUNDING), plain, greedy=True)
    assert "--batch-invariant" in verdict(row("lookup", ROUNDING), plain, greedy=False)
    assert "other draws" in verdict(row("rejection", ROUNDING), plain, greedy=False)
    assert "is not known" in verdict(row("mine", known=False), plain, greedy=True)


def test_nats_are_those_of_the_model_itself(lm):
    found = compare(lm, ["beam:width=3", "lookup", method("suffix")], ["abcabc", "xyz"], MOST)
    plain, beam, lookup, given = found.rows
    assert [each.method for each in found.rows] == ["plain", "beam:width=3", "lookup", "Speculate"]
    told = [lm.generate(text, Settings(max_tokens=12, ignore_eos=True, logprobs=0)) for text in ("abcabc", "xyz")]
    true = -sum(event.raw_logprob for output in told for event in output.events) / 24
    assert plain.nats_per_token == pytest.approx(true, abs=1e-5)
    assert lookup.nats_per_token == pytest.approx(true, abs=1e-5)
    assert beam.nats_per_token is not None
    assert beam.nats_per_token < true  # which is what it looks for
    assert beam.parted == []  # nothing was promised
    assert (given.entry, given.same) == (None, 2)
    assert found.record()[1]["claim"] == "HEURISTIC"
    assert found.record()[3]["claim"] is None


def test_the_report_names_every_method_once(lm):
    found = compare(lm, ["lookup", "plain"], ["abcabc"], MOST)
    assert isinstance(found, Comparison)
    assert [each.method for each in found.rows] == ["plain", "lookup"]
    assert "nats/token" in report(found, greedy=True)


def test_tables_for_papers(lm):
    found = compare(lm, ["lookup:ngram=2", "suffix"], ["abcabc"], MOST)
    lines = found.table("csv").splitlines()
    assert [line.split(",")[0] for line in lines] == ["method", "plain", "lookup:ngram=2", "suffix"]
    latex = found.table("latex")
    assert latex.startswith(r"\begin{tabular}{lrrrrrr}")
    assert r"$\times$" in latex
    assert all(line.count("&") == 6 for line in latex.splitlines() if line.endswith(r"\\"))
    assert found.table("markdown").splitlines()[1] == "| --- |" + " ---: |" * 6
    assert str(found) == found.table()
    assert len(repr(found)) < 100
    with pytest.raises(BadRequest, match="markdown, latex, csv"):
        found.table("word")
    assert "eprint = {2411.10666}" in found.bibtex()  # SAM-Decoding
    assert escaped("a_b & 50 % {x}") == r"a\_b \& 50 \% \{x\}"


def test_papers_of_methods_on_the_command_line(here):
    out = here("methods", "heads", "--bibtex")[1]
    assert "@misc{arxiv:2401.10774," in out
    assert out.count("@misc") == 1
    assert here("methods", "--family", "unmask", "--bibtex")[1].count("eprint") > 10
