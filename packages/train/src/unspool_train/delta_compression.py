"""A change of weights in little space: each matrix's difference as int8 factors, norms and the mask's embedding whole.

W = W_base + (a · a_scale)(b · b_scale)ᵀ, with a int8 [out, r], b int8 [in, r] and float16 scales per column. Ranks
differ from matrix to matrix: singular values are taken greedily by the energy they hold per byte until the budget is
spent. The file is what `models.delta` reads at load: safetensors, with the names that tensors have in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unspool.core.errors import BadModel

from .training_network import MATRICES, is_matrix

_FILED = {
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "norm1": "input_layernorm.weight",
    "norm2": "post_attention_layernorm.weight",
}
_ENDS = {"norm": "model.norm.weight", "mask": "model.mask"}
_LEVELS = 127
_HEADER = 130_000  # names and offsets of a 30-layer model, generously
_SCALES = 4  # two float16 per column


@dataclass(frozen=True)
class Factors:
    """A matrix of low rank, left · rightᵀ."""

    left: Tensor
    right: Tensor

    def product(self) -> Tensor:
        """Return the matrix."""
        return self.left @ self.right.T


@dataclass(frozen=True)
class Delta:
    """Factors by matrix, and the values that replace the base's norms and the mask's embedding."""

    factors: Mapping[str, Factors]
    whole: Mapping[str, Tensor]

    def to(self, device: torch.device | str) -> Delta:
        """Return the same change on another device."""
        factors = {name: Factors(f.left.to(device), f.right.to(device)) for name, f in self.factors.items()}
        return Delta(factors, {name: value.to(device) for name, value in self.whole.items()})

    def applied(self, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the base's weights with this change; the mask's embedding comes with them."""
        changed = dict(base)
        for name, factors in self.factors.items():
            if name not in base or base[name].shape != (len(factors.left), len(factors.right)):
                raise BadModel(f"the delta changes {name}, which the model does not have in that shape.")
            changed[name] = base[name] + factors.product().to(base[name])
        return changed | dict(self.whole)


def read_delta(source: Path | str, device: str = "cpu") -> Delta:
    """Read a .safetensors delta, or a folder that holds one, or one with rank*.npz and norms_and_mask.npz."""
    path = Path(source)
    if path.is_dir():
        stored = sorted(path.glob("*.safetensors"))
        if not stored:
            return _read_stacked(path, device)
        path = stored[-1]
    try:
        with safe_open(path, "pt", device=device) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise BadModel(f"{path}: cannot be read as safetensors ({error}). Give a delta file or its folder.") from error
    if "model.mask" not in tensors:
        raise BadModel(f"{path}: has no tensor 'model.mask'; expected the change of a model that fills holes.")
    sides = {name: tensors[name].float() * tensors[f"{name}_scale"].float() for name in tensors if _is_factor(name)}
    factors = {_own(name[:-2]): Factors(sides[name], sides[f"{name[:-2]}.b"]) for name in sides if name.endswith(".a")}
    whole = {_own(name): value.float() for name, value in tensors.items() if not _is_part(name)}
    return Delta(factors, whole)


def _is_factor(name: str) -> bool:
    return name.endswith((".a", ".b"))


def _is_part(name: str) -> bool:
    return _is_factor(name) or name.endswith(("_scale",))


def filed(name: str) -> str:
    """The name that a weight of the training network has in a checkpoint."""
    if name in _ENDS:
        return _ENDS[name]
    layer, _, kind = name.rpartition(".")
    return f"model.{layer}.{_FILED[kind]}"


def _own(name: str) -> str:
    """The other way round."""
    ends = {theirs: own for own, theirs in _ENDS.items()}
    if name in ends:
        return ends[name]
    kinds = {theirs: own for own, theirs in _FILED.items()}
    _, layers, number, rest = name.split(".", 3)
    return f"{layers}.{number}.{kinds[rest]}"


def _read_stacked(folder: Path, device: str) -> Delta:
    """All layers in one array per kind of matrix, as a first adaptation was stored."""
    ranks = sorted(folder.glob("rank*.npz"))
    others = folder / "norms_and_mask.npz"
    if not ranks or not others.is_file():
        raise BadModel(f"{folder}: holds no delta. Expected a .safetensors file, or rank*.npz and norms_and_mask.npz.")
    factors: dict[str, Factors] = {}
    with np.load(ranks[-1]) as stored:
        for kind in MATRICES:
            a, a_scale, b, b_scale = (
                torch.from_numpy(stored[f"{kind}.{part}"]).to(device).float() for part in ("a", "as", "b", "bs")
            )
            for layer in range(len(a)):
                factors[f"layers.{layer}.{kind}"] = Factors(a[layer] * a_scale[layer], b[layer] * b_scale[layer])
    renamed = {"n1": "norm1", "n2": "norm2"}
    whole: dict[str, Tensor] = {}
    with np.load(others) as stored:
        for name in stored.files:
            layer_of, _, kind = name.rpartition(".")
            own = {"nf": "norm", "mask": "mask"}.get(name) or f"layers.{layer_of}.{renamed[kind]}"
            whole[own] = torch.from_numpy(stored[name]).to(device).float()
    return Delta(factors, whole)


