"""Little random folders of every family that is read natively, written by transformers, and what must hold for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.support.hybridfamilies import HYBRIDS
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.batch_invariant import ROWS, PerTokenPlanner, check, padded
from unspool.runtime.network.linear import dense
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import Batch, Row

VOCAB, LENGTH, WINDOW = 61, 26, 7
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
RECURRENT = {"lfm2", "lfm2_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid", "nemotron_h"}
LATENT = {"deepseek_v3", "glm4_moe_lite", "minicpm3"}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.5, 2.0], "long_factor": [2.0, 3.0, 4.0]}
HALVES = {"partial_rotary_factor": 0.75}
SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
EYES: Mapping[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 32,
    "deepstack_visual_indexes": [0],
}


class Family(NamedTuple):
    """A row of the table: what people call it, its model_type, and the settings of a little one."""

    title: str
    kind: str
    settings: Mapping[str, Any]
    vision: Mapping[str, Any] = {}


FAMILIES: tuple[Family, ...] = (
    Family("Llama 2/3, SmolLM2", "llama", {}),
    Family("Mistral 7B", "mistral", {"sliding_window": WINDOW}),
    Family("Ministral 8B", "ministral", {"head_dim": 8, "sliding_window": WINDOW}),
    Family(
        "Ministral 3, Mistral Small 3",
        "ministral3",
        {"head_dim": 8, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    Family("Qwen2, Qwen2.5", "qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}),
    Family("Qwen3", "qwen3", {"head_dim": 8, "rope_parameters": YARN}),
    Family("Gemma 2", "gemma2", {"head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 12}),
    Family("Gemma 3", "gemma3_text", {"head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 12}),
    Family(
        "Gemma 4 E2B, E4B (text)",
        "gemma4_text",
        {
            "head_dim": 8,
            "global_head_dim": 16,
            "sliding_window": WINDOW,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCAB,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 5.0,
        },
    ),
    Family(
        "Gemma 4 26B-A4B, 31B (text)",
        "gemma4_text",
        {
            "head_dim": 8,
            "global_head_dim": 16,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 5,
            "top_k_experts": 2,
            "moe_intermediate_size": 12,
        },
    ),
    Family(
        "Phi-3, Phi-4",
        "phi3",
        {
            "head_dim": 8,
            "sliding_window": WINDOW,
            "original_max_position_embeddings": 64,
            "rope_parameters": {**LONGROPE, **HALVES},
        },
    ),
    Family("SmolLM3", "smollm3", {"use_sliding_window": True, "sliding_window": WINDOW, "no_rope_layer_interval": 2}),
    Family("OLMo 2", "olmo2", {}),
    Family("OLMo 3", "olmo3", {"sliding_window": WINDOW}),
    Family(
        "Granite 3",
        "granite",
        {
            "embedding_multiplier": 6.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.4,
            "logits_scaling": 0.5,
            "attention_bias": True,
        },
    ),
    Family("GLM-4 9B", "glm", {"head_dim": 8}),
    Family("GLM-4 0414", "glm4", {"head_dim": 8}),
    Family(
        "Qwen2-MoE",
        "qwen2_moe",
        {
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 24,
        },
    ),
    Family(
        "Qwen3-MoE",
        "qwen3_moe",
        {
            "head_dim": 8,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    Family("Qwen3-VL (text)", "qwen3_vl", {"head_dim": 8, "rope_parameters": SECTIONS}, EYES),
    Family(
        "Qwen3-VL-MoE (text)",
        "qwen3_vl_moe",
        {
            "head_dim": 8,
            "rope_parameters": SECTIONS,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "norm_topk_prob": True,
        },
        EYES,
    ),
    Family("Mixtral", "mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": WINDOW}),
    Family("OLMoE", "olmoe", {"num_experts": 5, "num_experts_per_tok": 2}),
    Family("Granite 3 MoE", "granitemoe", {"num_local_experts": 5, "num_experts_per_tok": 2, "logits_scaling": 2.0}),
    Family(
        "Granite MoE with shared experts",
        "granitemoeshared",
        {"num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 24},
    ),
    Family(
        "GLM-4.5, 4.6 (MoE)",
        "glm4_moe",
        {
            "head_dim": 8,
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 16,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    Family(
        "gpt-oss",
        "gpt_oss",
        {
            "head_dim": 8,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "rope_parameters": {**YARN, "truncate": False},
        },
    ),
    Family(
        "Llama 4 (text)",
        "llama4_text",
        {
            "head_dim": 8,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "intermediate_size_mlp": 40,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": WINDOW,
            "floor_scale": 4,
        },
    ),
    *(Family(*row) for row in HYBRIDS),
)


def written(family: Family, folder: Path) -> torch.nn.Module:
    """Write a little model of a family, with weights large enough to matter; the model itself."""
    import transformers  # the oracle, which not everyone has

    torch.manual_seed(7)
    told, auto = {**SIZES, **family.settings}, transformers.AutoModelForCausalLM
    if family.vision:
        told = {"text_config": told, "vision_config": family.vision, "tie_word_embeddings": False}
        auto = transformers.AutoModelForImageTextToText
    config = transformers.AutoConfig.for_model(family.kind, **told)
    model = auto.from_config(config, dtype=torch.float32).eval()
    still = {name for name, _ in model.named_buffers() if "inv_freq" in name or "embed_scale" in name}
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if name not in still:
            # transformers' own rounding in a delta net of larger weights is larger than what is allowed here
            delta = family.kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
            weight.data.normal_(std=0.15 if delta else 0.3 if weight.dim() > 1 else 0.2)
            offset = family.kind in ("gemma2", "gemma3_text") or (delta and "linear" not in name)
            if ("norm" in name and not offset) or "scal" in name:
                weight.data += 1
    model.save_pretrained(folder)
    return model


def in_graphs(kind: str) -> dict[str, str]:
    """What the table says of a family: whether its steps are CUDA graphs, and whether a text's bits are fixed there."""
    graphs, fixed = kind not in RECURRENT, kind not in RECURRENT | LATENT
    return {"CUDA graphs": "yes" if graphs else "no", "batch-invariant in graphs": "yes" if fixed else "no"}


