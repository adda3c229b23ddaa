"""How canvases were filled: looks, certainty and blocks as they were scripted, and the picture and table of them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from canvases import Scripted, told

from unspool.api.canvas_picture import LEGEND, canvas_picture, kind_of
from unspool.api.display import output_html
from unspool.api.filling import CanvasWatcher
from unspool.api.writer import Event
from unspool.core.canvas import Canvas
from unspool.loops.unmasker import FixedBlocks
from unspool.rules.decode import Denoise
from unspool.rules.unmask import Confident, Edit

SVG = "{http://www.w3.org/2000/svg}"
# Places 1 to 4 behind a prompt of one token, in blocks of two: the first look is sure of place 2 alone.
LOOKS = (
    {1: (1, 0.6), 2: (2, 0.95)},
    {1: (3, 0.7)},
    {3: (4, 0.92), 4: (5, 0.99)},
)


def watched(method, *looks):
    watch = CanvasWatcher()
    tokens, *_ = told(watch.over(method), Scripted(*looks))
    return watch.filling(tokens)


@pytest.fixture
def filling():
    return watched(Denoise(Confident(0.9), 4, FixedBlocks(2)), *LOOKS)


def test_every_place_tells_its_look_and_how_sure_the_model_was(filling):
    assert [place.token for place in filling.places] == [3, 2, 4, 5]
    assert [place.look for place in filling.places] == [2, 1, 3, 3]
    assert [place.p for place in filling.places] == pytest.approx([0.7, 0.95, 0.92, 0.99], abs=1e-5)
    assert filling.places[0].sure == pytest.approx({1: 0.6, 2: 0.7}, abs=1e-5)
    assert filling.windows == [(0, 2), (2, 4)]
    assert filling.lines == [(-1, 2, -1, -1), (3, 2, -1, -1), (3, 2, 4, 5)]
    assert str(filling) == (
        "4 tokens in 3 looks, 1.33 a look; the model gave them 0.89 on the mean when they were filled."
    )


def test_what_was_taken_back_is_told():
    looks = ({1: (1, 0.95), 2: (2, 0.95)}, {1: (4, 0.99), 2: (2, 0.99)})
    filling = watched(Denoise(Confident(0.9), 2, remask=Edit(0.9)), *looks)
    first, second = filling.places
    assert (first.token, first.look, first.before) == (4, 2, {1: 1})
    assert (second.token, second.look, second.before) == (2, 1, {})
    assert "; 1 taken back." in str(filling)
    root = ElementTree.fromstring(canvas_picture(filling, str, "edit"))
    assert len([node for node in root.iter(SVG + "circle") if node.get("class") == "back"]) == 2  # and the legend's


def test_the_picture_has_its_own_legend_blocks_and_confidence(filling):
    root = ElementTree.fromstring(canvas_picture(filling, lambda token: f"<{token}>", "confident & co"))
    texts = ["".join(node.itertext()) for node in root.iter(SVG + "text")]
    for _, words in LEGEND:
        assert words in texts
    assert "confident & co" in texts
    assert not [text for text in texts if "drafted" in text]
    squares = [node.get("class") for node in root.iter(SVG + "rect") if node.get("class") != "ground"]
    assert sorted(squares) == sorted(["sure", "fair", "bold", "fair", "sure", "sure", "sure"])  # three are the legend's
    assert len([node for node in root.iter(SVG + "line") if node.get("class") == "border"]) == 2  # one is the legend's
    tips = ["".join(node.itertext()) for node in root.iter(SVG + "title")]
    assert "<3>: filled at look 2, p = 0.70" in tips
    assert "look 1: the best guess had 0.60" in tips


@pytest.mark.parametrize(
    ("p", "kind"), [(None, "given"), (1.0, "sure"), (0.9, "sure"), (0.89, "fair"), (0.5, "fair"), (0.49, "bold")]
)
def test_colours_are_by_the_tokens_own_probability(p, kind):
    assert kind_of(p) == kind


def test_the_command_shows_looks_of_a_canvas(here, tmp_path):
    asked = ("trace", "Name a colour.", "-m", "smollm2-diffusion", "--method", "confident:block=4", "--max-tokens", "8")
    code, out, _ = here(*asked)
    assert code == 0
    assert "look  filled  least p  canvas" in out
    assert "drafted" not in out
    code, out, err = here(*asked, "--json", "--figure", str(tmp_path / "canvas.svg"))
    tokens = json.loads(out)["tokens"]
    assert {"look", "p", "sure", "taken_back"} <= tokens[0].keys()
    assert f"{len(tokens)} tokens in" in err
    assert "filled at p ≥ 0.9" in (tmp_path / "canvas.svg").read_text()


def test_notebooks_show_looks_of_a_canvas_and_drafts_of_a_text():
    canvas = Canvas.blank((0,), 2)
    events = [Event(1, "a<", 2, False, canvas=canvas), Event(2, "b", 1, False, canvas=canvas), Event(3, "c", 2, True)]
    output = SimpleNamespace(events=events, reason="length", trace="3 tokens")
    shown = output_html(output)
    assert 'title="look 2" style="background:rgba(124, 77, 255, 0.50)' in shown
    assert 'title="look 1" style="background:rgba(124, 77, 255, 0.30)' in shown
    assert 'title="round 2" style="background:rgba(46, 160, 67' in shown
    assert "a&lt;" in shown
