"""Traces: where each token came from, against what the decoder itself recorded, and the picture of it."""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import repository
from littlemodel import little_model
from littlemodel import loaded as loaded_model
from patience import PATIENCE

from unspool.api.origin import DraftWatcher, Origin, origins, trace
from unspool.api.picture import LONGEST, picture, said, shown
from unspool.api.settings import Settings
from unspool.api.writer import Event, Writer
from unspool.core.chance import Philox
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.models.vocabulary import TextStream
from unspool.recipes.methods import method
from unspool.rules.decode import Denoise, Speculate, plain
from unspool.rules.draft import Jacobi, Lookup
from unspool.rules.unmask import one
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

SVG = "{http://www.w3.org/2000/svg}"
PROMPT = (0, 1, 2, 0)


def cycling(text):
    """A model that mostly counts round and round, and sometimes does not."""
    weights = [1, 1, 1, 1]
    weights[(text[-1] + 1 + (len(text) % 7 == 0)) % 4] = 60
    return weights


def traced(decoder, most=24):
    """The events of a text and their origins."""
    watch, engine = DraftWatcher(), Engine({"target": Table(4, cycling)})
    job = engine.submit(watch.over(decoder), PROMPT, Philox(3), stop=Stop(most=most))
    engine.run()
    writer = Writer(job, TextStream(lambda token: b"abcd"[token : token + 1]), None)
    output = writer.output()
    return output, origins(output.events, watch.trees, len(PROMPT))


def parsed(svg):
    root = ElementTree.fromstring(svg)
    return root, ["".join(node.itertext()) for node in root.iter(SVG + "text")]


def marks(root, kind):
    return [node for node in root.iter() if node.get("class") == kind]


# ---- where tokens came from


def test_jacobi_tells_the_same_story_as_its_own_record():
    settlings = []
    output, found = traced(Speculate(Jacobi(watch=settlings.append)))
    settled = settlings[0].settled(output.tokens)
    assert [origin.round for origin in found] == [s.certain + 1 for s in settled]
    stood = [s.stood + 1 if s.stood <= s.certain else None for s in settled]
    assert [origin.stood for origin in found] == stood
    assert any(first is not None and first < origin.round for first, origin in zip(stood, found, strict=True))


@pytest.mark.parametrize("name", ["lookup:ngram=1,least=1", "recycle", "jacobi", "suffix", "lookahead"])
def test_a_drafted_token_was_among_the_guesses_and_an_added_one_ends_its_round(name):
    output, found = traced(method(name))
    assert [origin.token for origin in found] == list(output.tokens)
    assert [origin.drafted for origin in found] == [event.drafted for event in output.events]
    assert sum(origin.drafted for origin in found) == output.trace.accepted_tokens > 0
    for origin, after in zip(found, [*found[1:], None], strict=True):
        if origin.drafted:
            assert origin.stood is not None
        elif after is not None:
            assert after.round == origin.round + 1


def test_what_depends_on_the_models_that_draft_is_watched_as_it_runs(tmp_path):
    folder = little_model(tmp_path / "little")
    with loaded_model(folder, draft=str(folder), small=str(folder)) as lm:
        output, found = trace(lm, "abcabc", Settings(max_tokens=12), "cascade")
    assert output.trace.forwards["small"]
    assert any(origin.drafted for origin in found)
    assert all(origin.token in origin.guesses[origin.round] for origin in found if origin.drafted)


def test_watching_changes_nothing():
    for decoder in (Speculate(Lookup(1, 1, 4)), plain()):
        engine = Engine({"target": Table(4, cycling)})
        job = engine.submit(decoder, PROMPT, Philox(3), stop=Stop(most=24))
        engine.run()
        assert traced(decoder)[0].tokens == job.result().tokens


def test_plain_decoding_adds_every_token_in_a_round_of_its_own():
    _, found = traced(plain(), most=5)
    assert [(origin.round, origin.drafted, dict(origin.guesses)) for origin in found] == [
        (number, False, {}) for number in range(1, 6)
    ]


def test_a_method_that_does_not_draft_has_events_and_no_guesses():
    output, found = traced(Denoise(one, 3), most=3)
    assert len(found) == len(output.events) == 3
    assert not any(origin.guesses for origin in found)


def test_a_token_stood_from_the_last_round_on_that_did_not_guess_otherwise():
    guesses = {1: (5,), 2: (7,), 3: (5, 6), 4: (6, 5)}
    assert Origin(5, 4, True, guesses).stood == 3
    assert Origin(5, 5, False, guesses).stood is None
    assert Origin(7, 2, True, guesses).stood == 2


