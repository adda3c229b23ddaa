"""Causal models with and without a KV cache: the pool, its sequences, shared prefixes, and laws as rows of logits."""
