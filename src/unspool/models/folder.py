"""A Hugging Face folder: config.json, tokenizer.json and one or more .safetensors files, opened as a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .. import models
from ..core.errors import BadModel
from ..core.files import MODEL, plain_file, read_text
from .config_fields import ConfigFields, elsewhere
from .fillers import stored_name
from .json_vocabulary import read_vocabulary
from .ling import LING
from .ling import stored as stored_in_ling
from .shape import Shape
from .stored import Stored, stored
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from .codes import Coded, FloatCodes, GroupedCodes  # of quantised folders alone

T = TypeVar("T")
_AHEAD = 64  # layers behind the last that guess further ahead, and are left out
_ROTARY = re.compile(r"\.self_attn\.[qk]_(proj|norm)\.(weight|bias)$")
_INSIDE = ("model.", "model.language_model.", "language_model.model.")
_IDLE = re.compile(
    r"rotary_emb|inv_freq|masked_bias|attn\.bias$|_scale$|weight_shape$"
)  # what files keep beside the weights
_FLOATS = ("F64", "F32", "F16", "BF16")


class TensorSlice(Protocol):
    """What is used of one tensor before it is read."""

    def get_shape(self) -> list[int]:
        """Its sizes."""

    def get_dtype(self) -> str:
        """The name of its type."""

    def __getitem__(self, rows: slice | int) -> Tensor:
        """Some rows of it, or one."""


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
        own = self._sizes = self.shape.tensors()
        opened = {path: _opened(path) for path in self._files}
        inside = _inside({name for _, held in opened.values() for name in held})
        stored = {name: stored_at(name, size, self.shape) for name, size in own.items()}
        stored = {name: at._replace(name=_within(at.name, inside)) for name, at in stored.items()}
        experts = {at.name for at in stored.values() if at.expert is not None}
        lying = {n: _shape(shard, n) for shard, held in opened.values() for n in experts.intersection(held)}
        self._stored = {name: at.as_it_lies(own[name], lying.get(at.name)) for name, at in stored.items()}
        needed = {at.name: at.whole(own[name]) for name, at in self._stored.items()}
        sizes: dict[str, tuple[int, ...]] = {}
        strange: list[str] = []
        self._coded = self._codes(list(opened.values()), needed)
        parts = {part for coded in self._coded.values() for part in coded.parts}
        for path, (shard, held) in opened.items():
            self._shards |= dict.fromkeys(parts.intersection(held), shard)
            strange += [name for name in held if name not in needed and name not in parts]
            for name in (needed.keys() & held) - self._coded.keys():
                part = shard.get_slice(name)
                if part.get_dtype() not in _FLOATS:
                    raise elsewhere(str(path), f"{name!r} is stored as {part.get_dtype()}")
                sizes[name], self._shards[name] = tuple(part.get_shape()), shard
        sizes |= {name: _expected(coded.size, needed[name]) for name, coded in self._coded.items()}
        self.shape.check(str(self.folder), sizes, needed)
        self._refuse(strange, f"{inside}layers.")

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

    def lies(self, name: str) -> Stored:
        """Return where the files have a tensor."""
        return self._stored[name]

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self._stored:
            raise BadModel(f"{self.folder}: this {self.shape.family} model has no tensor {name!r}.")
        at = self._stored[name]
        found = self._raw(at)
        if found.shape != self._sizes[name]:
            raise BadModel(f"{self.folder}: {name!r} has shape {tuple(found.shape)}; expected {self._sizes[name]}.")
        if self.shape.interleaved and _ROTARY.search(name):
            found = split_halves(found, self.shape.head_dim, self.shape.rotary)
        if self.shape.norm_offset and "norm." in name and "linear_attn." not in name:
            # Adding 1 in float32 is exact for the halves that such weights are stored in.
            found = found.float() + self.shape.norm_offset
        return found if dtype is None else found.to(dtype)

    def _codes(self, opened: list[tuple[Shard, list[str]]], needed: Mapping[str, tuple[int, ...]]) -> dict[str, Coded]:
        """The tensors that lie in the files as codes, where config.json says that some do."""
        fields = ConfigFields(self.config, str(self.folder / "config.json"))
        within = fields.within("text_config") or fields
        told = fields.within("quantization_config") or within.within("quantization_config")
        if told is None:
            return {}
        find = models.coded.coding(told)
        held = {name: _shape(shard, name) for shard, names in opened for name in names}
        found = ((name, find(name, held)) for name in needed)
        return {name: coded for name, coded in found if coded is not None}

    def codes(self, name: str) -> GroupedCodes | FloatCodes | None:
        """Return a matrix as the codes that the file has of it; None if it has none, or in another order."""
        at = self._stored[name]
        coded = self._coded.get(at.name)
        if coded is None or coded.codes is None or at.expert is not None or at.turned:
            return None
        if self.shape.interleaved and _ROTARY.search(name):
            return None
        found = self._read_codes(at, coded.codes)
        return found if at.rows is None else found.rows(at.rows)

    def _read_codes(self, at: Stored, made: Callable[[Callable[[str], Tensor]], T]) -> T:
        def read(part: str) -> Tensor:
            if part not in self._shards:
                raise BadModel(f"{self.folder}: {part!r} is missing. The files are incomplete; download them again.")
            shard = self._shards[part]
            return shard.get_tensor(part) if at.expert is None else shard.get_slice(part)[at.expert]

        try:
            return made(read)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            raise BadModel(f"{self.folder}: the codes of {at.name!r} cannot be decoded ({error}).") from error

    def _raw(self, at: Stored) -> Tensor:
        """What the file has of a tensor; no more is read than lies together."""
        if at.name in self._coded:
            coded = self._coded[at.name]
            return self._read_codes(at, lambda read: at.of(coded.decode(read)))
        shard = self._shards[at.name]
        if at.expert is not None:
            return at.of(shard.get_slice(at.name)[at.expert])
        if at.rows is not None and not at.turned and at.rows.step in (None, 1):
            return shard.get_slice(at.name)[at.rows]
        return at.of(shard.get_tensor(at.name))

    def _refuse(self, strange: list[str], at: str) -> None:
        """Stop at tensors of layers that the settings do not tell of: experts left out would go unnoticed."""
        extra = ConfigFields(self.config, str(self.folder / "config.json")).count("num_nextn_predict_layers", 0)
        extra = _AHEAD if self.shape.mixture is None else extra
        ahead = tuple(f"{at}{self.shape.layers + n}." for n in range(min(extra, _AHEAD)))
        left = sorted(
            name for name in strange if name.startswith(at) and not name.startswith(ahead) and not _IDLE.search(name)
        )
        if left:
            family, such = self.shape.family, f"such as {left[0]!r}"
            raise elsewhere(
                str(self.folder), f"it has {len(left)} tensors that a {family} model of these settings does not, {such}"
            )

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return read_vocabulary(self.folder, self.shape.vocab)


def _opened(path: Path) -> tuple[Shard, list[str]]:
    """A file and the names of its tensors."""
    try:
        shard = cast("Shard", safe_open(plain_file(path), framework="pt"))
        return shard, list(shard.keys())
    except (SafetensorError, OSError) as error:
        raise BadModel(f"{path}: is not a complete safetensors file ({error}). Download it again.") from error


def _shape(shard: Shard, name: str) -> tuple[int, ...]:
    return tuple(shard.get_slice(name).get_shape())


def _expected(size: tuple[int, ...], needed: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a coded tensor; where only the count of its numbers is known before it is read, the needed one."""
    return needed if len(size) == 1 and prod(size) == prod(needed) else size


