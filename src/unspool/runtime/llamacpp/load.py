"""Open a GGUF file with llama.cpp: what can be checked without it is checked first, since a bad file may end it."""

from __future__ import annotations

from pathlib import Path

import torch

from ...core.errors import BadModel, BadRequest
from ...models.config_fields import ConfigFields
from ...models.gguf import GGUF
from ...models.gguf_vocabulary import read_vocabulary
from ...models.quant import FORMATS, UNREADABLE
from ...models.vocabulary import Vocabulary
from ..cache.cached_model import CachedModel
from ..cache.uncached_model import UncachedModel
from ..network.network import Batch, NetworkOutputs
from .context import KINDS, SEQUENCES, Context
from .executor import SequenceExecutor
from .library import library
from .recurrent import STATES, RecurrentReader
from .sequences import CellPool

_ROOM = 8192


class LlamaCppNetwork:
    """What a cached model knows of a network that llama.cpp computes: `SequenceExecutor` runs all its forwards."""

    def __init__(self, context: Context, room: int) -> None:
        self.llama, self.slots = context, CellPool(room)
        self.vocab, self.context, self.layers = context.vocab, context.longest, context.layers

    def forward(self, batch: Batch) -> NetworkOutputs:
        raise BadRequest("llama.cpp takes forward requests with sequences; a batch with slots means nothing to it.")


def load_llamacpp(
    path: Path,
    cache: torch.dtype = torch.float16,
    device: str = "cpu",
    room: int | None = None,
    prefix_cache: int = 0,
    longest: int = 1,
    sequences: int = SEQUENCES,
) -> tuple[CachedModel | UncachedModel, Vocabulary]:
    """The model of a .gguf file with its vocabulary; `cache` is the precision of keys and values."""
    file = checked(path)
    gpu = device != "cpu"
    if gpu and not library().llama_supports_gpu_offload():
        raise BadRequest(
            f"device={device!r}: the llama.cpp that is installed computes on the CPU alone; use device='cpu'."
        )
    if cache not in KINDS:
        raise BadRequest(f"llama.cpp keeps no cache in {cache}; choose fp32, fp16 or bf16.")
    context = Context(path, room or longest * _usual_room(file), cache, gpu, sequences, STATES)
    words = read_vocabulary(file.metadata, context.vocab, str(path))
    if context.recurrent:
        note = "it carries a state from token to token, which cannot be cut where a draft was rejected"
        return UncachedModel(RecurrentReader(context), note), words
    network = LlamaCppNetwork(context, room or context.room)
    return CachedModel(network, prefix_cache, SequenceExecutor(context, network.slots)), words


def checked(path: Path) -> GGUF:
    """The file's header, if nothing in it is known to end llama.cpp's process.

    Every length, offset and count is checked against the file, and the numbers that the layers are made from are
    whole, positive and small. What a file says beyond that is for llama.cpp to read.
    """
    if not path.is_file() or path.suffix != ".gguf":
        raise BadModel(f"{path}: llama.cpp's runtime opens .gguf files. Give one, or use another runtime.")
    return GGUF(path, {**FORMATS, **UNREADABLE})


def _usual_room(file: GGUF) -> int:
    """How many tokens the cache holds unless told: a text of the model's context, at most 8,192."""
    architecture = ConfigFields(file.metadata, str(file.path)).text("general.architecture")
    context = ConfigFields(file.metadata, str(file.path), f"{architecture}.").whole("context_length")
    return min(_ROOM, context)
