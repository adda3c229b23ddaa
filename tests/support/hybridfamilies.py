"""Little models of the families whose layers are recurrent or latent: what people call each, its kind, its settings."""

from __future__ import annotations

from typing import Any

LAYERS = {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
CONV = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
DELTA = {
    **LAYERS,
    "head_dim": 16,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 40}
MAMBA = {
    **LAYERS,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 6,
    "mamba_chunk_size": 16,
    "time_step_limit": [0.4, 0.9],
    "shared_intermediate_size": 56,
}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
NEMOTRON = {
    "head_dim": 8,
    "mamba_num_heads": 8,
    "mamba_head_dim": 6,
    "n_groups": 2,
    "ssm_state_size": 6,
    "chunk_size": 16,
    "n_routed_experts": 4,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
}
BLOCKS = ["linear_attention", "mlp", "linear_attention", "full_attention", "moe"]
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "num_hidden_layers": 2,
}
ROUTED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
EYES: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 32,
    "deepstack_visual_indexes": [0],
}
MSCALE = {"mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1}

HYBRIDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("LFM2, LFM2.5", "lfm2", {**CONV, "block_multiple_of": 16, "conv_bias": True}),
    ("LFM2 MoE", "lfm2_moe", {**CONV, **EXPERTS, "num_dense_layers": 1}),
    ("Qwen3-Next", "qwen3_next", {**DELTA, **SHARED}),
    ("Qwen3.5, 3.6 (text)", "qwen3_5_text", DELTA),
    ("Qwen3.5, 3.6 MoE (text)", "qwen3_5_moe_text", {**DELTA, **SHARED}),
    ("Granite 4 H", "granitemoehybrid", {**MAMBA, **GRANITE, "num_local_experts": 0}),
    (
        "Granite 4 H with experts",
        "granitemoehybrid",
        {**MAMBA, "num_local_experts": 4, "num_experts_per_tok": 2, "position_embedding_type": "rope"},
    ),
    ("Nemotron-H, Nemotron 3 Nano", "nemotron_h", {**NEMOTRON, "layers_block_type": BLOCKS}),
    ("DeepSeek-V3, R1; Kimi K2's shape", "deepseek_v3", {**LATENT, **ROUTED, "first_k_dense_replace": 1}),
    (
        "DeepSeek-V3 stretched by YaRN",
        "deepseek_v3",
        {**LATENT, "q_lora_rank": None, "first_k_dense_replace": 2, "rope_parameters": {**YARN, **MSCALE}},
    ),
    ("GLM-4.7-Flash", "glm4_moe_lite", {**LATENT, **ROUTED, "n_group": 1}),
    ("MiniCPM3", "minicpm3", {**LATENT, "dim_model_base": 16}),
)
IN_GRAPHS = ("CUDA graphs", "batch-invariant in graphs")
"""The columns of the table that tests/runtime/cuda/test_family_graphs.py checks for every family."""
