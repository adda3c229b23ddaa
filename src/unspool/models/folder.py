"""A Hugging Face folder: config.json, tokenizer.json and one or more .safetensors files, opened as a checkpoint."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core.errors import BadModel
from .config_fields import ConfigFields, elsewhere
from .fillers import stored_name
from .hybrid_names import NAMES
from .hybrid_names import stored as stored_in_hybrid
from .json_vocabulary import read_vocabulary
from .ling import LING, Stored
from .ling import stored as stored_in_ling
from .shape import Shape
from .vocabulary import Vocabulary

_AHEAD = 64  # layers behind the last that guess further ahead, and are left out
_FLOATS = ("F64", "F32", "F16", "BF16")


class TensorSlice(Protocol):
    """What is used of one tensor before it is read."""

    def get_shape(self) -> list[int]:
        """Its sizes."""

    def get_dtype(self) -> str:
        """The name of its type."""

    def __getitem__(self, rows: slice) -> Tensor:
        """Some rows of it."""


class Shard(Protocol):
    """What is used of an open safetensors file, which has no types of its own."""

    def metadata(self) -> dict[str, str] | None:
        """What its maker wrote beside the tensors."""

    def keys(self) -> list[str]:
        """The names of its tensors."""

    def get_slice(self, name: str) -> TensorSlice:
        """One of them, not read yet."""

    def get_tensor(self, name: str) -> Tensor:
        """One of them."""


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json, tokenizer.json and one or more .safetensors files."""

    def __init__(self, folder: Path | str, files: tuple[Path, ...] = ()) -> None:
        self.folder = Path(folder)
        self.config = read_json(self.folder / "config.json")
        self.shape = Shape.from_config(self.config, str(self.folder / "config.json"))
        self._files = files or _shards(self.folder)
        self._shards: dict[str, Shard] = {}
        own = self.shape.tensors()
        self._stored = {name: _stored(name, self.shape) for name in own}
        needed = {at.name: at.whole(own[name]) for name, at in self._stored.items()}
        sizes: dict[str, tuple[int, ...]] = {}
        strange: list[str] = []
        for path in self._files:
            try:
                shard = cast("Shard", safe_open(path, framework="pt"))
                held = shard.keys()
                found = {name: shard.get_slice(name) for name in held if name in needed}
            except (SafetensorError, OSError) as error:
                raise BadModel(f"{path}: is not a complete safetensors file ({error}). Download it again.") from error
            strange += [name for name in held if name not in needed]
            for name, part in found.items():
                if part.get_dtype() not in _FLOATS:
                    raise elsewhere(str(path), f"{name!r} is stored as {part.get_dtype()}")
                sizes[name], self._shards[name] = tuple(part.get_shape()), shard
        self.shape.check(str(self.folder), sizes, needed)
        if self.shape.mixture is not None:
            self._refuse(strange)

    @property
    def title(self) -> str:
        return self.folder.resolve().name

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self._files)

    @property
    def rope_factors(self) -> Tensor | None:
        """None: config.json says how the frequencies are scaled."""
        return None

    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    def names(self) -> frozenset[str]:
        return frozenset(self._stored)

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self._stored:
            raise BadModel(f"{self.folder}: this {self.shape.family} model has no tensor {name!r}.")
        at = self._stored[name]
        shard = self._shards[at.name]
        found = shard.get_tensor(at.name) if at.rows is None else shard.get_slice(at.name)[at.rows]
        if self.shape.norm_offset and "norm." in name and "linear_attn." not in name:
            # Adding 1 in float32 is exact for the halves that such weights are stored in.
            found = found.float() + self.shape.norm_offset
        return found if dtype is None else found.to(dtype)

    def _refuse(self, strange: list[str]) -> None:
        """Stop at tensors of layers that the settings do not tell of: experts left out would go unnoticed."""
        extra = ConfigFields(self.config, str(self.folder / "config.json")).count("num_nextn_predict_layers", 0)
        ahead = tuple(f"model.layers.{self.shape.layers + n}." for n in range(min(extra, _AHEAD)))
        left = sorted(name for name in strange if name.startswith("model.layers.") and not name.startswith(ahead))
        if left:
            raise BadModel(
                f"{self.folder}: has {len(left)} tensors that a {self.shape.family} model of these settings does not, "
                f"such as {left[0]!r}. Its config.json belongs to another; download both again."
            )

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return read_vocabulary(self.folder, self.shape.vocab)


def _stored(name: str, shape: Shape) -> Stored:
    if shape.family in NAMES:
        return stored_in_hybrid(name, shape)
    return stored_in_ling(name, shape) if shape.family in LING else Stored(stored_name(name, shape.family))


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON file that holds an object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadModel(f"{path}: is missing. A model folder needs it beside its *.safetensors files.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BadModel(f"{path}: cannot be read as JSON ({error}). Download it again.") from error
    if not isinstance(found, dict):
        raise BadModel(f"{path}: holds a {type(found).__name__} where settings by name were expected.")
    return found


def _shards(folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        single = folder / "model.safetensors"
        if not single.is_file():
            if any(folder.glob("pytorch_model*.bin")):
                raise elsewhere(str(folder), "its weights are in pytorch_model.bin")
            raise BadModel(
                f"{folder}: holds neither model.safetensors nor model.safetensors.index.json. Save it as safetensors."
            )
        return (single,)
    weights = read_json(index).get("weight_map")
    named = list(weights.values()) if isinstance(weights, dict) else []
    names = {name for name in named if isinstance(name, str) and name == Path(name).name}
    if not named or len(names) != len(set(map(str, named))):
        raise BadModel(f"{index}: 'weight_map' must name files of this folder. Download it again.")
    missing = sorted(name for name in names if not (folder / name).is_file())
    if missing:
        raise BadModel(f"{folder}: the index names files that are not there: {', '.join(missing)}. Download them.")
    return tuple(folder / name for name in sorted(names))
