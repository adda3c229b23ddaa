"""What must hold for a little model with a drafter that reads its hidden states, and for modules of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.support.drafterforms import DIM, LAYER, Dice, written
from unspool.api.trained_draft import attached
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.models.drafters.opening import open_drafter, open_native
from unspool.models.weights import open_checkpoint
from unspool.recipes.methods import method
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.drafter.guess import DraftedText, Step, Unread
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.llama import Llama

DEEPSEEK = ("enorm", "hnorm", "shared_head.norm", "eh_proj")
OWN = {"glm4_moe", "deepseek_v3", "glm4_moe_lite", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}
"""Families whose published models have a module that predicts several tokens, of layers like their own."""


def in_drafts(kind: str) -> dict[str, str]:
    """What the table says of a family's own module that predicts several tokens."""
    return {"MTP of its own": "yes" if kind in OWN else "none"}


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


def own_module(model: torch.nn.Module, folder: Path, place: Path) -> None:
    """The module inside a checkpoint, whose layer is one of the family's own, guesses what its formula says.

    The layer is transformers' own, the last of the model that attends: head(norm(layer(M·[norm(e); norm(h)]))).
    """
    checkpoint = open_checkpoint(folder)
    shape, tensors = checkpoint.shape, load_file(folder / "model.safetensors")
    number = max(
        n for n, layer in enumerate(shape.stack) if layer.mixer is not None and layer.mixer.kind != "recurrent"
    )
    last = {n.split(f"layers.{number}.", 1)[1]: t for n, t in tensors.items() if f"model.layers.{number}." in n}
    qwen, dim, dice = shape.family.startswith("qwen"), shape.dim, torch.Generator().manual_seed(5)
    at = "mtp.layers.0." if qwen else f"model.layers.{shape.layers}."
    names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc") if qwen else DEEPSEEK
    outer = "mtp." if qwen else at
    word, state, end = (torch.randn(dim, generator=dice) * 0.1 + (not qwen) for _ in range(3))
    join = torch.randn(dim, 2 * dim, generator=dice) * 0.2
    module = {f"{outer}{name}.weight": t for name, t in zip(names, (word, state, end, join), strict=True)}
    module |= {f"{at}{n}": t for n, t in last.items()}
    (place / "config.json").write_text((folder / "config.json").read_text())
    save_file({n: t.clone() for n, t in module.items()}, place / "model.safetensors")
    target = CachedModel(Llama.load(checkpoint, room=64), prefix_cache=0)
    network = attached(target, open_native(place, shape)).network
    tokens, states = [5, 9, 7, 5, 8, 6, 3], torch.randn(6, dim, generator=dice)
    text = DraftedText(tokens, network.slots.take(6))
    (guess,) = network.read([Unread(text, states)])
    (deeper,) = network.grow([Step(text, guess, 4)], network.slots.take(1))

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (dim,), weight + qwen, shape.norm_eps)

    def formula(words: list[int], states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pair = torch.cat((norm(model.model.embed_tokens(torch.tensor(words)), word), norm(states, state)), -1)
        x, places = (pair @ join.T)[None], torch.arange(len(words))[None]
        mask = torch.full((1, 1, len(words), len(words)), float("-inf")).triu(1)
        turns = model.model.rotary_emb(x, places)
        y = model.model.layers[number](x, attention_mask=mask, position_ids=places, position_embeddings=turns)
        out = norm((y if isinstance(y, torch.Tensor) else y[0])[0, -1], end)
        return out, model.lm_head(out)

    with torch.no_grad():
        out, want = formula(tokens[1:], states)
        _, after = formula([*tokens[1:], 4], torch.cat((states, out[None])))
    assert want.abs().max() > 0.5
    assert (network.scores([guess])[0] - want).abs().max() < 1e-4
    assert (network.scores([deeper])[0] - after).abs().max() < 1e-4
