"""A delta: what training has changed of another model, as factors of low rank and whole tensors in one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core.errors import BadModel
from ..core.files import plain_file
from .folder import Shard
from .shape import DiffusionSpec, Layout, Reading
from .vocabulary import Vocabulary
from .weights import Checkpoint

_FACTORS = ("a", "b", "a_scale", "b_scale")
MOST_TRANSFERS = 16  # masks behind a token that are handed its state


class DeltaCheckpoint:
    """Another checkpoint with a delta applied while it is read: W + (a·a_scale)(b·b_scale)ᵀ, or a tensor in its place.

    The file is in safetensors. A matrix `name` is changed by `name.a` [out, rank] and `name.b` [in, rank], int8 or
    float, with one scale per column, `name.a_scale` and `name.b_scale` [rank]; a tensor under its own name takes the
    place of the base's. The metadata say `base`, the model it belongs to, and, if it then fills holes, `layout`,
    `reading`, `mask` and `block` as in a Filling, and `transfers`, the numbers of layers with commas between them; the
    mask is learned if the file has `model.mask`. Rotary halves are split.
    """

    def __init__(self, base: Checkpoint, file: Path) -> None:
        self.base, self.file = base, file
        self._file = _opened(file)
        self._told = self._file.metadata() or {}
        held = set(self._file.keys())
        self.shape = replace(base.shape, filling=self._filling("model.mask" in held))
        sizes = self.shape.tensors()
        self._whole = {name for name in held if name in sizes}
        self._changed = {name for name in sizes if f"{name}.a" in held}
        lacking = [f"{name}.{part}" for name in self._changed for part in _FACTORS if f"{name}.{part}" not in held]
        unknown = held - self._whole - {f"{name}.{part}" for name in self._changed for part in _FACTORS}
        for names, problem in ((lacking, "lacks"), (unknown, "has, for a model that does not,")):
            if names:
                raise BadModel(f"{file}: {problem} {sorted(names)[0]!r}. It is damaged, or of another model's shape.")
        for name in self._whole:
            self._expect(name, sizes[name])
        for name in self._changed:
            rank = self._file.get_slice(f"{name}.a").get_shape()[-1]
            for part, size in zip(
                _FACTORS, ((sizes[name][0], rank), (sizes[name][1], rank), (rank,), (rank,)), strict=True
            ):
                self._expect(f"{name}.{part}", size)

    @property
    def title(self) -> str:
        return f"{self.base.title} + {self.file.stem}"

    @property
    def bytes(self) -> int:
        return self.base.bytes + self.file.stat().st_size

    @property
    def rope_factors(self) -> Tensor | None:
        return self.base.rope_factors

    def vocabulary(self) -> Vocabulary:
        return self.base.vocabulary()

    def names(self) -> frozenset[str]:
        return self.base.names() | self._whole

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return one tensor, changed in float32 or better and rounded once to `dtype` (None: float32)."""
        dtype = dtype or torch.float32
        if name in self._whole:
            return self._file.get_tensor(name).to(dtype, copy=True)  # what is only mapped changes with the file
        if name not in self._changed:
            return self.base.tensor(name, dtype)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        a, b, a_scale, b_scale = (self._file.get_tensor(f"{name}.{part}").to(wide) for part in _FACTORS)
        return torch.addmm(self.base.tensor(name, wide), a * (a_scale * b_scale), b.T).to(dtype)

    def _filling(self, learned: bool) -> DiffusionSpec | None:
        told = self._told
        if "layout" not in told:
            return self.base.shape.filling
        layout: dict[str, Layout] = {name: name for name in get_args(Layout)}
        reading: dict[str, Reading] = {name: name for name in get_args(Reading)}
        mask, block = told.get("mask", ""), told.get("block", "1")
        known = told["layout"] in layout and told.get("reading") in reading
        if not known or not mask.isdecimal() or not block.isdecimal() or int(block) < 1:
            raise BadModel(
                f"{self.file}: says layout={told['layout']!r}, reading={told.get('reading')!r}, mask={mask!r}, "
                f"block={block!r}; expected one of {', '.join(layout)}, one of {', '.join(reading)}, the number of a "
                "token, and a number of places from 1 on."
            )
        spec = DiffusionSpec(layout[told["layout"]], reading[told["reading"]], int(mask), learned, int(block))
        return replace(spec, transfers=self._transfers(told["transfers"])) if "transfers" in told else spec

    def _transfers(self, told: str) -> tuple[int, ...]:
        parts, layers = told.split(",", MOST_TRANSFERS), self.base.shape.layers
        found = tuple(int(part) for part in parts if part.isdecimal() and len(part) < 6)
        inside = all(0 <= layer < layers for layer in found) and list(found) == sorted(found)
        if len(found) != len(parts) or len(found) > MOST_TRANSFERS or not inside:
            raise BadModel(
                f"{self.file}: says transfers={told[:80]!r}; expected at most {MOST_TRANSFERS} numbers of layers "
                f"from 0 to {layers - 1}, none below the one before it."
            )
        return found

    def _expect(self, name: str, size: tuple[int, ...]) -> None:
        found = tuple(self._file.get_slice(name).get_shape())
        if found != size:
            raise BadModel(f"{self.file}: {name!r} has shape {found}; expected {size}. It belongs to another model.")


def base_of(file: Path) -> str | None:
    """The model that a file changes, None if it is no delta."""
    return (_opened(file).metadata() or {}).get("base")


def _opened(file: Path) -> Shard:
    try:
        return cast("Shard", safe_open(plain_file(file), framework="pt"))
    except (SafetensorError, OSError) as error:
        raise BadModel(f"{file}: is not a complete safetensors file ({error}). Bring it again.") from error
