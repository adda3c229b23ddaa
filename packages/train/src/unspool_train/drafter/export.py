"""A trained drafter as a folder in the form of `speculators`: config.json and model.safetensors, for any engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from unspool.models.drafters.description import DrafterFile
from unspool.models.drafters.dflash2 import SELECTOR
from unspool.models.drafters.forms import FORMS, MODEL_TYPE
from unspool.models.json_vocabulary import write_vocabulary
from unspool.models.shape import Shape
from unspool.models.vocabulary import Vocabulary

from ..training_network import Frozen

WEIGHTS = "model.safetensors"
LLAMA = "llama"  # the form of a whole model
DELTA = "delta"  # the form of a change of the target
NAMES = {
    "fuse.weight": "fc.weight",
    "state_norm.weight": "layers.0.hidden_norm.weight",
    "head.weight": "lm_head.weight",
    "mask_state": "mask_hidden",
    "confidence.weight": "confidence_head.proj.weight",
    "confidence.bias": "confidence_head.proj.bias",
    "markov.w1": "markov_head.markov_w1.weight",
    "markov.w2": "markov_head.markov_w2.weight",
    **SELECTOR,
    **{f"fuse_norm.{n}.weight": f"fc_norm.{n}.weight" for n in range(8)},
}
MTP_NAMES = {
    "embed_norm.weight": "mtp_layers.0.token_layernorm.weight",
    "state_norm.weight": "mtp_layers.0.hidden_layernorm.weight",
    "join.weight": "mtp_layers.0.input_proj.weight",
    "norm.weight": "mtp_layers.0.final_layernorm.weight",
    "head.weight": "lm_head.weight",
}
BLOCK = re.compile(r"heads\.(\d+)\.(\d+)\.(weight|bias)")
STEP = re.compile(r"steps\.(\d+)\.(embed|proj|out|norm|shift)")
STEP_NAMES = {
    "embed": "emb.{}.weight",
    "proj": "proj.{}.weight",
    "out": "head.{}.weight",
    "norm": "ln.{}.weight",
    "shift": "ln.{}.bias",
}
ARCHITECTURES = {
    "eagle3": "Eagle3Speculator",
    "peagle": "PEagleSpeculator",
    "mtp": "MTPDraftModel",
    "dflash": "DFlashSpeculator",
    "dspark": "DSparkSpeculator",
    "dflash2": "DFlash2Speculator",
}

ARCHITECTURE_OF = {"medusa": "MedusaModel", "mlp_speculator": "MLPSpeculatorPreTrainedModel"}  # forms of their own


def export(
    folder: Path, form: str, file: DrafterFile, target: Shape, base: str, depth: int, int8: bool = False
) -> Path:
    """Write the folder; matrices in bfloat16. A drafter without a head or embeddings of its own uses the target's.

    With `int8` matrices have 8 bits a number and a scale for each row, `NAME.scale`, which unspool alone reads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = dict(file.tensors)
    ids = held.pop("ids", None)
    stored = {_name(name, form): _narrow(tensor) for name, tensor in held.items()}
    if ids is not None:
        known = torch.zeros(target.vocab, dtype=torch.bool)
        known[ids.cpu()] = True
        stored |= {"d2t": (ids.cpu() - torch.arange(len(ids))).to(torch.int64), "t2d": known}
    if "mask_hidden" in stored:
        stored["mask_hidden"] = stored["mask_hidden"][None, None]
    if int8:
        stored = eight_bits({_name(name, form): tensor for name, tensor in held.items()}, stored)
    save_file(stored, folder / f"{WEIGHTS}.part", metadata={"format": "pt"})
    (folder / f"{WEIGHTS}.part").replace(folder / WEIGHTS)
    config = settings(form, file, target, base, depth)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return folder