def text(seed: int, length: int = LENGTH) -> torch.Tensor:
    """A text that is always the same."""
    return torch.randint(3, VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def run(net: Llama, tokens: torch.Tensor, slots: list[int], past: int = 0) -> torch.Tensor:
    """The logits of all `tokens`, which stand behind `past` tokens of the same text."""
    count = len(tokens)
    row = Row(0, count, slots[: past + count], list(range(past + count)))
    places = torch.arange(past, past + count)
    return net.forward(Batch(tokens, places, slots[past : past + count], [row], torch.arange(count))).logits


def near(a: torch.Tensor, b: torch.Tensor, bound: float) -> None:
    """Assert that they are."""
    far = float((a - b).abs().max())
    assert far <= bound, f"off by {far}"


def logits(model: torch.nn.Module, folder: Path) -> None:
    """Logits of a text longer than any window are those of transformers, read at once or token by token."""
    tokens, net = text(0), Llama.load(open_checkpoint(folder))
    with torch.no_grad():
        want = model(tokens[None]).logits[0]
    assert want.abs().max() > 1
    near(run(net, tokens, list(range(LENGTH))), want, 1e-4)
    slots = list(range(LENGTH, 2 * LENGTH))
    near(torch.cat([run(net, tokens[i : i + 1], slots, i) for i in range(LENGTH)]), want, 1e-4)


def tree(model: torch.nn.Module, folder: Path) -> None:
    """A drafted tree of nine branches behind a window's worth of text is each of its paths."""
    net, past, siblings = Llama.load(open_checkpoint(folder), torch.float64), 12, 9
    tokens, drafted = text(4, past), text(5, 2 * siblings)
    places = [*range(past), *[past] * siblings, *[past + 1] * siblings]
    hidden = torch.ones(2 * siblings, past + 2 * siblings, dtype=torch.bool)
    hidden[:, :past] = False
    for node in range(2 * siblings):
        hidden[node, past + node] = hidden[node, past + node % siblings] = False
    slots = list(range(past + 2 * siblings))[::-1]
    run(net, tokens, slots)
    row = Row(0, 2 * siblings, slots, places, hidden)
    batch = Batch(drafted, torch.tensor(places[past:]), slots[past:], [row], torch.arange(2 * siblings))
    found = net.forward(batch).logits
    for node in (0, 3, siblings - 1):
        path = torch.cat((tokens, drafted[[node, siblings + node]]))
        alone = run(net, path, list(range(60, 60 + past + 2)))
        near(found[[node, siblings + node]], alone[past:], 1e-10)


def batch(model: torch.nn.Module, folder: Path) -> None:
    """Texts of three lengths, partly read before, packed together say what each says alone."""
    net, lengths, olds = Llama.load(open_checkpoint(folder), torch.float64), (1, 17, 5), (9, 0, 12)
    texts = [text(seed, old + new) for seed, (new, old) in enumerate(zip(lengths, olds, strict=True))]
    slots, alone, rows, first = [], [], [], 0
    for tokens, old, count in zip(texts, olds, lengths, strict=True):
        slots.append(net.slots.take(len(tokens)))
        if old:
            run(net, tokens[:old], slots[-1])
        alone.append(run(net, tokens[old:], slots[-1], old))
        rows.append(Row(first, count, slots[-1], list(range(len(tokens)))))
        first += count
    new = [slot for held, count in zip(slots, lengths, strict=True) for slot in held[-count:]]
    packed = torch.cat([tokens[old:] for tokens, old in zip(texts, olds, strict=True)])
    places = torch.cat([torch.arange(old, len(tokens)) for tokens, old in zip(texts, olds, strict=True)])
    found = net.forward(Batch(packed, places, new, rows, torch.arange(first))).logits
    near(found, torch.cat(alone), 1e-10)


def fork(model: torch.nn.Module, folder: Path) -> None:
    """A session that drafts, keeps a path and forks has the laws of the same texts read from scratch."""
    net = Llama.load(open_checkpoint(folder), torch.float64)
    cached, start = CachedModel(net, prefix_cache=0), tuple(text(6, 11).tolist())
    session = cached.open(start)
    drafted = NOTHING
    for token, under in ((5, -1), (6, 0), (7, 0), (8, -1), (9, 2)):
        drafted, _ = drafted.grow(Drawn(token, Law.point(token)), under)
    cached.score([ScoreRequest(session, drafted)])
    session.keep(drafted, (4,), (4,))
    copy = session.fork()
    chain = Tree.chain([Drawn(token, Law.point(token)) for token in (10, 11)])
    mine, theirs = cached.score([ScoreRequest(session, chain), ScoreRequest(copy, NOTHING)])
    kept = (*start, 5, 7, 9, 4)
    fresh = Llama.load(open_checkpoint(folder), torch.float64)
    whole = run(fresh, torch.tensor((*kept, 10, 11)), list(range(len(kept) + 2)))
    near(theirs.leaf[0].scores, whole[len(kept) - 1], 1e-10)
    near(mine.leaf[0].scores, whole[len(kept) - 1], 1e-10)
    near(mine.after[1].scores, whole[-1], 1e-10)


def invariant(model: torch.nn.Module, folder: Path) -> None:
    """With fixed shapes the bits of a law depend on its text alone: in one go, in pieces, and in a tree."""
    make = padded(dense, ROWS)
    net = Llama.load(open_checkpoint(folder), linear=make, planner=PerTokenPlanner, router=padded(dense, ROWS))
    check(CachedModel(net, prefix_cache=0))


Check = Callable[[torch.nn.Module, Path], None]
CHECKS: Mapping[str, Check] = {
    "logits = transformers": logits,
    "tree = chains": tree,
    "batch = alone": batch,
    "keep = recompute, fork = copy": fork,
    "batch-invariant": invariant,
}
