"""The GPU runtime: CUDA graphs, block tables, staging buffers, fused networks, drafting and verifying on the device."""