def export_model(folder: Path, file: DrafterFile, frozen: Frozen, vocabulary: Vocabulary) -> Path:
    """Write a small model of its own as a folder that any engine opens: with embeddings, head and vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {f"model.{name}": _narrow(tensor) for name, tensor in file.tensors.items()}
    stored["model.embed_tokens.weight"] = _narrow(frozen.embedding)
    if not frozen.shape.tied:
        stored["lm_head.weight"] = _narrow(frozen.head)
    save_file(stored, folder / f"{WEIGHTS}.part", metadata={"format": "pt"})
    (folder / f"{WEIGHTS}.part").replace(folder / WEIGHTS)
    config = layer_settings(file.spec.shape) | {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    config |= {"bos_token_id": vocabulary.bos, "eos_token_id": sorted(vocabulary.eos)}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    write_vocabulary(folder, vocabulary)
    return folder


def _name(ours: str, form: str) -> str:
    if form == MODEL_TYPE:
        return ours
    if form == "eagle":
        return ours.replace("join.", "fc.", 1)
    if found := BLOCK.fullmatch(ours):
        return "blocks.{}.layers.{}.{}".format(*found.groups())
    if found := STEP.fullmatch(ours):
        return "speculator." + STEP_NAMES[found[2]].format(found[1])
    if form == "mtp":
        return MTP_NAMES.get(ours, ours.replace("layers.0.", "mtp_layers.0.", 1))
    if form in ("dflash", "dspark", "dflash2") and ours == "state_norm.weight":
        return "hidden_norm.weight"
    return NAMES.get(ours, ours)


def eight_bits(exact: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is stored, with its matrices as rows of whole numbers from −127 to 127 and a scale each."""
    found = dict(stored)
    for name, tensor in stored.items():
        if tensor.dim() == 2 and tensor.is_floating_point():
            wide = exact.get(name, tensor).detach().float().cpu()
            scale = (wide.abs().amax(1) / 127).clamp(min=1e-12)
            found[name] = (wide / scale[:, None]).round().to(torch.int8).contiguous()
            found[f"{name}.scale"] = scale
    return found


def _narrow(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.bfloat16).cpu().contiguous()


def settings(form: str, file: DrafterFile, target: Shape, base: str, depth: int) -> Mapping[str, Any]:
    """What config.json says."""
    told: dict[str, Any]
    spec, ids = file.spec, file.tensors.get("ids")
    cut = {"draft_vocab_size": target.vocab if ids is None else len(ids), "target_hidden_size": spec.wide}
    if form == MODEL_TYPE:
        (name,) = (name for name, each in FORMS.items() if each.title == spec.kind)
        told = {"model_type": form, "architectures": ["UnspoolDrafter"], "drafter": name, "depth": depth, **cut}
        told["vocab_size"] = target.vocab
        if spec.shape.layers:
            told |= {"layers": spec.shape.layers, "transformer_layer_config": layer_settings(spec.shape)}
        return told | ({"mask_token_id": spec.mask} if spec.block else {})
    if form == "eagle":
        return {**layer_settings(spec.shape), "architectures": ["LlamaForCausalLMEagle"]}
    if form in ARCHITECTURE_OF:
        told = {"model_type": form, "architectures": [ARCHITECTURE_OF[form]], "vocab_size": target.vocab}
        if form == "medusa":
            return {**told, "hidden_size": spec.wide, "medusa_num_heads": spec.depth, "num_heads": spec.depth}
        sizes = {"emb_dim": spec.wide, "inner_dim": spec.shape.dim, "n_predict": spec.depth}
        return {**told, **sizes, "tie_weights": True, "scale_input": spec.scale_input}
    told = {
        "architectures": [ARCHITECTURES[form]],
        "speculators_model_type": form,
        "transformer_layer_config": layer_settings(spec.shape),
        "speculators_config": {
            "algorithm": form,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": depth}],
            "verifier": {"name_or_path": base, "architectures": [f"{target.family.capitalize()}ForCausalLM"]},
        },
    }
    if spec.join == "attend":
        told |= cut | {
            "eagle_aux_hidden_state_layer_ids": list(spec.states),
            "norm_before_residual": spec.residual_normed,
            "norm_before_fc": False,
            "fc_norm": spec.recycles_normed,
            "norm_output": spec.recycles_normed,
        }
    if spec.join == "context":
        told |= cut | {
            "aux_hidden_state_layer_ids": list(spec.states),
            "block_size": spec.block,
            "sample_from_anchor": spec.anchored,
        }
        if spec.causal:
            told["dflash_config"] = {"causal_head": True}
    if spec.lattice:
        sizes = {"conv_kernel_size": spec.taps, "conv_group_size": spec.shape.dim // spec.groups}
        sizes |= {"selector_rank": file.tensors["selector.before"].shape[1], "selector_top_k": spec.lattice}
        told["dflash_config"] = sizes
    if spec.markov:
        rank = file.tensors["markov.w1"].shape[1]
        told |= {"markov_rank": rank, "markov_head_type": spec.markov, "enable_confidence_head": True}
        told["confidence_head_with_markov"] = False
    return told | ({"mask_token_id": spec.mask} if spec.block else {})


def layer_settings(shape: Shape) -> dict[str, Any]:
    """A plain Llama's settings of a shape."""
    return {
        "model_type": shape.family,
        "vocab_size": shape.vocab,
        "hidden_size": shape.dim,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": shape.activation,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": shape.tied,
    }
