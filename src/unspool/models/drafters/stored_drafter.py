"""Settings and tensors of a drafter as they lie on disk: safetensors only, checked before anything is believed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...core.errors import BadModel
from ...core.files import plain_file
from ..folder import Shard, read_json

_MOST_FILES = 64
_MOST_TENSORS = 1 << 16
_TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "BOOL", "U8", "I8")
_SCALE = ".scale"  # of a matrix in 8 bits: one number a row, beside it


class StoredDrafter:
    """A folder with config.json and *.safetensors, or one such file beside its config.json."""

    def __init__(self, path: Path) -> None:
        self.folder = path if path.is_dir() else path.parent
        self.source = str(path)
        self.config = read_json(self.folder / "config.json")
        self._shards: dict[str, Shard] = {}
        for file in [path] if path.is_file() else self._files():
            try:
                shard = cast("Shard", safe_open(plain_file(file), framework="pt"))
                names = shard.keys()
            except (SafetensorError, OSError) as error:
                raise BadModel(f"{file}: is not a complete safetensors file ({error}). Download it again.") from error
            if len(self._shards) + len(names) > _MOST_TENSORS:
                raise BadModel(f"{file}: holds more than {_MOST_TENSORS} tensors, which no drafter does.")
            self._shards |= dict.fromkeys(names, shard)

    def _files(self) -> list[Path]:
        found = sorted(self.folder.glob("*.safetensors"))
        if not found:
            pickled = next(self.folder.glob("*.bin"), None) or next(self.folder.glob("*.pt"), None)
            why = f"; {pickled.name} is a pickle, which may run any code and is not read" if pickled else ""
            raise BadModel(f"{self.folder}: holds no *.safetensors file{why}. Save the drafter as safetensors.")
        if len(found) > _MOST_FILES:
            raise BadModel(f"{self.folder}: holds {len(found)} *.safetensors files; expected at most {_MOST_FILES}.")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._shards

    def names(self) -> list[str]:
        """The names of all tensors; those that scale others are no tensors of the drafter."""
        return [name for name in self._shards if not self._scales(name)]

    def _scales(self, name: str) -> bool:
        return name.endswith(_SCALE) and name.removesuffix(_SCALE) in self._shards

    def size(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        part = self._shards[name].get_slice(name)
        if part.get_dtype() not in _TYPES:
            raise BadModel(
                f"{self.source}: {name!r} is stored as {part.get_dtype()}; expected one of {', '.join(_TYPES)}."
            )
        return tuple(part.get_shape())

    def tensor(self, name: str) -> Tensor:
        """A tensor as it is stored; a matrix in 8 bits, rows of which have a scale each, as float32."""
        size = self.size(name)
        found = self._read(name)
        if found.dtype != torch.int8:
            return found
        beside = f"{name}{_SCALE}"
        if beside not in self._shards or len(size) != 2 or self.size(beside) != size[:1]:
            raise BadModel(
                f"{self.source}: {name!r} is stored in 8 bits; expected a matrix with {beside!r} for its rows."
            )
        return found.float() * self._read(beside).float()[:, None]

    def _read(self, name: str) -> Tensor:
        try:
            return self._shards[name].get_tensor(name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise BadModel(f"{self.source}: {name!r} cannot be read ({error}). Download it again.") from error

    def renamed(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """The tensors of these names, by others: `names` maps ours to those of the file; what is absent is left out."""
        return {ours: self.tensor(theirs) for ours, theirs in names.items() if theirs in self}


def absolute_ids(source: str, told: Tensor, mask: Tensor | None, vocab: int, offsets: bool) -> Tensor:
    """The target's token for each one that a drafter knows, from a table of tokens or of `offsets` from its rows.

    Files of safetensors have offsets (d2t), GGUF files and Medusa's `token_map` tokens. Where `mask` is there, true for
    tokens of the target that are drafted, a table of the other kind shows by disagreeing with it, and is read as such.
    """
    told = told.to(torch.int64).flatten()
    for ids in (told + torch.arange(len(told)), told) if offsets else (told,):
        known = len(ids) > 0 and int(ids.min()) >= 0 and int(ids.max()) < vocab and len(set(ids.tolist())) == len(ids)
        if known and (mask is None or bool(mask.to(torch.bool).flatten()[ids].all())):
            return ids
    raise BadModel(
        f"{source}: its table of draft tokens ({len(told)} rows) names tokens that a target of {vocab} does not have, "
        "or some twice. The drafter belongs to another vocabulary, or the file is damaged."
    )