def test_guesses_past_the_end_of_the_text_are_left_out():
    tree = Tree.chain([Law.point(x).draw(Philox(0), (0, 0, 0, 0)) for x in (1, 2, 3)])
    found = origins([Event(1, "", 1, True), Event(0, "", 1, False)], {4: tree}, 4)
    assert [dict(origin.guesses) for origin in found] == [{1: (1,)}, {1: (2,)}]
    assert tree.parent == (ROOT, 0, 1)


# ---- the picture


def test_the_picture_shows_every_token_once_where_it_became_certain():
    _, found = traced(Speculate(Jacobi()))
    root, words = parsed(picture(found, lambda token: "abcd"[token], "jacobi"))
    assert len(marks(root, "drafted")) - 1 == sum(origin.drafted for origin in found)  # one is the legend's
    assert len(marks(root, "added")) - 1 == sum(not origin.drafted for origin in found)
    assert [word for word in words if re.fullmatch("[abcd]", word)] == ["abcd"[origin.token] for origin in found]
    assert said(found) in words
    assert root.find(SVG + "title").text == "jacobi"
    assert said(found) in root.find(SVG + "desc").text
    assert root.get("role") == "img"
    tips = [node.text for node in root.iter(SVG + "title")]
    assert any("certain in round 3" in tip for tip in tips)
    xs = [float(node.get("cx")) for node in marks(root, "added")[1:]]
    assert xs == sorted(xs)


def test_nothing_a_model_writes_can_leave_its_place_in_the_picture():
    pieces = ["<script>alert(1)</script>", "\"&'", "\x1b[31m\x00", "\n", " a b", "", "]]>", "\ud800"]
    found = [Origin(i, i + 1, False, {1: (i,)}) for i in range(len(pieces))]
    root, words = parsed(picture(found, lambda token: pieces[token], "<b>&"))
    assert not list(root.iter(SVG + "script"))
    for seen in ("<script>alert(1)</scr…", "\"&'", "\\x1b[31m\\x00", "↵", "·a·b", "∅", "]]>", "\\xd800", "<b>&"):
        assert seen in words


def test_a_long_token_is_cut_and_an_empty_text_still_has_a_picture():
    assert len(shown("x" * 100)) == LONGEST
    root, words = parsed(picture([], str, "nothing"))
    assert "0 tokens in 0 rounds, 0 of them drafted." in words
    assert float(root.get("width")) > 0


def test_the_picture_of_the_docs_is_a_picture():

    root, words = parsed((repository.ROOT / "docs/jacobi.svg").read_text(encoding="utf-8"))
    assert "jacobi:window=8 · smollm2" in words
    assert "prefers-color-scheme: dark" in root.find(SVG + "style").text
    assert len(marks(root, "early")) > 1


# ---- the command


@pytest.fixture(scope="module")
def command(smollm2_path):
    def run(*arguments):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "UNSPOOL_HOME": str(smollm2_path.parents[2])}
        line = [sys.executable, "-m", "unspool", "trace", *arguments]
        return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=PATIENCE, encoding="utf-8")

    return run


def test_the_command_draws_and_reports_the_same_text_as_run(command, smollm2, tmp_path):
    file = tmp_path / "picture.svg"
    done = command("Count from 1 to 20.", "--method", "lookup:least=1", "--max-tokens", "12", "--svg", file, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    asked = [{"role": "user", "content": "Count from 1 to 20."}]
    plainly = smollm2.generate(asked, Settings(max_tokens=12))
    assert record["text"] == plainly.text
    assert [token["token"] for token in record["tokens"]] == list(plainly.tokens)
    assert [token["round"] for token in record["tokens"]][-1] == record["trace"]["rounds"]
    root, words = parsed(file.read_text(encoding="utf-8"))
    assert "lookup:least=1 · smollm2" in words
    assert len(marks(root, "drafted")) - 1 == record["trace"]["accepted"]
    assert str(file) in done.stderr


def test_without_a_picture_the_command_prints_a_line_per_round(loaded):
    code, out, err = loaded("trace", "Count from 1 to 20.", "--max-tokens", "6", "--method", "plain")
    assert code == 0, err
    summary, heads, *lines = out.splitlines()
    assert summary == "6 tokens in 6 rounds, 0 of them drafted."
    assert heads.split() == ["round", "stood", "tokens"]
    assert [line.split()[0] for line in lines] == list("123456")


def test_a_picture_that_cannot_be_written_is_refused_before_the_model_is_read(here, monkeypatch, tmp_path):
    monkeypatch.setattr("unspool.api.loader.load", lambda name, **options: pytest.fail("it was read"))
    code, _, err = here("trace", "Hello", "--svg", str(tmp_path / "nowhere" / "picture.svg"))
    assert code == 2
    assert "its folder does not exist" in err
    assert err.count("\n") == 1
