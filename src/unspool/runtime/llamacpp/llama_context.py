"""A loaded model of llama.cpp with one context: rows of tokens go in, logits come out, sequences are copied and cut."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.errors import BadModel, OutOfRoom
from .last_outputs import LastOutputs
from .library import BatchStruct, library, said

BATCH = 512  # tokens in one call, so also the rows that its matrix products see together
OUTPUTS = 64  # rows of logits in one call: as many are kept in memory, each as wide as the vocabulary
_STEP = 256  # tokens that a cache is rounded up to
SEQUENCES = 64  # that the cache tells apart; they must not outnumber the outputs
_ALL_LAYERS = -1
_NO_POOLING = _DISABLED = 0
KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}  # how keys and values may be kept


class ContextRow(NamedTuple):
    """A token to compute: it sees all tokens before its place that share its sequences.

    `output` is the row of the caller's tensors that its logits go to; −1 if nobody wants them.
    """

    token: int
    place: int
    sequences: tuple[int, ...]
    output: int = -1


class LlamaContext:
    """llama.cpp's model and context; both are freed with this object, or by `close`.

    llama.cpp gives away a cell that has left the window of its only sequence, though a rollback would need it again.
    So in models with windows every sequence is a pair of llama.cpp's, which hold each other's cells.
    """

    def __init__(
        self, path: Path, room: int, cache: torch.dtype, gpu: bool, sequences: int = SEQUENCES, states: int = SEQUENCES
    ) -> None:
        self._library = lib = library()
        self._last: weakref.ref[LastOutputs] | None = None
        self.path = path
        settings = lib.llama_model_default_params()
        settings.n_gpu_layers = _ALL_LAYERS if gpu else 0
        said()
        self.model = lib.llama_model_load_from_file(str(path).encode(), settings)
        if not self.model:
            raise BadModel(f"{path}: llama.cpp cannot load it ({said()}). Check the file, or use another runtime.")
        self._free = weakref.finalize(self, lib.llama_model_free, self.model)
        self.words = lib.llama_model_get_vocab(self.model)
        self.vocab: int = lib.llama_vocab_n_tokens(self.words)
        self.width: int = lib.llama_model_n_embd_out(self.model)
        self.layers: int = lib.llama_model_n_layer(self.model)
        self.longest: int = lib.llama_model_n_ctx_train(self.model)
        self.recurrent = bool(lib.llama_model_is_recurrent(self.model) or lib.llama_model_is_hybrid(self.model))
        sequences = states if self.recurrent else sequences  # a state is large, a sequence of cells costs nothing
        self._each = 2 if lib.llama_model_n_swa(self.model) > 0 else 1  # sequences of llama.cpp for one of ours
        self.sequences = sequences // self._each
        self._refuse_unfit()
        self._open(room, cache, gpu, sequences)

    def _refuse_unfit(self) -> None:
        lib, model = self._library, self.model
        why = None
        if lib.llama_model_is_diffusion(model):
            why = "it fills holes and does not read from left to right; use the native runtime, if it knows the model"
        elif lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
            why = "it has an encoder or no decoder, and only models that read from left to right can be decoded here"
        elif self.vocab < 1 or self.longest < 1:
            why = f"it has {self.vocab} tokens and a context of {self.longest}; both must be at least 1"
        if why is not None:
            self.close()
            raise BadModel(f"{self.path}: {why}.")

    def _open(self, room: int, cache: torch.dtype, gpu: bool, sequences: int) -> None:
        lib, threads = self._library, torch.get_num_threads()
        settings = lib.llama_context_default_params()
        room = -(-room // _STEP) * _STEP
        self.most = most = min(BATCH, room)  # tokens in one call
        settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = room, most, most, sequences
        settings.n_outputs_max, settings.n_threads, settings.n_threads_batch = OUTPUTS, threads, threads
        settings.type_k = settings.type_v = KINDS[cache]
        settings.pooling_type = _NO_POOLING
        if cache == torch.float32:  # flash attention would sum in half precision
            settings.flash_attn_type = _DISABLED
        # Branches must see the keys of their common beginning, and windows must not throw away what may be kept.
        settings.kv_unified, settings.swa_full, settings.offload_kqv = True, True, gpu
        self.context = lib.llama_init_from_model(self.model, settings)
        if not self.context:
            reason = said()
            self.close()
            raise BadModel(f"{self.path}: llama.cpp cannot open a cache of {room} tokens for it ({reason}).")
        self._free.detach()
        self._free = weakref.finalize(self, _freed, lib, self.context, self.model)
        self.room: int = lib.llama_n_ctx(self.context)
        told = lib.llama_n_batch(self.context), lib.llama_n_seq_max(self.context), lib.llama_n_threads(self.context)
        if told != (most, sequences, threads) or self.room != room:
            self.close()
            raise BadModel(f"{self.path}: llama.cpp took other settings than it was given: {told}, {self.room} tokens.")
        self._memory = lib.llama_get_memory(self.context)
        self._threads, self._embeds = threads, False
        self._tokens, self._places = (ctypes.c_int32 * BATCH)(), (ctypes.c_int32 * BATCH)()
        self._counts, self._sets = (ctypes.c_int32 * BATCH)(), (ctypes.c_void_p * BATCH)()
        self._wanted = (ctypes.c_int8 * BATCH)()
        at = ctypes.addressof
        self._own = [self._ids((number,)) for number in range(self.sequences)]
        self._own_at = [at(ids) for ids in self._own]
        self._batch = BatchStruct(
            0, at(self._tokens), None, at(self._places), at(self._counts), at(self._sets), at(self._wanted)
        )

    def close(self) -> None:
        """Free the model and its cache now; nothing can be computed any more."""
        self._save_last()
        self._free()

    # ---- computing

    def compute(self, rows: Sequence[ContextRow], logits: Tensor | None = None, hidden: Tensor | None = None) -> None:
        """Compute all rows, parents before what hangs from them; outputs are copied to `logits` and `hidden`.

        With `hidden` [.., width], what leaves the last norm is copied too: llama.cpp then makes the output of every
        row of a call, so rows that nobody looks at go in calls of their own first.
        """
        if hidden is not None:
            silent = [row for row in rows if row.output < 0]
            self._compute(silent, None, None)
            rows = [row for row in rows if row.output >= 0]
        self._compute(rows, logits, hidden)

    def compute_line(self, sequence: int, tokens: Sequence[int], place: int, silent: int) -> LastOutputs:
        """Compute tokens that follow each other at the end of a sequence, in one call: what decoding asks for most.

        All but the first `silent` have logits.
        """
        count, lib = len(tokens), self._library
        self._prepare(embeds=False)
        ids = self._own_at[sequence]
        for number, token in enumerate(tokens):  # mostly one: slices would be slower
            self._tokens[number], self._places[number] = token, place + number
            self._counts[number], self._sets[number], self._wanted[number] = self._each, ids, number >= silent
        self._call(count)
        rows = [self._output(lib.llama_get_logits_ith(self.context, number)) for number in range(silent, count)]
        outputs = LastOutputs(rows, self.vocab, self)
        self._last = weakref.ref(outputs)
        return outputs

    def _compute(self, rows: Sequence[ContextRow], logits: Tensor | None, hidden: Tensor | None) -> None:
        if not rows:
            return
        lib = self._library
        self._prepare(hidden is not None)
        for call in _calls(rows, self.most):
            self._decode(call)
            for number, row in enumerate(call):
                if row.output < 0 or logits is None:
                    continue
                self._copy(lib.llama_get_logits_ith(self.context, number), logits, row.output)
                if hidden is not None:
                    self._copy(lib.llama_get_embeddings_ith(self.context, number), hidden, row.output)

    def _save_last(self) -> None:
        """Have outputs copied that somebody holds: their memory is about to be another's."""
        if self._last is not None and (outputs := self._last()) is not None:
            outputs.logits  # noqa: B018  (which copies them)

    def _prepare(self, embeds: bool) -> None:
        """Have llama.cpp take as many threads as torch now, and make what leaves the last norm or not."""
        if (threads := torch.get_num_threads()) != self._threads:
            self._library.llama_set_n_threads(self.context, threads, threads)
            self._threads = threads
        if embeds != self._embeds:
            self._library.llama_set_embeddings(self.context, embeds)
            self._embeds = embeds

    def _decode(self, rows: Sequence[ContextRow]) -> None:
        """Compute rows in one call."""
        count = len(rows)
        ids = {row.sequences: self._ids(row.sequences) for row in rows}
        where = {sequences: ctypes.addressof(array) for sequences, array in ids.items()}
        self._tokens[:count] = [row.token for row in rows]
        self._places[:count] = [row.place for row in rows]
        self._counts[:count] = [len(ids[row.sequences]) for row in rows]
        self._sets[:count] = [where[row.sequences] for row in rows]
        self._wanted[:count] = [row.output >= 0 for row in rows]
        self._call(count)

    def _call(self, count: int) -> None:
        """One call of llama_decode; on failure nothing of it stays in the sequences, as far as they are cut again."""
        self._save_last()
        self._batch.n_tokens = count
        code = self._library.llama_decode(self.context, self._batch)
        if code == 1:
            raise OutOfRoom(f"{count} tokens more do not fit llama.cpp's cache of {self.room}. End or shorten texts.")
        if code:
            raise BadModel(f"{self.path}: llama.cpp could not compute {count} tokens, error {code} ({said()}).")

    def _copy(self, source: int | None, target: Tensor, row: int) -> None:
        ctypes.memmove(target.data_ptr() + row * target.stride(0) * 4, self._output(source), target.shape[1] * 4)

    def _output(self, source: int | None) -> int:
        if not source:
            raise BadModel(f"{self.path}: llama.cpp gave no output where one was asked for ({said()}).")
        return source

    # ---- sequences

    def copy(self, source: int, target: int, size: int) -> None:
        """Let an empty sequence have the first `size` tokens of another, −1 for all; cells are shared, not moved."""
        for number in self._ids((target,)):
            self._library.llama_memory_seq_cp(self._memory, source * self._each, number, 0, size)

    def cut(self, sequence: int, size: int) -> bool:
        """Leave a sequence its first `size` tokens; False if it keeps a state that knows no way back."""
        cut = [self._library.llama_memory_seq_rm(self._memory, number, size, -1) for number in self._ids((sequence,))]
        return all(cut)

    def _ids(self, sequences: tuple[int, ...]) -> ctypes.Array[ctypes.c_int32]:
        """The numbers that llama.cpp knows these sequences by."""
        each = self._each
        return (ctypes.c_int32 * (each * len(sequences)))(*(each * x + i for x in sequences for i in range(each)))


def _freed(lib: ctypes.CDLL, context: int, model: int) -> None:
    lib.llama_free(context)
    lib.llama_model_free(model)


def _calls(rows: Sequence[ContextRow], most: int) -> list[Sequence[ContextRow]]:
    """The rows in as many calls as it takes, in their order."""
    calls: list[Sequence[ContextRow]] = []
    start = outputs = 0
    for number, row in enumerate(rows):
        wanted = row.output >= 0
        if number - start == most or (wanted and outputs == OUTPUTS):
            calls.append(rows[start:number])
            start, outputs = number, 0
        outputs += wanted
    calls.append(rows[start:])
    return calls
