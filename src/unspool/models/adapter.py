"""A LoRA adapter as PEFT saves it: factors of low rank that are added to a model's matrices while it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core.errors import BadModel
from ..core.files import plain_file
from .config_fields import ConfigFields
from .folder import SafetensorsCheckpoint, Shard, read_json
from .shape import Shape
from .stored import Stored
from .vocabulary import Vocabulary
from .weights import Checkpoint

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_BEFORE = "base_model.model."
_PART = re.compile(r"(.{1,400})\.lora_([AB])\.weight")
_PLAIN = re.compile(r"\^?[A-Za-z0-9_.]{1,400}")  # keys of patterns; others are expressions, which can take for ever
_FLOATS = ("F64", "F32", "F16", "BF16")
_MOST = 1024  # modules that a pattern may name
_LARGEST = 1 << 20  # bytes of the settings
_STEEPEST = 1e6  # of what the product of the factors is multiplied by


@dataclass(frozen=True)
class Change:
    """What is added to one tensor: `scale` · B·A, or the part of it that lies at `at` in what the adapter changes."""

    module: str
    scale: float
    at: Stored


class AdaptedCheckpoint:
    """Another checkpoint whose matrices become W + scale · B·A while they are read, in float32, rounded once.

    The folder has `adapter_config.json` (LoRA, with r, lora_alpha and use_rslora, or ranks and alphas by module) and
    `adapter_model.safetensors`, where a module's factors are lora_A [r, in] and lora_B [out, r]. What changes a model
    in another way is refused: DoRA, biases, embeddings, whole modules, experts, a head that is the embedding's.
    """

    def __init__(self, base: Checkpoint, folder: Path | str) -> None:
        self.base, self.folder = base, Path(folder)
        self._told = ConfigFields(_settings(self.folder), str(self.folder / CONFIG))
        self._file = _opened(self.folder)
        self._refuse_other_kinds()
        modules = dict(_modules(base))
        self._changes: dict[str, Change] = {}
        for module in self._factors():
            known = modules.get(module)
            if known is None:
                raise self._fail(f"changes {module!r}, which the model {base.title} does not have as a matrix")
            scale = self._scale(module, self._rank(module, known, base.shape))
            self._changes |= {name: Change(module, scale, at) for name, at in known}
        if not self._changes:
            raise self._fail("changes nothing: it has no lora_A and lora_B")
        named, ends = self._told.get("target_modules"), {each.module.split(".")[-1] for each in self._changes.values()}
        for target in named if isinstance(named, list) else ():
            if str(target).split(".")[-1] not in ends:
                raise self._fail(f"says that it changes {str(target)[:80]!r}, for which there are no factors")

    @property
    def shape(self) -> Shape:
        return self.base.shape

    @property
    def title(self) -> str:
        return f"{self.base.title} + {self.folder.resolve().name}"

    @property
    def bytes(self) -> int:
        return self.base.bytes + (self.folder / WEIGHTS).stat().st_size

    @property
    def rope_factors(self) -> Tensor | None:
        return self.base.rope_factors

    def __str__(self) -> str:
        """What it changes, in a line."""
        ranks = sorted({self._size(f"{change.module}.lora_A")[0] for change in self._changes.values()})
        told = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return f"{len(self._changes)} matrices changed by {self.folder.resolve().name} (LoRA, {told})"

    def vocabulary(self) -> Vocabulary:
        return self.base.vocabulary()

    def names(self) -> frozenset[str]:
        return self.base.names()

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        change = self._changes.get(name)
        if change is None:
            return self.base.tensor(name, dtype)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        a, b = (self._file.get_tensor(f"{_BEFORE}{change.module}.lora_{part}.weight").to(wide) for part in "AB")
        rows = b if change.at.rows is None else b[change.at.rows]
        made = torch.addmm(self.base.tensor(name, wide), rows, a, alpha=change.scale)
        if not bool(made.isfinite().all()):
            raise self._fail(f"makes numbers of {name!r} that are not finite; it is damaged")
        return made.to(dtype or wide)

    def _factors(self) -> list[str]:
        """The modules that it changes; refuses what else lies in the file, and one factor without the other."""
        found: dict[str, set[str]] = {}
        for name in sorted(self._file.keys()):
            part = _PART.fullmatch(name)
            if part is None or not name.startswith(_BEFORE):
                raise self._fail(f"has {name[:120]!r}; expected factors alone, {_BEFORE}….lora_A.weight and lora_B")
            found.setdefault(part[1].removeprefix(_BEFORE), set()).add(part[2])
        for module, parts in found.items():
            if len(parts) == 1:
                raise self._fail(f"has lora_{parts.pop()} of {module!r} alone; it is incomplete, save it again")
        return list(found)

    def _rank(self, module: str, known: list[tuple[str, Stored]], shape: Shape) -> int:
        """The rank of a module's factors, whose shapes fit the matrices that they change."""
        if any(at.expert is not None or at.turned or (at.rows is not None and at.rows.step) for _, at in known):
            raise self._fail(f"changes {module!r}, whose rows lie in another order here, or in one tensor of experts")
        if shape.interleaved and re.search(r"\.self_attn\.[qk]_proj$", module):
            raise self._fail(f"changes {module!r}, whose rows {shape.family} models keep in another order")
        name, at = known[0]
        rows, columns = at.whole(shape.tensors()[name])
        (rank, width), (height, deep) = self._size(f"{module}.lora_A"), self._size(f"{module}.lora_B")
        if (width, height, deep) != (columns, rows, rank) or not 0 < rank <= min(rows, columns):
            sizes = f"lora_A [{rank}, {width}] and lora_B [{height}, {deep}]"
            raise self._fail(f"has {sizes} for {module!r}, which is [{rows}, {columns}] here: another model's")
        return rank

    def _size(self, name: str) -> tuple[int, int]:
        part = self._file.get_slice(f"{_BEFORE}{name}.weight")
        size = tuple(part.get_shape())
        if len(size) != 2 or part.get_dtype() not in _FLOATS:
            raise self._fail(f"has {name!r} as {part.get_dtype()} {list(size)[:8]}; expected a matrix of floats")
        return size[0], size[1]

    def _scale(self, module: str, rank: int) -> float:
        said = self._said("rank_pattern", module) or self._told.whole("r", 8)
        if said != rank:
            raise self._fail(f"says that {module!r} has rank {said:g}, and its factors have {rank}")
        alpha = self._said("alpha_pattern", module) or self._told.real("lora_alpha", 8)
        scale = alpha / (math.sqrt(rank) if self._told.flag("use_rslora") else rank)
        if scale > _STEEPEST:
            raise self._told.fail("lora_alpha", f"a factor of at most {_STEEPEST:g}")
        return scale

    def _said(self, option: str, module: str) -> float | None:
        """What a pattern says of a module: keys are names, or the ends of names behind a dot."""
        group = self._told.within(option)
        if group is None:
            return None
        if len(group.values) > _MOST:
            raise self._told.fail(option, f"at most {_MOST} modules")
        for key in group.values:
            name = key.removeprefix("^")
            if module == name or (name == key and module.endswith(f".{name}")):
                return group.real(key)
            if _PLAIN.fullmatch(key) is None:
                raise self._told.fail(option, "names of modules as keys, without other signs of an expression")
        return None

    def _refuse_other_kinds(self) -> None:
        told = self._told
        if (kind := told.get("peft_type")) != "LORA":
            raise self._fail(f"is an adapter of the kind {str(kind)[:80]!r}; LORA alone can be read")
        if told.get("bias") not in (None, "none") or told.flag("lora_bias"):
            raise self._fail("changes biases, which is not done here; merge it with PEFT's merge_and_unload first")
        for option in ("use_dora", "modules_to_save", "fan_in_fan_out", "alora_invocation_tokens", "target_parameters"):
            if told.get(option) not in (None, False, []):
                raise self._fail(f"has {option}, which is not done here; merge it with PEFT's merge_and_unload first")

    def _fail(self, problem: str) -> BadModel:
        return BadModel(f"the adapter {self.folder} {problem}.")


