"""The native runtime's kernels for CUDA, in Triton: one idea per file, each beside a reference in PyTorch.

Nothing else of unspool imports this package before a network on a GPU is asked for. Every launch can be captured in a
CUDA graph: grids depend on the shapes of a bucket alone, what a row really holds is read on the device.
"""