def _inside(held: set[str]) -> str:
    """What the names of a text part begin with, in a file that holds more than it."""
    ends = "embed_tokens.weight"
    return next((prefix for prefix in _INSIDE if prefix + ends in held), "model.")


def _within(name: str, prefix: str) -> str:
    """The name of a tensor there; the head of one layout lies inside too."""
    if name.startswith("model."):
        return prefix + name.removeprefix("model.")
    return f"language_model.{name}" if prefix == "language_model.model." else name


def stored_at(name: str, size: tuple[int, ...], shape: Shape) -> Stored:
    """Where the files of a shape's family keep a tensor of this size."""
    if shape.family in LING:
        return stored_in_ling(name, shape)
    return Stored(stored_name(name, shape.family)) if shape.filling is not None else stored(name, size, shape)


def split_halves(rows: Tensor, head_dim: int, rotary: int) -> Tensor:
    """Put rotary pairs that lie side by side, (2i, 2i+1) of each head, at (i, i + rotary/2)."""
    heads = rows.view(-1, head_dim, *rows.shape[1:])
    turned = heads[:, :rotary].reshape(len(heads), rotary // 2, 2, *rows.shape[1:]).transpose(1, 2).flatten(1, 2)
    return torch.cat((turned, heads[:, rotary:]), 1).reshape(rows.shape)


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON file that holds an object."""
    try:
        found = json.loads(read_text(path, MODEL))
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