def _modules(base: Checkpoint) -> Iterator[tuple[str, list[tuple[str, Stored]]]]:
    """The matrices of a model by the names that an adapter may have for them: the file's, and ours.

    Several of ours can lie in one of the file's.
    """
    shape, found = base.shape, dict[str, list[tuple[str, Stored]]]()
    for name, size in shape.tensors().items():
        if not name.endswith(".weight") or len(size) != 2 or "embed_tokens" in name:
            continue
        if name == "lm_head.weight" and shape.tied:
            continue
        at = base.lies(name) if isinstance(base, SafetensorsCheckpoint) else Stored(name)
        found.setdefault(at.name.removesuffix(".weight"), []).append((name, at))
        if at.name != name and at.rows is None:
            yield name.removesuffix(".weight"), [(name, at)]
    yield from found.items()


def _settings(folder: Path) -> Mapping[str, object]:
    file = folder / CONFIG
    if not file.is_file():
        raise BadModel(f"{folder}: holds no {CONFIG}. Give the folder of a LoRA adapter, as PEFT saves it.")
    if file.stat().st_size > _LARGEST:
        raise BadModel(f"{file}: is larger than settings are ({_LARGEST} bytes). Give a LoRA adapter as PEFT saves it.")
    return read_json(file)


def _opened(folder: Path) -> Shard:
    file = folder / WEIGHTS
    if not file.is_file():
        old = " It has adapter_model.bin; save it as safetensors." if (folder / "adapter_model.bin").is_file() else ""
        raise BadModel(f"{folder}: holds no {WEIGHTS}.{old or ' Give the folder of a LoRA adapter, as PEFT saves it.'}")
    try:
        return cast("Shard", safe_open(plain_file(file), framework="pt"))
    except (SafetensorError, OSError) as error:
        raise BadModel(f"{file}: is not a complete safetensors file ({error}). Bring it again.") from error
