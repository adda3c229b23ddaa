"""Meanings of options: every option of every method says what it means, and none is described that a method has not."""

from __future__ import annotations

import sys

import pytest

from unspool.recipes.method_listing import MEANINGS, listings, meaning

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_option_says_what_it_means():
    silent = [
        f"{each.name}:{name}" for each in listings().values() for name in each.options if not meaning(each.name, name)
    ]
    assert not silent, f"describe them in {MEANINGS.name}"


def test_no_method_has_an_option_described_that_it_has_not():
    told = tomllib.loads(MEANINGS.read_text())["methods"]
    strange = [f"{name}:{option}" for name in listings() for option in told.get(name, ())
               if option not in listings()[name].options]  # fmt: skip
    assert not strange


def test_meanings_are_a_few_words():
    told = tomllib.loads(MEANINGS.read_text())
    texts = [*told["every"].values(), *(text for options in told["methods"].values() for text in options.values())]
    assert [text for text in texts if len(text) > 140 or text.endswith(".") or "|" in text or "\n" in text] == []


@pytest.mark.parametrize("columns", [60, 100])
def test_the_page_of_a_method_tells_them_within_the_terminal(here, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = here("methods", "cascade")
    assert code == 0
    told = " ".join(out.split())
    assert "inner=by_models what drafts for the draft model" in told
    assert "(a whole number from 1 to 64)" in told
    assert max(map(len, out.splitlines())) <= columns
