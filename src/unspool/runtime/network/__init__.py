"""Networks: layers, attention, mixtures of experts, quantised and batch-invariant matrices, look-ahead heads."""
