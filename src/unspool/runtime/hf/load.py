"""Models of the transformers library, by folder, GGUF file, Hub id or loaded object, read for this runtime."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError

from ...core.errors import BadModel
from ...core.extra import brought_by
from ...models.hub import snapshot
from ...models.json_vocabulary import read_vocabulary
from ...models.vocabulary import Vocabulary
from ..cache.cached_model import CachedModel
from ..cache.uncached_model import UncachedModel
from .hf_network import HFModel, HFNetwork
from .probe import find_way

_ROOM = 8192
_LONGEST = 300  # characters of an error of another library
_ENCODERS = ("bert", "roberta", "electra", "camembert", "xlm-roberta", "megatron-bert", "rembert", "roformer", "ernie")


def load_hf(
    source: str | Path | Any,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    room: int | None = None,
    prefix_cache: int = 0,
    longest: int = 1,
) -> CachedModel | UncachedModel:
    """Load any causal model of the transformers library.

    `source` is a folder, a GGUF file, a Hub id or a loaded `PreTrainedModel`, which then keeps its dtype and device
    unless they are given. The cached way is used if a probe finds the numbers of plain forwards; else texts are read
    whole. `note` of the model (or of its network) says what was found. Code from model folders is never run.
    """
    model = source if isinstance(source, torch.nn.Module) else _loaded(str(source), dtype)
    if device is not None or dtype is not None:
        model = model.to(device=device, dtype=dtype)
    reader = HFModel(model)
    way = find_way(reader)
    if not way.cached:
        return UncachedModel(reader, way.note)
    network = HFNetwork(reader, room or longest * min(reader.context or _ROOM, _ROOM), way.mask, way.note)
    return CachedModel(network, prefix_cache)


def hf_vocabulary(source: str | Path | Any, size: int) -> Vocabulary:
    """The vocabulary of a folder, GGUF file, Hub id or loaded tokenizer, for a model with `size` logits."""
    transformers = _transformers()
    found = _found(str(source)) if isinstance(source, str | Path) else None
    tokenizer: Any = source if found is None else found.open(transformers.AutoTokenizer.from_pretrained)
    if not getattr(tokenizer, "is_fast", False):
        raise BadModel(
            f"{type(tokenizer).__name__} of {source} is a slow tokenizer, whose tokens have no exact bytes. "
            "Convert it to a fast one (a tokenizer.json) with transformers, and load that folder."
        )
    with TemporaryDirectory() as folder:
        # Through files, since they are what all fast tokenizers agree on and what our own reader reads.
        tokenizer.save_pretrained(folder)
        if found is not None:
            _save(found, transformers.AutoConfig, folder)
            _save(found, transformers.GenerationConfig, folder)
        return read_vocabulary(Path(folder), size)


def _save(found: _LoadArguments, part: Any, folder: str) -> None:
    """Lay a settings file beside the tokenizer, where the model has one: it may name more ends of text."""
    try:
        found.open(part.from_pretrained).save_pretrained(folder)
    except (BadModel, ValueError, OSError):
        return


class _LoadArguments(NamedTuple):
    """What `from_pretrained` is called with."""

    name: str
    gguf: str | None = None

    def open(self, load: Callable[..., Any], **more: object) -> Any:
        """Load a part of the model, with errors a user can act on."""
        if self.gguf is not None:
            more["gguf_file"] = self.gguf
        try:
            return load(self.name, local_files_only=True, trust_remote_code=False, **more)
        except ImportError as error:
            raise BadModel(f"{self.shown}: transformers needs another package to read it. {error}") from error
        except (SafetensorError, UnpicklingError, EOFError) as error:
            raise BadModel(
                f"{self.shown}: its weights are not complete ({_short(error)}). Download them again."
            ) from error
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise BadModel(
                f"{self.shown}: transformers cannot load it as a causal language model. {_short(error)} "
                "Check that the files are complete and that this release of transformers knows the architecture."
            ) from error

    @property
    def shown(self) -> str:
        return self.name if self.gguf is None else str(Path(self.name) / self.gguf)


def _loaded(name: str, dtype: torch.dtype | None) -> Any:
    transformers = _transformers()
    found = _found(name)
    config = found.open(transformers.AutoConfig.from_pretrained)
    _refuse_encoders(found.shown, config)
    # Up to transformers 5.17 its usual attention leaves out the cap of the scores (Gemma 2) without a word.
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    load = transformers.AutoModelForCausalLM.from_pretrained
    attention = {"attn_implementation": "eager"} if capped else {}
    model, info = found.open(load, dtype=dtype or "auto", output_loading_info=True, **attention)
    lacking = sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"])))
    if lacking:  # which transformers fills with random numbers
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise BadModel(
            f"{found.shown}: the tensor {lacking[0]}{more} of a {type(model).__name__} is not in the files, or not of "
            "the shape that config.json tells. Download the model again, or name one that writes text."
        )
    return model


def _refuse_encoders(shown: str, config: Any) -> None:
    """Stop at models that transformers would load, or fail to, though they do not write text from left to right."""
    if getattr(config, "is_encoder_decoder", False):
        raise BadModel(
            f"{shown}: a {config.model_type} model reads one text and writes another (encoder and decoder), which is "
            "not supported. Use one that continues a text, such as a Llama or Qwen."
        )
    named = [str(name) for name in getattr(config, "architectures", None) or ()]
    other = any(hasattr(config, part) for part in ("vision_config", "audio_config"))
    if other and type(config) not in _transformers().MODEL_FOR_CAUSAL_LM_MAPPING:
        raise BadModel(
            f"{shown}: a {config.model_type} model reads pictures or sound beside text; that is not supported, and the "
            "native runtime does not know its text part. Use a model of text alone."
        )
    masked = any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in named)
    if masked or (getattr(config, "is_decoder", True) is False and config.model_type in _ENCODERS):
        raise BadModel(
            f"{shown}: {', '.join(named) or config.model_type} reads in both directions and writes no text; it would "
            "only make noise. Use a model that continues a text."
        )


def _short(error: Exception) -> str:
    """What an error says first; transformers goes on with lists of all it knows."""
    said = " ".join(str(error).partition("Model type should be one of")[0].split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def _found(name: str) -> _LoadArguments:
    """Where the files are: on this machine, or on the Hub if it answers."""
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise BadModel(f"{name}: is a file, but not a .gguf one. Give the folder with config.json and the weights.")
        missing = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
        if missing:
            raise BadModel(
                f"{name}: transformers reads GGUF files only with {' and '.join(missing)}, not installed here. "
                f"Run: pip install {' '.join(missing)}. Or use the native runtime, which reads most of them by itself."
            )
        return _LoadArguments(str(path.parent), path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadModel(f"{name}: the folder has no config.json. Give the folder that save_pretrained wrote.")
        return _LoadArguments(str(path))
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or path.suffix == ".gguf":
        raise BadModel(f"{name}: there is no such file or folder. Check the path.")
    return _LoadArguments(str(snapshot(name)))


def _transformers() -> Any:
    return brought_by("hf", "transformers", "The transformers runtime")