def factorised(weights: Mapping[str, Tensor], base: Mapping[str, Tensor], budget: int) -> Delta:
    """The change from base to weights in at most `budget` bytes.

    The rank-r part of a matrix keeps its r largest singular values; one more costs out + in + 4 bytes. Taking values by
    σ² / (out + in + 4) loses the least energy for the bytes.
    """
    whole = {name: value.detach().float() for name, value in weights.items() if not is_matrix(name)}
    left = budget - _HEADER - sum(value.numel() * 4 for value in whole.values())
    spectra = {name: _spectrum(weights[name] - base[name]) for name in weights if is_matrix(name)}
    ranks = chosen_ranks({name: (s, u.shape[0] + v.shape[0]) for name, (u, s, v) in spectra.items()}, left)
    factors = {}
    for name, (u, s, v) in spectra.items():
        root = s[: ranks[name]].sqrt()
        if ranks[name]:
            factors[name] = Factors(u[:, : ranks[name]] * root, v[:, : ranks[name]] * root)
    return Delta(factors, whole)


def chosen_ranks(spectra: Mapping[str, tuple[Tensor, int]], budget: int) -> dict[str, int]:
    """Ranks by name for (singular values, rows + columns), the most energy per byte first, within the bytes."""
    taken = []
    for name, (values, size) in spectra.items():
        cost = size + _SCALES
        taken += [(float(value) ** 2 / cost, cost, name) for value in values.tolist()]
    ranks = dict.fromkeys(spectra, 0)
    for worth, cost, name in sorted(taken, reverse=True):
        if cost > budget or worth <= 0.0:
            break
        budget -= cost
        ranks[name] += 1
    return ranks


def _spectrum(change: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular vectors and values through the smaller Gram matrix, in float64, largest first: much faster than an SVD.

    Values below 1e-7 of the largest are noise of the square and count as zero; none of them would be kept.
    """
    wide = change.detach().double()
    tall = wide.shape[0] > wide.shape[1]
    if tall:
        wide = wide.T
    squares, u = torch.linalg.eigh(wide @ wide.T)
    squares, u = squares.flip(0).clamp(min=0.0), u.flip(1)
    values = squares.sqrt()
    values = torch.where(values > 1e-7 * values[:1], values, 0.0)
    v = wide.T @ u / values.clamp(min=1e-30)
    v = torch.where(values > 0.0, v, 0.0)
    u, v = (v, u) if tall else (u, v)
    return u.float(), values.float(), v.float()


def write_delta(path: Path | str, delta: Delta, base_name: str, mask_id: int) -> Delta:
    """Write a delta and return what a reader will get back."""
    tensors = {filed(name): value.float().cpu().contiguous() for name, value in delta.whole.items()}
    for name, factors in delta.factors.items():
        for part, wide in (("a", factors.left), ("b", factors.right)):
            whole, scale = _rounded(wide)
            stored = f"{filed(name)}.{part}"
            tensors[stored], tensors[f"{stored}_scale"] = whole.cpu().contiguous(), scale.cpu()
    about = {"layout": "block", "reading": "shifted", "mask": str(mask_id), "base": base_name}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    save_file(tensors, partial, metadata=about)
    partial.replace(path)
    return read_delta(path)


def _rounded(wide: Tensor) -> tuple[Tensor, Tensor]:
    """int8 with a float16 scale per column; values are rounded against the scale as stored."""
    scale = (wide.detach().abs().amax(0) / _LEVELS).clamp(min=6e-8).half()
    return (wide.detach() / scale.float()).round().clamp(-_LEVELS, _LEVELS).to(torch.int8), scale


def lost(delta: Delta, weights: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> dict[str, float]:
    """The share of each kind of matrix's change (energy, all layers) that the delta does not hold."""
    missing: dict[str, float] = dict.fromkeys(MATRICES, 0.0)
    whole: dict[str, float] = dict.fromkeys(MATRICES, 0.0)
    for name in (name for name in weights if is_matrix(name)):
        kind, change = name.rsplit(".", 1)[-1], (weights[name] - base[name]).detach()
        whole[kind] += float(change.square().sum())
        held = delta.factors[name].product().to(change) if name in delta.factors else torch.zeros_like(change)
        missing[kind] += float((change - held).square().sum())
    return {kind: missing[kind] / whole[kind] if whole[kind] else 0.0 for kind in MATRICES}
