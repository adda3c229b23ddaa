"""A cached model whose forwards are CUDA graphs, put together from its parts."""

from __future__ import annotations

from ..cache.cached_model import CachedModel
from .cuda_graph_executor import CudaGraphExecutor
from .device_decoding import DeviceDecoding
from .device_drafting import DeviceDrafting
from .device_speculation import LEAST, DeviceSpeculation
from .footprint import LANES
from .fused import Fused


def graph_model(network: Fused, prefix_cache: int = 0, sequences: int = LANES) -> CachedModel:
    """The network with sessions on a device, which verifies, writes on, drafts for itself and draws chains there."""
    return on_device(CachedModel(network, prefix_cache, CudaGraphExecutor(network, sequences)))


def on_device(model: CachedModel, speculates: bool = True) -> CachedModel:
    """Give a model on CUDA graphs what its device can decide by itself; one that `speculates` also drafts there."""
    graphs = model.executor
    assert isinstance(graphs, CudaGraphExecutor)
    drafts = speculates and model.vocab >= LEAST
    model.device = DeviceDecoding(model, graphs, DeviceSpeculation(model, graphs) if drafts else None)
    model.drafting = DeviceDrafting(model, graphs) if speculates else None
    return model
