"""Models that fill holes: bidirectional ones, block diffusion on a causal cache, and that on a GPU."""
