"""transformers on the same weights and prompts: as it is, by prompt lookup, by an early exit, with a draft model."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
import transformers

from unspool.api.lm import LM
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


def transformers_peers(
    name: str, draft: str | None, dtype: torch.dtype, device: str, lm: LM, wanted: Sequence[str]
) -> list[Contender]:
    """Its plain `generate`, and those of the `wanted` ways that it can go with these models."""
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
