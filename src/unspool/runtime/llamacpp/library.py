"""llama.cpp's C functions, found in the shared object of the wheel `xllamacpp` and called through ctypes.

The wheel promises no binary interface, so nothing is believed: the version must be one whose layouts are written down
here, and the default settings that the library itself gives must be the ones that belong to them, field by field.
"""

from __future__ import annotations

import ctypes
import platform
from collections import deque
from collections.abc import Mapping
from ctypes import c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

from ...core.errors import MissingExtra, UnspoolError

PACKAGE, EXTRA = "xllamacpp", "llamacpp"
VERSIONS = ("2026.10.11549",)  # whose layouts are those below
_WARNING, _CONTINUED = 3, 5  # levels of messages; a continued one goes on with the line before it
_MESSAGES = deque[str](maxlen=8)  # the last that were warnings or errors, for the texts of ours


class ModelParams(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = [
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("added", c_int32),  # a field that came in 2026.9, left as it is
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    ]


class ContextParams(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = [
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("added", c_int32 * 2),  # fields that came in 2026.10, left as they are
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    ]


class BatchStruct(ctypes.Structure):
    """`llama_batch`: tokens with their positions, the sequences each belongs to, and whether its output is wanted."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    ]


_MODEL_DEFAULTS: Mapping[str, float] = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "added": 1,
    "use_extra_bufts": 1,
}
_CONTEXT_DEFAULTS: Mapping[str, float] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "type_k": 1,
    "type_v": 1,
    "defrag_thold": -1.0,
    **dict.fromkeys(("rope_scaling_type", "pooling_type", "attention_type", "flash_attn_type"), -1),
    **dict.fromkeys(("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"), -1.0),
    **dict.fromkeys(("offload_kqv", "no_perf", "op_offload", "swa_full"), 1),
}
_LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
_SIGNATURES: Mapping[str, tuple[object, tuple[object, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (_LOG, c_void_p)),
    "llama_supports_gpu_offload": (c_bool, ()),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParams)),
    "llama_model_free": (None, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParams)),
    "llama_free": (None, (c_void_p,)),
    "llama_n_ctx": (c_uint32, (c_void_p,)),
    "llama_n_batch": (c_uint32, (c_void_p,)),
    "llama_n_seq_max": (c_uint32, (c_void_p,)),
    "llama_n_threads": (c_int32, (c_void_p,)),
    "llama_set_n_threads": (None, (c_void_p, c_int32, c_int32)),
    "llama_set_embeddings": (None, (c_void_p, c_bool)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_seq_cp": (None, (c_void_p, c_int32, c_int32, c_int32, c_int32)),
    "llama_memory_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
    "llama_decode": (c_int32, (c_void_p, BatchStruct)),
    "llama_get_logits_ith": (c_void_p, (c_void_p, c_int32)),
    "llama_get_embeddings_ith": (c_void_p, (c_void_p, c_int32)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_model_n_ctx_train": (c_int32, (c_void_p,)),
    "llama_model_n_embd_out": (c_int32, (c_void_p,)),
    "llama_model_n_swa": (c_int32, (c_void_p,)),
    "llama_model_n_layer": (c_int32, (c_void_p,)),
    "llama_model_has_encoder": (c_bool, (c_void_p,)),
    "llama_model_has_decoder": (c_bool, (c_void_p,)),
    "llama_model_is_recurrent": (c_bool, (c_void_p,)),
    "llama_model_is_hybrid": (c_bool, (c_void_p,)),
    "llama_model_is_diffusion": (c_bool, (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    **dict.fromkeys(("llama_vocab_bos", "llama_vocab_eos", "llama_vocab_pad"), (c_int32, (c_void_p,))),
    "llama_vocab_get_add_bos": (c_bool, (c_void_p,)),
    "llama_vocab_is_eog": (c_bool, (c_void_p, c_int32)),
    "llama_tokenize": (c_int32, (c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool)),
    "llama_token_to_piece": (c_int32, (c_void_p, c_int32, c_void_p, c_int32, c_int32, c_bool)),
}


@cache
def library() -> ctypes.CDLL:
    """The library, checked and silenced; loaded once."""
    file = _found()
    try:
        loaded = ctypes.CDLL(str(file))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise UnspoolError(f"{file} cannot be used as llama.cpp: {error}. {_advice()}") from error
    _check_defaults(loaded.llama_model_default_params(), _MODEL_DEFAULTS)
    _check_defaults(loaded.llama_context_default_params(), _CONTEXT_DEFAULTS)
    loaded.llama_log_set(_LISTENER, None)
    loaded.llama_backend_init()
    return loaded


def said() -> str:
    """What llama.cpp has complained of since this was last asked."""
    found = " ".join(" ".join(_MESSAGES).split())
    _MESSAGES.clear()
    return found or "it gave no reason"


def _found() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(PACKAGE, EXTRA, "The llama.cpp runtime")
    version = metadata.version(PACKAGE)
    if version not in VERSIONS:
        raise UnspoolError(f"{PACKAGE} {version} is installed, whose layout of settings is not known here. {_advice()}")
    if platform.machine().lower() in ("x86_64", "amd64") and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        raise UnspoolError(
            f"{PACKAGE} is compiled for AVX2, which this machine lacks: its first product would end the process. "
            "Use the native runtime here."
        )
    (folder, *_) = spec.submodule_search_locations
    files = sorted(file for file in Path(folder).glob(f"{PACKAGE}*") if file.suffix in (".so", ".pyd"))
    if len(files) != 1:
        raise UnspoolError(f"{folder} holds {len(files)} shared objects where one was expected. {_advice()}")
    return files[0]


def _advice() -> str:
    return f"Run: pip install '{PACKAGE}=={VERSIONS[-1]}'. Or use the native runtime, which reads GGUF files by itself."


def _check_defaults(given: ctypes.Structure, expected: Mapping[str, float]) -> None:
    """Refuse a library whose default settings are not those of the layout that was written down for its version."""
    for name, *_ in type(given)._fields_:
        found = getattr(given, name)
        values = list(found) if isinstance(found, ctypes.Array) else [found or 0]
        if any(value != expected.get(name, 0) for value in values):
            raise UnspoolError(
                f"{PACKAGE} {metadata.version(PACKAGE)} gives {name} = {found} by default where its layout says "
                f"{expected.get(name, 0)}, so it is another build than the one that is known here. {_advice()}"
            )


def _listen(level: int, text: bytes, _: object) -> None:
    """Keep warnings and errors for our own texts; nothing is printed."""
    if level >= _WARNING and text:
        words = text.decode("utf-8", "replace")
        if level == _CONTINUED:
            if _MESSAGES and len(_MESSAGES[-1]) < 1000:
                _MESSAGES[-1] += words
        else:
            _MESSAGES.append(words[:1000])


_LISTENER = _LOG(_listen)  # which must live as long as the library
