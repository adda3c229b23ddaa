"""Folders of any family that is read natively, with random weights that are always the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.support.families import Family, told
from tests.support.littlemodel import little_model
from unspool.models.config import read_config
from unspool.models.folder import stored_at

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def tensors(config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """What the files of a model of these settings hold."""
    shape, dice = read_config(config, "config.json"), torch.Generator().manual_seed(2)
    sizes = {(at := stored_at(name, size, shape)).name: at.whole(size) for name, size in shape.tensors().items()}
    return {name: torch.randn(size, generator=dice) * 0.2 + ("norm" in name) for name, size in sizes.items()}


def sharded(family: Family, folder: Path) -> Path:
    """A little model of a family in two files and an index, which it returns."""
    (folder / "config.json").write_text(json.dumps(told(family)))
    held = tensors(told(family))
    places = {name: SHARDS[number % 2] for number, name in enumerate(held)}
    for file in SHARDS:
        save_file({name: t for name, t in held.items() if places[name] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


def speaking(family: Family, folder: Path) -> Path:
    """The same in one file, with the little model's tokens."""
    little_model(folder)
    config = {**told(family), "vocab_size": 258, "bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors(config), folder / "model.safetensors")
    return folder
