"""Open a GGUF file with llama.cpp: what can be checked without it is checked first, since a bad file may end it."""

from __future__ import annotations

from pathlib import Path

import torch

from ...core.errors import BadModel, BadRequest
from ...models.config_fields import ConfigFields
from ...models.gguf import GGUF
from ...models.quant import FORMATS, UNREADABLE
from ...models.vocabulary import Vocabulary
from ..cache.cached_model import CachedModel
from ..cache.uncached_model import UncachedModel
from ..cpu.compiled import load_if_compiled
from ..network.network import Batch, NetworkOutputs
from .executor import SequenceExecutor
from .library import library
from .llama_context import KINDS, SEQUENCES, LlamaContext
from .recurrent_reader import STATES, RecurrentReader
from .sequences import CellPool
from .tokenizer import vocabulary_of

_ROOM = 8192
_WIDEST = 1 << 24  # tokens of a window
_LIMITS = {"block_count": 512, "embedding_length": 1 << 17, "context_length": 1 << 30}  # of llama.cpp, or sane


class LlamaCppNetwork:
    """What a cached model knows of a network that llama.cpp computes: `SequenceExecutor` runs all its forwards."""

    def __init__(self, context: LlamaContext, room: int) -> None:
        self.llama, self.slots = context, CellPool(room)
        self.vocab, self.context, self.layers = context.vocab, context.longest, context.layers

    def forward(self, batch: Batch) -> NetworkOutputs:
        raise BadRequest("llama.cpp takes forward requests with sequences; a batch with slots means nothing to it.")


def load_llamacpp(
    path: Path,
    cache: torch.dtype = torch.float16,
    device: str = "auto",
    room: int | None = None,
    prefix_cache: int = 0,
    longest: int = 1,
    sequences: int = SEQUENCES,
) -> tuple[CachedModel | UncachedModel, Vocabulary]:
    """The model of a .gguf file with its vocabulary; `cache` is the precision of keys and values."""
    file = checked(path)
    offloads = bool(library().llama_supports_gpu_offload())
    gpu = offloads if device == "auto" else device != "cpu"
    if gpu and not offloads:
        raise BadRequest(
            f"device={device!r}: the llama.cpp that is installed computes on the CPU alone; use device='cpu'."
        )
    if cache not in KINDS:
        raise BadRequest(f"llama.cpp keeps no cache in {cache}; choose fp32, fp16 or bf16.")
    context = LlamaContext(path, room or longest * _usual_room(file), cache, gpu, sequences, STATES)
    load_if_compiled()  # they find the best of a row of logits in a third of PyTorch's time
    words = vocabulary_of(file.metadata, context, str(path))
    if context.recurrent:
        note = "it carries a state from token to token, which cannot be cut where a draft was rejected"
        return UncachedModel(RecurrentReader(context), note), words
    network = LlamaCppNetwork(context, room or context.room)
    return CachedModel(network, prefix_cache, SequenceExecutor(context, network.slots)), words


def checked(path: Path) -> GGUF:
    """The file's header, without what is known to end llama.cpp's process.

    Every length, offset and count is checked against the file, and numbers that layers are made from must be whole,
    in bounds and fit each other. What a file says beyond that is for llama.cpp to read: where a number contradicts a
    tensor, it may still end the process, which nobody can catch.
    """
    if not path.is_file() or path.suffix != ".gguf":
        raise BadModel(f"{path}: llama.cpp's runtime opens .gguf files. Give one, or use another runtime.")
    file = GGUF(path, {**FORMATS, **UNREADABLE})
    fields = _fields(file)
    for name, most in _LIMITS.items():
        if fields.whole(name) > most:
            raise fields.fail(name, f"at most {most:,}")
    for name in ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base"):
        fields.real_or_none(name)
    if _one(fields, "attention.sliding_window", 1) > _WIDEST:
        raise fields.fail("attention.sliding_window", f"at most {_WIDEST:,}")
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise BadModel(f"{path}: is one part of a split model. Merge the parts into one .gguf file first.")
    _check_heads(file, fields)
    return file


def _check_heads(file: GGUF, fields: ConfigFields) -> None:
    """Refuse heads that cannot be cut out of the queries, and rotations that are no pairs or wider than a head."""
    layers, given = fields.whole("block_count"), fields.get("attention.head_count")
    heads = given if isinstance(given, list) else [given] * layers
    for layer, count in enumerate(heads[:layers]):
        entry = file.directory.get(f"blk.{layer}.attn_q.weight")
        if entry is None:
            continue
        if not isinstance(count, int) or count < 1 or entry.shape[0] % count:
            raise fields.fail("attention.head_count", f"a number that {entry.shape[0]} rows of queries divide into")
        wide = entry.shape[0] // count
        turned = _one(fields, "rope.dimension_count", 2)
        if turned % 2 or turned > wide:
            raise fields.fail("rope.dimension_count", f"an even number up to {wide}")
        if all(wide % _one(fields, f"attention.{name}", wide) for name in ("key_length", "key_length_swa")):
            raise fields.fail("attention.key_length", f"a number that divides {wide}")


def _one(fields: ConfigFields, name: str, default: int) -> int:
    """A positive number; the default where the file has none, or one for every layer."""
    return default if isinstance(fields.get(name), list) else fields.whole(name, default)


def _fields(file: GGUF) -> ConfigFields:
    """The numbers of the file's architecture."""
    name = ConfigFields(file.metadata, str(file.path)).text("general.architecture")
    return ConfigFields(file.metadata, str(file.path), f"{name}.")


def _usual_room(file: GGUF) -> int:
    """How many tokens the cache holds unless told: a text of the model's context, at most 8,192."""
    return min(_ROOM, _fields(file).whole("context_length"))
