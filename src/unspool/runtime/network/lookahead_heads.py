"""Heads that look ahead: what a model's last state says of the tokens after the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...core.errors import BadModel
from ...core.files import plain_file
from ...core.law import unpacked
from ..engine.contracts import LAST

if TYPE_CHECKING:
    from .linear import EmbeddingAndHead

Best: TypeAlias = Callable[[Tensor, int], tuple[Tensor, Tensor]]


class Matrices(NamedTuple):
    """What training changes: A [heads, depth, dim, dim], a [heads, depth, dim] and, if heads read a token, B."""

    blocks: Tensor
    biases: Tensor
    tokens: Tensor | None = None  # [heads, dim, dim]


def bent(hidden: Tensor, words: Tensor, of: Matrices) -> Tensor:
    """What each head makes of states [n, dim] and of the embeddings of the tokens behind them [n, heads, dim]."""
    x = hidden.expand(len(of.blocks), -1, -1)
    shift = (
        None
        if of.tokens is None
        else torch.matmul(F.rms_norm(words, words.shape[-1:], None, 1e-6), of.tokens.transpose(1, 2))
    )
    for block, bias in zip(of.blocks.unbind(1), of.biases.unbind(1), strict=True):
        y = torch.baddbmm(bias[:, None], x, block.transpose(1, 2))
        x, shift = x + F.silu(y if shift is None else y + shift), None
    return x.transpose(0, 1)


def heads_bytes(file: Path, dtype: torch.dtype) -> int:
    """What the heads of a file take once they are loaded; only the beginning of the file is read."""
    with _opened(file) as stored:
        sizes: list[list[int]] = [stored.get_slice(name).get_shape() for name in stored.keys()]  # noqa: SIM118
    return sum(prod(size) for size in sizes) * dtype.itemsize


def _opened(file: Path) -> Any:
    try:
        return safe_open(plain_file(file), "pt")
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadModel(f"{file}: cannot be read as heads ({why}). Give what `unspool train heads` wrote.") from error


def topk(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of every row, with their tokens."""
    return logits.float().topk(min(k, logits.shape[1]))


@dataclass(frozen=True)
class MedusaHeads:
    """Medusa's heads: the k-th reads what leaves the last norm at token t, and guesses token t + 1 + k.

    head_k(h) = W·x_D, x_0 = h, x_d = x_{d−1} + SiLU(A_kd·x_{d−1} + a_kd), with the model's own output matrix W where
    the paper gives each head one. Token t + 1 is known by the time somebody asks; heads that have B read it too, as
    Hydra's first one does: A_k1·h + B_k·e / rms(e) + a_k1, with its embedding e.
    Cost: heads · (depth + 1) small products, and one by W for all heads.
    """

    matrices: Matrices
    ends: EmbeddingAndHead

    @classmethod
    def load(cls, file: Path, ends: EmbeddingAndHead) -> MedusaHeads:
        """Read a file of `unspool train heads`, for the model that has these ends."""
        dim, known = ends.norm.shape[0], Matrices._fields
        with _opened(file) as stored:
            parts = {name: stored.get_tensor(name).to(ends.device, ends.dtype) for name in stored.keys()}  # noqa: SIM118
        if not {"blocks", "biases"} <= set(parts) <= set(known):
            held = ", ".join(sorted(parts)[:3]) or "nothing"
            raise BadModel(f"{file}: holds {held}; expected {', '.join(known)}, as `unspool train heads` writes them.")
        of = Matrices(**parts)
        count, depth = of.biases.shape[:2] if of.biases.dim() == 3 else (0, 0)
        sizes = {"blocks": (count, depth, dim, dim), "biases": (count, depth, dim), "tokens": (count, dim, dim)}
        for name, part in parts.items():
            if part.shape != sizes[name] or not count * depth:
                wanted = {"blocks": "[heads, depth, dim, dim]", "biases": "[heads, depth, dim]"}
                raise BadModel(
                    f"{file}: has {name} of {list(part.shape)}; expected {wanted.get(name, '[heads, dim, dim]')} with "
                    f"dim {dim}. They were trained for another model, or the file is damaged."
                )
        return cls(of, ends)

    def __len__(self) -> int:
        return len(self.matrices.blocks)

    @torch.no_grad()
    def told(self, hidden: Tensor, tokens: Tensor, k: int, best: Best = topk) -> Tensor:
        """Each head's k best tokens after states [n, dim] and the tokens [n] that follow them.

        They are packed, [n · heads, 2k]: probabilities, then tokens.
        """
        words = self.ends.embed(tokens)
        logits = self.ends.head(bent(hidden, words, self.matrices).reshape(-1, hidden.shape[1]))
        values, found = best(logits, k)
        p = (values - logits.float().logsumexp(1, keepdim=True)).exp()
        return torch.cat((p, found.to(p.dtype)), 1)  # ids below 2^24 are exact in a float

    def after(self, states: Mapping[int, Tensor], token: int, k: int) -> list[list[tuple[int, float]]]:
        """The same after the states of one row by their layer, and its token."""
        return self.best(states[LAST], token, k)

    def best(self, hidden: Tensor, token: int, k: int) -> list[list[tuple[int, float]]]:
        """The same after one state [dim] and its token, head by head."""
        return unpacked(self.told(hidden[None], torch.tensor([token], device=hidden.device), k).tolist())
