"""Peers: what others make of the same weights and prompts, in the same run."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from unspool.api.lm import LM
from unspool.api.loader import device_of, dtype_of
from unspool.api.settings import Settings
from unspool.core.errors import BadRequest
from unspool.models.address import path
from unspool.models.align import Kinship
from unspool.models.weights import Checkpoint, open_checkpoint

from .contender import Contender, Sample

LOOKUP = 10  # tokens, as transformers' documentation suggests
EXIT = 0.5  # of the layers, for an early exit: models are not trained for one, so any is a guess


def mirror(checkpoint: Checkpoint, dtype: torch.dtype) -> Any:
    """A Llama of transformers with the checkpoint's own tensors."""
    import transformers

    shape = checkpoint.shape
    if shape.family != "llama" or shape.rope_scaling or checkpoint.rope_factors is not None:
        raise BadRequest(f"{checkpoint.title}: only plain Llama models are handed over, not {shape.family}")
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.dim,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        rms_norm_eps=shape.norm_eps,
        tie_word_embeddings=shape.tied,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        dtype=dtype,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    tensors = {name: checkpoint.tensor(name, dtype) for name in checkpoint.names()}
    model.load_state_dict(tensors, strict=shape.tied is False)
    model.generation_config.eos_token_id = None
    return model.eval()


class Theirs:
    """transformers' `generate`, told as a user would; `how` is what it takes beside."""

    exact = True

    def __init__(self, name: str, model: Any, lm: LM, how: dict[str, Any]) -> None:
        self.name, self.model, self.lm, self.how = name, model, lm, how

    def write(self, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Sample:
        """Their texts; several prompts are padded on the left, as it must be."""
        pad = self.model.generation_config.pad_token_id
        longest = max(map(len, prompts))
        rows = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=self.model.device)
        seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=self.model.device)
        counted, first = 0, 0.0

        def count(*_: object) -> None:
            nonlocal counted, first
            counted += 1
            first = first or perf_counter() - began

        drawn = {"temperature": settings.temperature} if settings.temperature else {}
        hook = self.model.register_forward_hook(count)
        torch.manual_seed(settings.seed or 0)
        began = perf_counter()
        try:
            with torch.inference_mode():
                whole = self.model.generate(
                    rows,
                    attention_mask=seen,
                    do_sample=bool(settings.temperature),
                    max_new_tokens=settings.max_tokens,
                    **drawn,
                    **self.how,
                )
            written = whole[:, longest:].tolist()  # waits for the device
        finally:
            hook.remove()
        spent = perf_counter() - began
        tokens = tuple(self._cut(row) for row in written)
        texts = tuple(self.lm.vocabulary.decode(row) for row in tokens)
        return Sample(tokens, texts, spent, counted * len(prompts), first)  # ours count a forward for each text in it

    def _cut(self, row: list[int]) -> tuple[int, ...]:
        """Up to and with the first end of text; what follows in a batch is padding."""
        end = next((i + 1 for i, token in enumerate(row) if token in self.lm.vocabulary.eos), len(row))
        return tuple(row[:end])


class LlamaCpp:
    """llama.cpp by its Python bindings, with the same file: its own 4-bit arithmetic, so texts may differ."""

    name, exact = "llama.cpp", False

    def __init__(self, file: Path, lm: LM, context: int) -> None:
        import llama_cpp

        self.lm = lm
        self.model = llama_cpp.Llama(str(file), n_ctx=context, n_threads=torch.get_num_threads(), verbose=False)

    def write(self, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Sample:
        """One text after another."""
        texts, firsts, began = [], [], perf_counter()
        for prompt in prompts:
            self.model.reset()
            row: list[int] = []
            start = perf_counter()
            for token in self.model.generate(list(prompt), temp=settings.temperature, top_k=0, top_p=1.0, min_p=0.0):
                firsts += [] if row else [perf_counter() - start]
                row.append(token)
                if token in self.lm.vocabulary.eos or len(row) == settings.max_tokens:
                    break
            texts.append(tuple(row))
        spent = perf_counter() - began
        decoded = tuple(self.lm.vocabulary.decode(row) for row in texts)
        return Sample(tuple(texts), decoded, spent, sum(map(len, texts)), sum(firsts) / len(firsts))


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
        found += _transformers(name, draft, dtype_of(dtype, where), where, lm, ways)
    if file.suffix == ".gguf" and importlib.util.find_spec("llama_cpp") is not None:
        found.append(LlamaCpp(file, lm, lm.model.context or 4096))
    return found


def _transformers(
    name: str, draft: str | None, dtype: torch.dtype, device: str, lm: LM, wanted: Sequence[str]
) -> list[Contender]:
    import transformers

    transformers.logging.set_verbosity_error()
    model = _handed(name, dtype, device, lm)
    ways: dict[str, dict[str, Any]] = {
        "prompt lookup": {"prompt_lookup_num_tokens": LOOKUP},
        "early exit": {"assistant_early_exit": int(EXIT * model.config.num_hidden_layers)},
    }
    if "assisted" in wanted and draft is not None and lm.draft is not None:
        how = {"assistant_model": _handed(draft, dtype, device, lm.draft)}
        if lm.alignments["draft"].kinship is not Kinship.SAME:
            files = [path(each) for each in (name, draft)]
            ours, other = (transformers.AutoTokenizer.from_pretrained(f.parent, gguf_file=f.name) for f in files)
            how |= {"tokenizer": ours, "assistant_tokenizer": other}
        ways["assisted"] = how
    chosen = [Theirs(f"transformers, {way}", model, lm, ways[way]) for way in wanted if way in ways]
    return [Theirs("transformers", model, lm, {}), *chosen]


def _handed(name: str, dtype: torch.dtype, device: str, lm: LM) -> Any:
    """The same weights in transformers: our tensors for plain Llamas, else its own reading of the file."""
    import transformers

    file = path(name)
    checkpoint = open_checkpoint(file)
    if checkpoint.shape.family == "llama":
        model = mirror(checkpoint, dtype)
    elif file.suffix == ".gguf":
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=dtype)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(file, dtype=dtype)
    model.generation_config.eos_token_id = sorted(lm.vocabulary.eos)
    model.generation_config.pad_token_id = min(lm.vocabulary.eos)
    return model.to(device).eval()
