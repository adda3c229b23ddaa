"""What must hold for a little model with a drafter that reads its hidden states, and for modules of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.drafterforms import DIM, LAYER, Dice, written
from unspool.api.trained_draft import attached
from unspool.core.chance import Philox
from unspool.core.errors import BadModel
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.models.drafters.opening import open_drafter, open_native
from unspool.models.weights import open_checkpoint
from unspool.recipes.methods import method
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.llama import Llama

DEEPSEEK = ("enorm", "hnorm", "shared_head.norm", "eh_proj")
OWN = {"glm4_moe", "deepseek_v3", "glm4_moe_lite", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}
"""Families whose published models have a module that predicts several tokens, of layers like their own."""


def in_drafts(kind: str) -> dict[str, str]:
    """What the table says of a family's own module that predicts several tokens."""
    return {"MTP of its own": "not read" if kind in OWN else "none"}


def eagle(folder: Path, vocab: int, layers: int) -> Path:
    """A random EAGLE-3 drafter for a target of this size, which reads three of its hidden states."""
    dice, at = Dice(2), "midlayer."
    tensors = {"fc.weight": dice(DIM, 3 * DIM), **dice.layer(at, 2 * DIM), f"{at}hidden_norm.weight": dice(DIM)}
    tensors |= {"norm.weight": dice(DIM), "lm_head.weight": dice(vocab, DIM)}
    told = {**LAYER, "architectures": ["LlamaForCausalLMEagle3"], "vocab_size": vocab, "draft_vocab_size": vocab}
    return written(folder, {**told, "eagle_aux_hidden_state_layer_ids": [0, layers // 2, layers]}, tensors)


def drafted(model: torch.nn.Module, folder: Path) -> None:
    """A drafter that reads its hidden states guesses something, and the text is plain decoding's, drawn or not."""
    net = Llama.load(open_checkpoint(folder), torch.float64, room=128)
    target = CachedModel(net, prefix_cache=0)
    with tempfile.TemporaryDirectory() as place:
        drafter = attached(target, open_drafter(eagle(Path(place), net.vocab, net.layers), net.shape))
    for temperature in (0.0, 1.0):
        found = []
        for spec in ("plain", "coupled:depth=3"):
            engine = Engine({"target": target, "draft": drafter})
            warp, stop = Temperature(temperature), Stop(most=12)
            job = engine.submit(method(spec), (5, 6, 7, 8, 9), Philox(3), warp, stop, laws=False)
            engine.run()
            target.forget()
            found.append((tuple(job.result().tokens), job.trace.drafted))
        (plain, _), (text, guesses) = found
        assert text == plain
        assert guesses > 0


def own_module(folder: Path, place: Path) -> None:
    """The module inside a checkpoint, whose layer is one of the family's own, is refused by what it has."""
    checkpoint = open_checkpoint(folder)
    shape, tensors = checkpoint.shape, load_file(folder / "model.safetensors")
    number = max(
        n for n, layer in enumerate(shape.stack) if layer.mixer is not None and layer.mixer.kind != "recurrent"
    )
    last = {n.split(f"layers.{number}.", 1)[1]: t for n, t in tensors.items() if f"model.layers.{number}." in n}
    qwen, dim = shape.family.startswith("qwen"), shape.dim
    at = "mtp.layers.0." if qwen else f"model.layers.{shape.layers}."
    names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc") if qwen else DEEPSEEK
    outer = "mtp." if qwen else at
    module = {f"{outer}{name}.weight": torch.ones(dim) for name in names[:3]}
    module |= {f"{outer}{names[3]}.weight": torch.ones(dim, 2 * dim), **{f"{at}{n}": t for n, t in last.items()}}
    (place / "config.json").write_text((folder / "config.json").read_text())
    save_file({n: t.clone() for n, t in module.items()}, place / "model.safetensors")
    with pytest.raises(BadModel, match=r"does not do|does not fit its target"):
        open_native(place, shape)
