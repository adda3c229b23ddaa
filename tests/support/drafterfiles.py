"""Folders of random trained drafters in every published form, for the little model, and what each would guess.

`expected` restates a drafter in its plainest form: whole sequences, no cache, no tree, one path at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support import drafterforms as forms
from tests.support.drafterforms import (
    DIM,
    HIDDEN,
    LAYER,
    LAYERS,
    VOCAB,
    Dice,
    Tensors,
    written,
)
from tests.support.drafterforms import layered as _layer
from tests.support.drafterforms import normed as _norm
from unspool.models.drafters.description import DrafterFile


def eagle1(folder: Path, bias: bool = True) -> Path:
    dice = Dice(1)
    tensors = {"fc.weight": dice(DIM, 2 * DIM), **dice.layer("layers.0.", entry=False)}
    tensors |= {"embed_tokens.weight": dice(VOCAB, DIM)} | ({"fc.bias": dice(DIM)} if bias else {})
    return written(folder, {**LAYER, "architectures": ["LlamaForCausalLMEagle"]}, tensors)


def eagle3(folder: Path, dialect: str = "safeailab", drafted: int = 60, **flags: object) -> Path:
    """As SafeAILab and SpecForge, or as `speculators` writes it; flags are those of the file."""
    dice = Dice(2)
    theirs = dialect != "safeailab"
    at = "layers.0." if theirs else "midlayer."
    states = flags.pop("states", 3)
    assert isinstance(states, int)
    tensors = {"fc.weight": dice(DIM, states * DIM), **dice.layer(at, 2 * DIM, norms=dialect == "qwen3")}
    tensors |= {f"{at}hidden_norm.weight": dice(DIM), "norm.weight": dice(DIM), "lm_head.weight": dice(drafted, DIM)}
    if drafted != VOCAB:
        _, tensors["d2t"], tensors["t2d"] = dice.table(drafted)
    if flags.get("norm_before_fc"):
        tensors["input_norm.weight"] = dice(states * DIM)
    if flags.get("fc_norm"):
        tensors |= {f"fc_norm.{n}.weight": dice(DIM) for n in range(states)}
    if "mask_token_id" in flags:
        tensors["mask_hidden"] = torch.randn(1, 1, states * DIM, generator=dice.generator)
    if not theirs:
        told = {**LAYER, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": drafted, **flags}
        return written(folder, told, tensors)
    layer = {**LAYER, "model_type": "qwen3" if dialect == "qwen3" else "llama"}
    kind = "peagle" if "mask_token_id" in flags else "eagle3"
    proposal = {"proposal_methods": [{"speculative_tokens": 4}]}
    told = {"speculators_model_type": kind, "transformer_layer_config": layer, "draft_vocab_size": drafted}
    return written(folder, {**told, "speculators_config": proposal, **flags}, tensors)


def dflash(folder: Path, markov: str | None = None, **flags: object) -> Path:
    """As z-lab writes it: settings of the block in a group of their own, outputs of layers counted."""
    dice, rank = Dice(3), 5
    tensors = {"fc.weight": dice(DIM, 2 * DIM), "hidden_norm.weight": dice(DIM), "norm.weight": dice(DIM)}
    for layer in range(2):
        tensors |= dice.layer(f"layers.{layer}.", norms=True)
    if markov:
        tensors |= {
            "markov_head.markov_w1.weight": dice(VOCAB, rank),
            "markov_head.markov_w2.weight": dice(VOCAB, rank),
        }
    if markov == "gated":
        tensors |= {"markov_head.gate_proj.weight": dice(rank, DIM + rank), "markov_head.gate_proj.bias": dice(rank)}
    if markov == "rnn":
        tensors["markov_head.joint_proj.weight"] = dice(3 * rank, 2 * rank + DIM)
        tensors["markov_head.joint_proj.bias"] = dice(3 * rank)
    group = {"mask_token_id": 7, "target_layer_ids": [1, 4], "block_size": 4, **flags}
    told = {**LAYER, "model_type": "qwen3", "num_hidden_layers": 2, "architectures": ["DFlashDraftModel"]}
    told |= {"dflash_config": group, **({"markov_head_type": markov} if markov else {})}
    return written(folder, told, tensors)


def dflash2(folder: Path, top: int = 11, **flags: object) -> Path:
    """As vLLM reads it: DFlash's tensors, two convolutions a layer, and the tables of the lattice."""
    dice, rank, taps, each = Dice(7), 5, 2, 8
    tensors = {"fc.weight": dice(DIM, 2 * DIM), "hidden_norm.weight": dice(DIM), "norm.weight": dice(DIM)}
    for layer in range(2):
        tensors |= dice.layer(f"layers.{layer}.", norms=True)
        for part in ("attention_conv", "mlp_conv"):
            tensors[f"layers.{layer}.{part}.base_kernel"] = 0.5 + dice(2, taps, DIM)
            tensors[f"layers.{layer}.{part}.kernel_projection.weight"] = dice(2 * taps * DIM // each, DIM)
    tensors |= {f"candidate_selector.{side}cessor_codebook": 5 * dice(VOCAB, rank) for side in ("prede", "suc")}
    tensors["candidate_selector.hidden_projection.weight"] = dice(rank, DIM)
    group = {"mask_token_id": 7, "target_layer_ids": [1, 4], "block_size": 4, "conv_kernel_size": taps, **flags}
    group |= {"conv_group_size": each, "selector_rank": rank, "selector_top_k": top}
    told = {**LAYER, "model_type": "qwen3", "num_hidden_layers": 2, "architectures": ["DFlash2DraftModel"]}
    return written(folder, {**told, "dflash_config": group}, tensors)


def medusa(folder: Path, vllm: bool = False, own: bool = True) -> Path:
    dice, tensors = Dice(4), {}
    for head in range(3):
        at = f"blocks.{head}.layers.0" if vllm else f"{head}.0.linear"
        tensors |= {f"{at}.weight": dice(DIM, DIM), f"{at}.bias": dice(DIM)}
        if own:
            tensors[f"lm_heads.{head}.weight" if vllm else f"{head}.1.weight"] = dice(VOCAB, DIM)
    return written(folder, {"model_type": "medusa", "medusa_num_heads": 3, "medusa_num_layers": 1}, tensors)


def mlp_speculator(folder: Path, scale: bool = True, tied: bool = False) -> Path:
    dice, tensors, inner, steps = Dice(5), {}, 24, 3
    for step in range(steps):
        if not tied or step == 0:
            tensors |= {
                f"speculator.emb.{step}.weight": dice(VOCAB, inner),
                f"speculator.head.{step}.weight": dice(VOCAB, inner),
            }
            tensors |= {f"speculator.ln.{step}.weight": dice(inner), f"speculator.ln.{step}.bias": dice(inner) - 1}
        if not tied or step < 2:
            tensors[f"speculator.proj.{step}.weight"] = dice(inner, inner if step else DIM)
    told = {"model_type": "mlp_speculator", "architectures": ["MLPSpeculatorPreTrainedModel"], "vocab_size": VOCAB}
    told |= {"emb_dim": DIM, "inner_dim": inner, "n_predict": steps, "scale_input": scale, "tie_weights": tied}
    return written(folder, told, tensors)


def mtp_tensors(layout: str, hidden: int = 64) -> Tensors:
    """A module as it stands in a checkpoint of DeepSeek's, Qwen's or MiMo's kind."""
    dice = Dice(6)
    if layout == "deepseek":
        at, names = f"model.layers.{LAYERS}.", ("enorm", "hnorm", "eh_proj", "shared_head.norm")
    elif layout == "mimo":
        at, names = "model.mtp_layers.0.", ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
    else:
        at, names = "mtp.", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
    made = {f"{at}{name}.weight": dice(DIM, 2 * DIM) if n == 2 else dice(DIM) for n, name in enumerate(names)}
    made |= dice.layer("mtp.layers.0." if layout == "qwen" else at, hidden=hidden)
    return {name: t - 1 if layout == "qwen" and t.dim() == 1 else t for name, t in made.items()}


def mtp(folder: Path) -> Path:
    """A module in a folder of its own, as `speculators` writes it: MiMo's names, the embedding first."""
    tensors = {name.removeprefix("model."): t for name, t in mtp_tensors("mimo", HIDDEN).items()}
    told = {"speculators_model_type": "mtp", "transformer_layer_config": LAYER}
    return written(folder, told, tensors)


# ---- what they guess


def expected(
    file: DrafterFile, embedding: Tensor, head: Tensor, states: Tensor, text: Sequence[int], path: Sequence[int]
) -> Tensor:
    """The scores after a text and a drafted path below it; −∞ throughout where there is nothing to say.

    `states` are the target's, of all tokens of the text but the last, side by side.
    """
    spec = file.spec
    t = {name: tensor if name == "ids" else tensor.to(embedding) for name, tensor in file.tensors.items()}
    nothing = embedding.new_full((VOCAB,), -math.inf)
    if len(text) < 2 or len(path) >= (spec.depth or spec.block or 99):
        return nothing
    kinds = {"attend": _feature, "project": _feature, "context": _block, "heads": _medusa, "recurrent": _mlp}
    kinds |= {"context": _convolved} if spec.taps else {}
    restated = forms.restated if spec.kind in forms.TITLES else kinds[spec.join]
    out, logits = restated(spec, t, t.get("embed.weight", embedding), states, list(text), list(path))
    if logits is None:
        logits = t.get("head.weight", head) @ out
    if spec.markov:
        logits = logits + t["markov.w2"] @ _hint(spec, t, out, list(text), list(path))
    if spec.lattice:
        logits = _lattice(spec, t, out, logits, [*text, *path][-1])
    if "ids" not in t:
        return logits
    nothing[t["ids"]] = logits
    return nothing


def _fused(spec, t: Tensors, states: Tensor) -> Tensor:
    states = _norm(states, t.get("fuse_norm.weight"))
    if "fuse_norm.0.weight" in t:
        parts = states.split(DIM, -1)
        states = torch.cat([_norm(part, t[f"fuse_norm.{n}.weight"]) for n, part in enumerate(parts)], -1)
    return states @ t["fuse.weight"].T if "fuse.weight" in t else states


def _feature(spec, t, embedding, states, text, path):
    read = _fused(spec, t, states)
    tokens = text[1:]
    if spec.block:
        read = torch.cat((read, _fused(spec, t, t["mask_state"].expand(len(path), -1))))
        tokens, steps = tokens + [spec.mask] * len(path), [None]
    else:
        steps = [*path, None]
    for token in steps:
        words, state = embedding[torch.tensor(tokens)], _norm(read, t.get("state_norm.weight"))
        causal = lambda i, j: j <= i  # noqa: E731
        if spec.join == "attend":
            both = torch.cat((_norm(words, t["layers.0.input_layernorm.weight"]), state), -1)
            y = _layer(t, "layers.0.", state if spec.residual_normed else read, both, None, causal)
        else:
            pair = [_norm(words, t.get("embed_norm.weight")), state]
            x = torch.cat(pair if spec.embedding_first else pair[::-1], -1) @ t["join.weight"].T + t.get("join.bias", 0)
            y = _layer(t, "layers.0.", x, _norm(x, t.get("layers.0.input_layernorm.weight")), None, causal)
        out = _norm(y, t.get("norm.weight"))
        if token is not None:
            tokens = [*tokens, token]
            read = torch.cat((read, (out if spec.recycles_normed else y)[-1:]))
    return out[-1], None


def _block(spec, t, embedding, states, text, path):
    context = _norm(_fused(spec, t, states), t["state_norm.weight"])
    x = embedding[torch.tensor([text[-1], *[spec.mask] * (spec.block - 1)])]
    past = len(context)
    for n in range(2):
        entering = _norm(x, t[f"layers.{n}.input_layernorm.weight"])
        seen = lambda i, j: j < past or not spec.causal or j - past <= i  # noqa: E731
        x = _layer(t, f"layers.{n}.", x, entering, context, seen)
    return _norm(x, t["norm.weight"])[len(path) + (not spec.anchored)], None


def _convolved(spec, t, embedding, states, text, path):
    context = _norm(_fused(spec, t, states), t["state_norm.weight"])
    x = embedding[torch.tensor([text[-1], *[spec.mask] * (spec.block - 1)])] * spec.embed_scale
    past, each = len(context), DIM // spec.groups

    def convolved(name, side, y, by):
        base = t[f"{name}.base_kernel"][side]
        moved = (by @ t[f"{name}.kernel_projection.weight"].T).view(len(y), 2, spec.taps, spec.groups)[:, side]
        out = torch.zeros_like(y)
        for place in range(len(y)):
            for tap in range(min(spec.taps, place + 1)):
                for n in range(DIM):
                    out[place, n] += (base[tap, n] + moved[place, tap, n // each]) * y[place - tap, n]
        return out

    for n in range(2):
        at = f"layers.{n}."
        entering = _norm(x, t[f"{at}input_layernorm.weight"])
        alone = {k: v for k, v in t.items() if not k.startswith(f"{at}mlp.")}  # which leaves the perceptron out
        read = convolved(f"{at}attention_conv", 0, entering, entering)
        seen = _layer(alone, at, torch.zeros_like(x), read, context, lambda i, j: j < past or not spec.causal)
        x = x + convolved(f"{at}attention_conv", 1, seen, entering)
        entering = _norm(x, t[f"{at}post_attention_layernorm.weight"])
        y = convolved(f"{at}mlp_conv", 0, entering, entering)
        y = F.silu(y @ t[f"{at}mlp.gate_proj.weight"].T) * (y @ t[f"{at}mlp.up_proj.weight"].T)
        x = x + convolved(f"{at}mlp_conv", 1, y @ t[f"{at}mlp.down_proj.weight"].T, entering)
    return _norm(x, t["norm.weight"])[len(path) + (not spec.anchored)], None


def _lattice(spec, t, out, logits, before):
    logits = logits * spec.logit_scale
    if spec.logit_cap is not None:
        logits = spec.logit_cap * torch.tanh(logits / spec.logit_cap)
    found = torch.full_like(logits, -math.inf)
    for token in logits.topk(min(spec.lattice, len(logits))).indices.tolist():
        word = token if "ids" not in t else int(t["ids"][token])
        weighed = t["selector.before"][before] * (t["selector.state.weight"] @ out) * t["selector.after"][word]
        found[token] = logits[token] + weighed.sum()
    return found


def _hint(spec, t, out, text, path):
    word = t["markov.w1"][[*text, *path][-1]]
    if spec.markov == "vanilla":
        return word
    assert spec.markov == "gated"  # the recurrent one is compared with `speculators` alone
    return torch.sigmoid(t["markov.gate_proj.weight"] @ torch.cat((out, word)) + t["markov.gate_proj.bias"]) * word


def _medusa(spec, t, embedding, states, text, path):
    at, h = f"heads.{len(path)}", states[-1]
    x = h + F.silu(t[f"{at}.0.weight"] @ h + t[f"{at}.0.bias"])
    return x, t[f"{at}.out"] @ x if f"{at}.out" in t else None


def _mlp(spec, t, embedding, states, text, path):
    s, share = states[-1], 0.5 ** (0.5 / 3)
    if spec.scale_input:
        s = _norm(s, torch.ones(()).to(s), 1e-6) / math.sqrt(2)
    for n, token in enumerate([text[-1], *path]):
        part = {name: t[f"steps.{n}.{name}"] for name in ("embed", "proj", "norm", "shift", "out")}
        s = part["proj"] @ s + part["embed"][token] * math.sqrt((1 - share**2) * 24 / 2) / share
        s = F.gelu(_norm(s, part["norm"], 1e-6) + part["shift"])
    return s, part["out"] @ s


Maker = Callable[[Path], Path]
KINDS: dict[str, Maker] = {
    "eagle-1": eagle1,
    "eagle-1, no bias": lambda folder: eagle1(folder, bias=False),
    "eagle-3": lambda folder: eagle3(folder),
    "eagle-3, specforge": lambda folder: eagle3(folder, eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 5]}),
    "eagle-3, speculators": lambda folder: eagle3(folder, "speculators", norm_before_residual=True),
    "eagle-3, qwen3, whole vocabulary": lambda folder: eagle3(folder, "qwen3", VOCAB, norm_before_fc=True),
    "eagle-3.1": lambda folder: eagle3(folder, "speculators", fc_norm=True, norm_output=True, states=3),
    "mtp": mtp,
    "p-eagle": lambda folder: eagle3(folder, "speculators", mask_token_id=9),
    "dflash": dflash,
    "jetspec": lambda folder: dflash(folder, causal_head=True),
    "dspark": lambda folder: dflash(folder, "vanilla"),
    "dspark, gated": lambda folder: dflash(folder, "gated", sample_from_anchor=False),
    "dflash2": dflash2,
    "dflash2, scaled and capped": lambda folder: dflash2(
        folder, input_embedding_scale=1.5, output_multiplier=0.7, final_logit_softcapping=9.0, sample_from_anchor=True
    ),
    "medusa": medusa,
    "medusa, vllm's names": lambda folder: medusa(folder, vllm=True),
    "medusa, the target's head": lambda folder: medusa(folder, own=False),
    "mlp speculator": mlp_speculator,
    "mlp speculator, tied": lambda folder: mlp_speculator(folder, scale=False, tied=True),
}
KINDS |= {name: partial(forms.formed, name) for name in forms.FORMS}
