"""Heads that follow each other: what each reads of a state and of the tokens drafted before it, as formulas.

The same functions serve a few drafted tokens and, while heads are trained, all places of a batch of texts: `h` is what
the first head reads [..., dim], `word` the embedding of the token that comes next. `begun` tells what is read at the
first place, [..., places, dim], and at all others if no head needs to know the tokens between; `followed` goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.drafters.description import LSTMS, DrafterSpec
from ..network.linear import rms

Tensors = Mapping[str, Tensor]


def begun(spec: DrafterSpec, of: Tensors, h: Tensor, word: Tensor) -> tuple[Tensor, Tensor | None]:
    """What heads read behind a text, and what the next token is met with; None if one forward has told everything."""
    if spec.cell == "regress" and spec.reads == "met":  # Clover-2, whose first token is in the state already
        return _ended(spec, of, _linear(of, "first", h)), h
    if spec.cell in ("concat", "regress"):
        return followed(spec, of, h, word, 0)
    h = h if spec.reads == "state" else rms(h, of["norm.weight"], spec.shape.norm_eps)
    if spec.cell == "slots":  # FLASH, Falcon: h + D_k·SiLU(U·h)
        moved = _linear(of, "slots.down", F.silu(_linear(of, "slots.up", h)))
        return h[..., None, :] + _apart(moved, spec.depth or 1), None
    if spec.cell == "perceptron":  # blockwise parallel decoding: h + B_k·ReLU(A_k·h + a_k) + b_k
        heads = range(spec.depth or 1)
        return torch.stack(
            [h + _linear(of, f"heads.{k}.down", F.relu(_linear(of, f"heads.{k}.up", h))) for k in heads], -2
        ), None
    told = torch.stack([_blocks(spec, of, k, h) for k in range(spec.depth or 1)], -2)
    return _encoded(spec, of, told + of["places"]), None


def followed(spec: DrafterSpec, of: Tensors, carried: Tensor, word: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """What the head of this depth reads once a token has come, and what the next one is met with."""
    if spec.cell == "concat":  # Hydra: R_k·z + SiLU(A_k·z), z = [h; e_1; …; e_{k+1}]
        if depth == 0 and spec.reads != "state":
            carried = rms(carried, of["norm.weight"], spec.shape.norm_eps)
        z, at = torch.cat([carried, word], -1), f"heads.{depth}"
        return _blocks(spec, of, depth, _linear(of, f"{at}.pass", z) + F.silu(_linear(of, f"{at}.bend", z)))[
            ..., None, :
        ], z
    h = regressed(spec, of, "regress", carried, word)
    if spec.reads == "met":
        return _ended(spec, of, _linear(of, "later", torch.cat([h, word], -1))), h
    return _ended(spec, of, h + F.silu(_linear(of, "bend", h))), h


def regressed(spec: DrafterSpec, of: Tensors, name: str, x: Tensor, y: Tensor) -> Tensor:
    """Clover's regressive connection: x + concat_n(cos(q_n(x), k_n(y)) · v_n(y)), by attention head."""
    q, k, v = (
        _apart(F.linear(given, of[f"{name}.{part}.weight"]), spec.shape.heads)
        for part, given in (("q", x), ("k", y), ("v", y))
    )
    return x + (F.cosine_similarity(q, k, -1)[..., None] * v).flatten(-2)


def trigrams(of: Tensors, words: Tensor) -> Tensor:
    """What Chimera has for the state of a token that is not computed yet, of three embeddings side by side."""
    return F.linear(words + F.silu(_linear(of, "trigram.block", words)), of["trigram.weight"])


def contrasted(of: Tensors, experts: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """What Jakiro's experts make of x for the next token, and, by their difference, for the one behind it.

    Σ_e g_e·E_e(x), and g'_top·E_top(x) − Σ_other g'_e·E_e(x), with E_e(x) = D_e(SiLU(G_e·x) · U_e·x).
    """
    each = [
        F.linear(
            F.silu(_linear(of, f"experts.{e}.gate", x)) * _linear(of, f"experts.{e}.up", x),
            of[f"experts.{e}.down.weight"],
        )
        for e in range(experts)
    ]
    made = torch.stack(each, -2)
    near, far = (g.float().softmax(-1).to(x.dtype) for g in F.linear(x, of["route.weight"]).chunk(2, -1))
    sign = torch.where(far == far.amax(-1, keepdim=True), 1.0, -1.0).to(x.dtype)
    return (near[..., None] * made).sum(-2), ((far * sign)[..., None] * made).sum(-2)


def lstm_step(of: Tensors, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One step of a stack of LSTM cells on x [n, width]: (h, c) of every layer; the last h is what comes out."""
    found: list[Tensor] = []
    for layer in range(LSTMS):
        h, c = state[2 * layer : 2 * layer + 2]
        gates = F.linear(x, of[f"lstm.{layer}.input.weight"], of[f"lstm.{layer}.bias"])
        i, f, g, o = (gates + F.linear(h, of[f"lstm.{layer}.state.weight"])).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        x = torch.sigmoid(o) * torch.tanh(c)
        found += [x, c]
    return tuple(found)


def _encoded(spec: DrafterSpec, of: Tensors, x: Tensor) -> Tensor:
    """Amphista's block: heads [..., places, dim] look at each other in both directions."""
    eps = spec.shape.norm_eps
    y = rms(x, of["encoder.before.weight"], eps)
    q, k, v = (_apart(_linear(of, f"encoder.{part}", y), spec.shape.heads).transpose(-2, -3) for part in "qkv")
    share = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).float().softmax(-1).to(x.dtype)
    x = x + _linear(of, "encoder.o", (share @ v).transpose(-2, -3).flatten(-2))
    y = rms(x, of["encoder.between.weight"], eps)
    return x + _linear(of, "encoder.down", F.silu(_linear(of, "encoder.gate", y)) * _linear(of, "encoder.up", y))


def _ended(spec: DrafterSpec, of: Tensors, x: Tensor) -> Tensor:
    return rms(x, of["norm.weight"], spec.shape.norm_eps)[..., None, :]


def _blocks(spec: DrafterSpec, of: Tensors, head: int, x: Tensor) -> Tensor:
    for block in range(spec.blocks):
        x = x + F.silu(_linear(of, f"heads.{head}.{block}", x))
    return x


def _apart(x: Tensor, count: int) -> Tensor:
    """The last dimension as so many parts side by side."""
    return x.reshape(*x.shape[:-1], count, -1)


def _linear(of: Tensors, name: str, x: Tensor) -> Tensor:
    return F.linear(x, of[f"{name}.weight"], of.get(f"{name}.bias"))
