"""Drafters that come with models of the catalogue: found by their names, small, and read as what they are."""

from __future__ import annotations

import pytest

from unspool.api.trained_draft import shipped
from unspool.core.files import DRAFTERS, trained
from unspool.models.address import drafter_of
from unspool.models.catalog import CATALOG
from unspool.models.drafters.opening import is_drafter

SHIPPED = [(entry.name, said) for entry in CATALOG.values() for said in entry.drafters]


@pytest.mark.parametrize(("model", "said"), SHIPPED)
def test_a_drafter_of_the_catalogue_is_there(model, said):
    folder = drafter_of(model, said)
    assert folder == trained(DRAFTERS, f"{model}-{said}")
    assert folder is not None
    assert is_drafter(folder)
    assert (folder / "model.safetensors").stat().st_size <= 12 << 20


def test_what_has_no_drafter_of_that_name_is_left_as_it_is(tmp_path, monkeypatch):
    assert drafter_of("smollm2", "oracle") is None
    assert drafter_of("no model", "eagle3") is None
    assert shipped("smollm2", "layers:4") == "layers:4"
    for model, said in SHIPPED:
        monkeypatch.chdir(tmp_path)
        (tmp_path / said).mkdir(exist_ok=True)
        assert shipped(model, said) == said, "what lies here under that name goes first"
