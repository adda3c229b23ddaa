"""Folders of random drafters in unspool's own form, by their papers' names, and what each would guess.

It is restated one path at a time, with no cache and no tree; what all makers of drafter files share is here too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from unspool.models.config import shape_of
from unspool.models.config_fields import ConfigFields
from unspool.models.drafters.description import needed
from unspool.models.drafters.forms import FORMS, MODEL_TYPE

VOCAB, DIM, LAYERS = 258, 32, 6
HEADS, KV, WIDTH, HIDDEN, EPS, THETA = 4, 2, 8, 48, 1e-5, 500.0
LAYER = {
    "model_type": "llama",
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": WIDTH,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
}
Tensors = dict[str, Tensor]


class Dice:
    """Random tensors, the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *size: int) -> Tensor:
        made = torch.randn(size, generator=self.generator)
        return 1 + 0.2 * made if len(size) == 1 else 0.2 * made

    def layer(
        self, at: str, reads: int = DIM, norms: bool = False, entry: bool = True, hidden: int = HIDDEN
    ) -> Tensors:
        """The tensors of a plain layer whose queries read so many numbers."""
        sizes: dict[str, tuple[int, ...]] = {
            f"self_attn.{n}_proj": (r, reads) for n, r in (("q", 32), ("k", 16), ("v", 16))
        }
        sizes |= {"self_attn.o_proj": (DIM, 32), "mlp.gate_proj": (hidden, DIM), "mlp.up_proj": (hidden, DIM)}
        sizes |= {"mlp.down_proj": (DIM, hidden), "post_attention_layernorm": (DIM,)}
        sizes |= {"input_layernorm": (DIM,)} if entry else {}
        sizes |= {"self_attn.q_norm": (WIDTH,), "self_attn.k_norm": (WIDTH,)} if norms else {}
        return {f"{at}{name}.weight": self(*size) for name, size in sizes.items()}

    def table(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """So many tokens of the target: their ids, and the tables d2t and t2d."""
        ids = torch.randperm(VOCAB, generator=self.generator)[:count].sort().values
        mask = torch.zeros(VOCAB, dtype=torch.bool)
        mask[ids] = True
        return ids, ids - torch.arange(count), mask


def written(folder: Path, config: dict, tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    return folder


# ---- layers


def normed(x: Tensor, weight: Tensor | None, eps: float = EPS) -> Tensor:
    return x if weight is None else x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def _turned(x: Tensor, places: Tensor) -> Tensor:
    angle = places[:, None] * THETA ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    cos, sin = torch.cat((angle, angle), -1).cos()[:, None], torch.cat((angle, angle), -1).sin()[:, None]
    half = WIDTH // 2
    cos, sin = cos.to(x), sin.to(x)
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def layered(
    t: Tensors, at: str, x: Tensor, entering: Tensor, context: Tensor | None, seen: Callable[[int, int], bool]
) -> Tensor:
    """One layer over x with queries of `entering`; `context` stands before it as further keys."""
    keyed = entering if context is None else torch.cat((context, entering))
    places = torch.arange(len(keyed)).float()

    def cut(name: str, y: Tensor, heads: int) -> Tensor:
        made = (y @ t[f"{at}self_attn.{name}_proj.weight"].T).view(len(y), heads, WIDTH)
        return normed(made, t.get(f"{at}self_attn.{name}_norm.weight"))

    q = _turned(cut("q", entering, HEADS), places[len(keyed) - len(entering) :])
    k = _turned(cut("k", keyed, KV), places).repeat_interleave(HEADS // KV, 1)
    v = (keyed @ t[f"{at}self_attn.v_proj.weight"].T).view(len(keyed), KV, WIDTH).repeat_interleave(HEADS // KV, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(WIDTH)
    hidden = torch.tensor([[not seen(i, j) for j in range(len(keyed))] for i in range(len(entering))])
    mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), v).reshape(
        len(entering), -1
    )
    x = x + mixed @ t[f"{at}self_attn.o_proj.weight"].T
    if f"{at}mlp.gate_proj.weight" not in t:  # whoever has experts instead
        return x
    y = normed(x, t[f"{at}post_attention_layernorm.weight"])
    gated = F.silu(y @ t[f"{at}mlp.gate_proj.weight"].T) * (y @ t[f"{at}mlp.up_proj.weight"].T)
    return x + gated @ t[f"{at}mlp.down_proj.weight"].T


# ---- unspool's own form

TITLES = {form.title for form in FORMS.values()}
DEEP = 3


def formed(name: str, folder: Path) -> Path:
    """A drafter of this system."""
    form, dice = FORMS[name], Dice(len(name))
    target = shape_of(ConfigFields({**LAYER, "num_hidden_layers": LAYERS, "tie_word_embeddings": True}, "test"))
    spec = form.spec(replace(target, hidden=HIDDEN), form.layers, DEEP, 7)
    tensors = {name: dice(*size) for name, size in needed(spec).items()}
    tensors |= {name: t - 1 for name, t in tensors.items() if name.endswith("bias")}
    if spec.join == "project":
        tensors |= {f"{name}.weight": dice(DIM) for name in ("embed_norm", "state_norm", "norm")}
    if spec.join == "add" and not spec.block:
        tensors |= {"lift.up.weight": dice(DIM, DIM), "lift.down.weight": dice(DIM, DIM)}
    told = {"model_type": MODEL_TYPE, "drafter": name, "depth": DEEP, "mask_token_id": 7}
    if form.layers:
        told |= {"layers": form.layers, "transformer_layer_config": {**LAYER, "num_hidden_layers": form.layers}}
    return written(folder, told, tensors)


def restated(spec, t: Tensors, embedding: Tensor, states: Tensor, text: list[int], path: list[int]):
    """What the head reads after a text and a path below it."""
    return {"cells": _cells, "project": _recycled, "add": _added, "trigram": _chimera, "cross": _dreamt}[spec.join](
        spec, t, embedding, states, text, path
    ), None


def _causal(i: int, j: int) -> bool:
    return j <= i


def _stack(spec, t: Tensors, x: Tensor) -> Tensor:
    for n in range(spec.shape.layers):
        x = layered(t, f"layers.{n}.", x, normed(x, t[f"layers.{n}.input_layernorm.weight"]), None, _causal)
    return x


def _regressed(t: Tensors, name: str, x: Tensor, y: Tensor) -> Tensor:
    parts = [(t[f"{name}.{p}.weight"] @ z).view(HEADS, -1) for p, z in (("q", x), ("k", y), ("v", y))]
    shares = [q @ k / (q.norm() * k.norm()) for q, k in zip(parts[0], parts[1], strict=True)]
    return x + torch.cat([share * v for share, v in zip(shares, parts[2], strict=True)])


def _lstm(t: Tensors, x: Tensor) -> Tensor:
    for layer in range(2):
        h, c, out = x.new_zeros(DIM), x.new_zeros(DIM), []
        for row in x:
            z = t[f"lstm.{layer}.input.weight"] @ row + t[f"lstm.{layer}.state.weight"] @ h + t[f"lstm.{layer}.bias"]
            i, f, g, o = z.split(DIM)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        x = torch.stack(out)
    return x


def _cells(spec, t, embedding, states, text, path):
    words, x = embedding[torch.tensor(text[1:])], states
    if spec.reads == "token":
        x = torch.cat((words, states), -1) @ t["join.weight"].T
    if spec.reads == "met":
        x = torch.stack([_regressed(t, "meet", state, word) for state, word in zip(states, words, strict=True)])
    if spec.reads == "lstm":
        x = states + _lstm(t, torch.cat((words, states), -1))
    h, k, tokens = _stack(spec, t, x)[-1], len(path), [text[-1], *path]

    def affine(name: str, x: Tensor) -> Tensor:
        return t[f"{name}.weight"] @ x + t.get(f"{name}.bias", 0)

    def bent(x: Tensor, head: int) -> Tensor:
        for block in range(spec.blocks):
            x = x + F.silu(affine(f"heads.{head}.{block}", x))
        return x

    if spec.cell == "regress":
        for token in tokens if spec.reads != "met" else path:
            h, word = _regressed(t, "regress", h, embedding[token]), embedding[token]
        if spec.reads == "layers":
            return normed(h + F.silu(affine("bend", h)), t["norm.weight"])
        return normed(affine("later", torch.cat((h, word))) if path else affine("first", h), t["norm.weight"])
    h = h if spec.reads == "state" else normed(h, t["norm.weight"])
    if spec.cell == "concat":
        z = torch.cat([h, *(embedding[token] for token in tokens)])
        return bent(affine(f"heads.{k}.pass", z) + F.silu(affine(f"heads.{k}.bend", z)), k)
    if spec.cell == "perceptron":
        return h + affine(f"heads.{k}.down", F.relu(affine(f"heads.{k}.up", h)))
    if spec.cell == "slots":
        return h + affine("slots.down", F.silu(affine("slots.up", h)))[k * DIM : (k + 1) * DIM]
    rows = torch.stack([bent(h, head) + t["places"][head] for head in range(DEEP)])
    y = normed(rows, t["encoder.before.weight"])
    q, key, v = ((y @ t[f"encoder.{part}.weight"].T).view(DEEP, HEADS, -1) for part in "qkv")
    share = (torch.einsum("qhd,khd->hqk", q, key) / math.sqrt(DIM // HEADS)).softmax(-1)
    rows = rows + torch.einsum("hqk,khd->qhd", share, v).reshape(DEEP, -1) @ t["encoder.o.weight"].T
    y = normed(rows, t["encoder.between.weight"])
    inner = F.silu(y @ t["encoder.gate.weight"].T) * (y @ t["encoder.up.weight"].T)
    return (rows + inner @ t["encoder.down.weight"].T)[k]


def _recycled(spec, t, embedding, states, text, path):
    """RecycleGPT, and Jakiro, whose last place is told by the forward before."""
    read, tokens, steps = states, text[1:], [*path]
    last = spec.experts and len(path) == DEEP - 1
    for token in [*(steps[:-1] if last else steps), None]:
        words = normed(embedding[torch.tensor(tokens)], t["embed_norm.weight"])
        x = torch.cat((words, normed(read, t["state_norm.weight"])), -1) @ t["join.weight"].T
        y = _stack(spec, t, x)
        far = y
        if spec.experts:
            y, far = _experts(t, y)
        out = normed(y, t["norm.weight"])
        if token is not None:
            tokens, read = [*tokens, token], torch.cat((read, out[-1:]))
    return normed(far, t["norm.weight"])[-1] if last else out[-1]


def _experts(t: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
    y = normed(x, t["layers.0.post_attention_layernorm.weight"])
    made = []
    for e in range(2):
        gate, up, down = (t[f"experts.{e}.{part}.weight"] for part in ("gate", "up", "down"))
        made.append((F.silu(y @ gate.T) * (y @ up.T)) @ down.T)
    route = y @ t["route.weight"].T
    near, far = route[:, :2].softmax(-1), route[:, 2:].softmax(-1)
    sign = torch.where(far[:, :1] >= far[:, 1:], 1.0, -1.0)
    return (
        x + near[:, :1] * made[0] + near[:, 1:] * made[1],
        x + sign * (far[:, :1] * made[0] - far[:, 1:] * made[1]),
    )


def _added(spec, t, embedding, states, text, path):
    """LLM-to-SLM: drafted tokens have no state; SpecDec: masks stand for them."""
    tokens = [*text[1:], *([spec.mask] * len(path) if spec.block else path)]
    x = embedding[torch.tensor(tokens)]
    if not spec.block:
        lifted = F.relu(states @ t["lift.up.weight"].T) @ t["lift.down.weight"].T
        x = x + torch.cat((lifted, lifted.new_zeros(len(path), DIM)))
    return normed(_stack(spec, t, x), t["norm.weight"])[-1]


def _chimera(spec, t, embedding, states, text, path):
    """Every token from the text's last one on is asked with the two before it; keys are states, and those before."""
    tokens, asked = [*text, *path], []
    for end in range(len(text), len(tokens) + 1):
        three = tokens[max(0, end - 3) : end]
        words = torch.cat([embedding[x] for x in [three[0]] * (3 - len(three)) + three])
        bent = words + F.silu(t["trigram.block.weight"] @ words + t["trigram.block.bias"])
        asked.append(t["trigram.weight"] @ bent)
    x, norm = torch.stack(asked), t["layers.0.input_layernorm.weight"]
    past = len(states)
    y = layered(t, "layers.0.", x, normed(x, norm), normed(states, norm), lambda i, j: j <= past + i)
    return t[f"heads.{len(path)}.mix.weight"] @ torch.cat((states[-1], normed(y, t["norm.weight"])[-1]))


def _dreamt(spec, t, embedding, states, text, path):
    """DREAM: the middle layer's keys are states, and behind the text what the drafter itself put out."""
    tokens, read = text[1:], states
    look, think = t["cross.gates"].tanh()
    for token in [*path, None]:
        x, n = embedding[torch.tensor(tokens)], len(tokens)
        x = layered(t, "layers.0.", x, normed(x, t["layers.0.input_layernorm.weight"]), None, _causal)
        at, places = "layers.1.self_attn.", torch.arange(n).float()
        q = (normed(x, t["layers.1.input_layernorm.weight"]) @ t[f"{at}q_proj.weight"].T).view(n, HEADS, WIDTH)
        k, v = ((read @ t[f"{at}{part}_proj.weight"].T).view(n, KV, WIDTH) for part in "kv")
        q, k = (
            _turned(normed(q, t["cross.q_norm.weight"]), places),
            _turned(normed(k, t["cross.k_norm.weight"]), places),
        )
        k, v = (each.repeat_interleave(HEADS // KV, 1) for each in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(WIDTH)
        share = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
        x = x + look * torch.einsum("hqk,khd->qhd", share, v).reshape(n, -1) @ t[f"{at}o_proj.weight"].T
        y = normed(x, t["layers.1.post_attention_layernorm.weight"])
        y = F.silu(y @ t["layers.1.mlp.gate_proj.weight"].T) * (y @ t["layers.1.mlp.up_proj.weight"].T)
        x = x + think * y @ t["layers.1.mlp.down_proj.weight"].T
        x = layered(t, "layers.2.", x, normed(x, t["layers.2.input_layernorm.weight"]), None, _causal)
        out = normed(x, t["norm.weight"])
        if token is not None:
            tokens, read = [*tokens, token], torch.cat((read, out[-1:]))
    return out[-1]
