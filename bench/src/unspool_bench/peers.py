"""Peers: what others make of the same weights and prompts, in the same run."""

from __future__ import annotations

import importlib.util

import unspool_bench as benches
from unspool.api.lm import LM
from unspool.api.loader import device_of, dtype_of
from unspool.models.address import path

from .contender import Contender


def peers(name: str, draft: str | None, dtype: str, device: str, lm: LM, batches: bool, quick: bool) -> list[Contender]:
    """Whatever of transformers and llama.cpp is installed.

    Where there are `batches`, only what takes them; if it is to be `quick`, without the early exit, whose forwards are
    many.
    """
    found: list[Contender] = []
    where, file = device_of(device), path(name)
    if importlib.util.find_spec("transformers") is not None:
        ways = (
            () if batches else ("prompt lookup", "assisted") if quick else ("prompt lookup", "early exit", "assisted")
        )
        found += benches.transformers_peer.transformers_peers(name, draft, dtype_of(dtype, where), where, lm, ways)
    if file.suffix == ".gguf" and importlib.util.find_spec("llama_cpp") is not None:
        found.append(benches.llamacpp_peer.LlamaCpp(file, lm, lm.model.context or 4096))
    return found
