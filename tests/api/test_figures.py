"""Figures as files: SVG as it was drawn, PDF by CairoSVG, and a sentence where that is not there."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from unspool.api import figures
from unspool.api.bars import Bar, bars
from unspool.core.errors import BadRequest, MissingExtra

DRAWN = bars([Bar("plain", 1.0), Bar("lookup", 1.5, 1.2, 1.8, "2.0 tokens"), Bar("<slow>", 0.5)], "A & B", "times")


def test_svg_is_written_as_it_was_drawn(tmp_path):
    figures.save(DRAWN, tmp_path / "a.svg")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text(encoding="utf-8"))
    kinds = [node.get("class") for node in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert kinds == ["ground", "bar", "bar", "slow"]
    wide = [float(node.get("width")) for node in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert wide[1] == pytest.approx(1.5 * wide[0], abs=0.2)
    assert wide[2] == pytest.approx(0.5 * wide[0], abs=0.2)


@pytest.mark.parametrize("name", ["a.png", "a", "nowhere/a.svg"])
def test_other_names_are_refused_before_anything_is_measured(tmp_path, name):
    with pytest.raises(BadRequest, match=r"cannot be (drawn|written)"):
        figures.check(tmp_path / name)


def test_pdf_without_the_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(figures.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"unspool\[figures\]"):
        figures.check(tmp_path / "a.pdf")
    assert figures.check(tmp_path / "a.svg")


def test_pdf_is_drawn_by_cairosvg_with_fonts_that_it_knows(tmp_path, monkeypatch):
    drawn = []
    fake = SimpleNamespace(svg2pdf=lambda bytestring, write_to: drawn.append((bytestring.decode(), write_to)))
    monkeypatch.setattr(figures.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "cairosvg", fake)
    figures.save(DRAWN, tmp_path / "a.pdf")
    ((text, place),) = drawn
    assert place == str(tmp_path / "a.pdf")
    assert "system-ui" in DRAWN
    assert "system-ui" not in text


def test_pdf_by_cairosvg_itself(tmp_path):
    try:
        import cairosvg  # noqa: F401
    except (ImportError, OSError) as why:  # the package, or the library that it draws with, is not there
        pytest.skip(str(why))
    figures.save(DRAWN, tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
