"""Settings from a file: values looked up by name, with their types checked and errors that say which one is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..core.errors import BadModel, NotNative

_LARGEST, _LARGEST_REAL, _SMALLEST_REAL = 1 << 40, 1e100, 1e-100
_HARMLESS = re.compile(
    r"_.*|architectures|auto_map|.*dtype|transformers_version|.*token_ids?|.*token_index|initializer_range|.*dropout"
    r"|.*pdrop|.*aux_loss.*|output_(attentions|hidden_states|router_logits|scores)|router_jitter_noise|router_z_loss.*"
    r"|z_loss.*|use_cache|pretraining_tp|tokenizer_.*"
    r"|id2label|label2id|problem_type|return_dict.*|is_encoder_decoder|is_decoder|unsloth.*|finetuning_task|task_specific.*"
    r"|attn_implementation|cache_implementation|gradient_checkpointing|torchscript|max_length|min_length|do_sample"
    r"|temperature|top_[kp]|num_beams|repetition_penalty|length_penalty|early_stopping|num_return_sequences"
    r"|chunk_size_feed_forward|language|license|name_or_path|model_name|base_model.*|bad_words_ids|keys_to_ignore.*"
)
"""Settings of training, of tokenizers, of generation and of the file itself."""


def _positive(value: object) -> bool:
    """Whether it is a number above 0 whose square, whose inverse and whose product with a size a float can hold."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and _SMALLEST_REAL <= value <= _LARGEST_REAL  # type: ignore[operator]


@dataclass(frozen=True)
class ConfigFields:
    """The settings of a model file; `source` names the file in errors, and `prefix` is put before every name."""

    values: Mapping[str, object]
    source: str
    prefix: str = ""
    seen: set[str] = field(default_factory=set, compare=False)
    groups: dict[str, ConfigFields] = field(default_factory=dict, compare=False)

    def get(self, name: str) -> object:
        """Return a value as it stands, or None if it is absent or null."""
        self.seen.add(name)
        return self.values.get(self.prefix + name)

    def fail(self, name: str, expected: str) -> BadModel:
        """Make the error that says what stands in the file and what should."""
        given = repr(self.get(name))
        given = given if len(given) <= 80 else given[:77] + "..."
        return BadModel(
            f"{self.source}: {self.prefix + name!r} is {given}; expected {expected}. The file is damaged or odd."
        )

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number."""
        value = self.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _LARGEST:
            raise self.fail(name, "a positive whole number")
        return value

    def whole_or_none(self, name: str) -> int | None:
        """Return a positive whole number, or None if it is absent."""
        return None if self.get(name) is None else self.whole(name)

    def count(self, name: str, default: int) -> int:
        """Return a whole number from 0 on."""
        value = self.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise self.fail(name, "a whole number from 0 on")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """Return a positive finite number."""
        value = self.get(name)
        value = default if value is None else value
        if not _positive(value):
            raise self.fail(name, "a positive number")
        assert isinstance(value, (int, float))
        return float(value)

    def real_or_none(self, name: str) -> float | None:
        """Return a positive finite number, or None if it is absent."""
        return None if self.get(name) is None else self.real(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.fail(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self.fail(name, "a string")
        return value

    def reals(self, name: str, count: int) -> tuple[float, ...]:
        """Return a list of `count` positive numbers."""
        value = self.get(name)
        if not isinstance(value, list) or len(value) != count:
            raise self.fail(name, f"a list of {count} numbers")
        if not all(map(_positive, value)):
            raise self.fail(name, f"a list of {count} positive numbers")
        return tuple(float(item) for item in value)

    def numbers(self, name: str) -> frozenset[int] | None:
        """Return the whole numbers of a list, or None if it is absent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.fail(name, "a list of whole numbers")
        return frozenset(value)

    def within(self, name: str) -> ConfigFields | None:
        """Return the settings nested under a name, or None if it is absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fail(name, "a group of settings")
        return self.groups.setdefault(name, ConfigFields(value, f"{self.source}: {name}"))

    def filled(self, given: Mapping[str, object]) -> ConfigFields:
        """The same with what is taken for granted where nothing stands; what is read of it counts for this one too."""
        turns = {"rope_scaling", "rope_theta"} & self.values.keys()
        more = {name: value for name, value in given.items() if not (turns and name == "rope_parameters")}
        return replace(self, values={**more, **self.values})

    def pass_over(self, *names: str) -> None:
        """Take these for read: they do not count here, whatever they are."""
        self.seen.update(names)

    def unread(self) -> list[str]:
        """The names of settings, nested ones too, that nobody has asked for and that may change the function."""
        found = [
            name
            for name, value in self.values.items()
            if name not in self.seen and value not in (None, False) and not _HARMLESS.fullmatch(name)
        ]
        return found + [f"{name}.{inner}" for name, group in self.groups.items() for inner in group.unread()]


def elsewhere(source: str, problem: str) -> NotNative:
    """Make the error for a model that is sound but not for the native runtime."""
    said, known, rest = f"{source}: {problem}".partition(" (known: ")
    return NotNative(
        said,
        "Use the transformers runtime for this model: --runtime transformers, or runtime='transformers'; or "
        "llama.cpp's if it is a .gguf file.",
        known + rest,
    )
