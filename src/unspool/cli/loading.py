"""The options that choose and load a model, and how to decode it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..errors import BadRequest
from .group import option
from .terminal import status

if TYPE_CHECKING:
    from ..lm import LM, Prompt


@dataclass(frozen=True)
class Loading:
    """Which model, where and how."""

    model: str = option(
        "-m",
        "--model",
        metavar="MODEL",
        default="smollm2",
        show_default=True,
        help="A catalogue name, .gguf file, folder, or Hub id.",
    )
    draft: str | None = option("--draft", metavar="MODEL", help="A second model, for methods that ask one.")
    dtype: str = option("--dtype", default="auto", help="fp32, bf16 or fp16; auto: fp32 on a CPU, bf16 on a GPU.")
    device: str = option("--device", default="auto", help="cpu, cuda or cuda:N; auto takes a GPU if there is one.")
    runtime: str = option("--runtime", default="auto", help="native or transformers; auto by the kind of model.")
    room: int | None = option("--room", type=int, metavar="N", help="Tokens the cache holds for all texts together.")
    raw: bool = option("--raw", is_flag=True, help="No chat template: continue the text as it stands.")

    def check(self, methods: tuple[str, ...]) -> None:
        """Refuse methods that are not known or lack a model, and devices that do not exist, before a model is read."""
        from ..loader import device_of, dtype_of
        from ..methods import method, needs

        dtype_of(self.dtype, device_of(self.device))
        if self.room is not None and self.room < 1:
            raise BadRequest(f"--room is {self.room}; expected a whole number of tokens from 1 on.")
        for spec in methods:
            method(spec)
            if "draft" in needs(spec) and self.draft is None:
                raise BadRequest(f"the method {spec!r} asks a draft model; name one with --draft MODEL.")

    def load(self) -> LM:
        """The model, with its draft model if one was named."""
        from ..loader import load

        with status(f"loading {self.model} …"):
            with_same = partial(load, dtype=self.dtype, device=self.device, runtime=self.runtime, room=self.room)
            return with_same(self.model, draft=None if self.draft is None else with_same(self.draft))

    def prompt(self, lm: LM, text: str, system: str | None = None) -> Prompt:
        """The text as the model wants it: a user's message if it has a chat template, else the text itself."""
        if not self.raw and lm.vocabulary.chat_template is not None:
            before = [] if system is None else [{"role": "system", "content": system}]
            return [*before, {"role": "user", "content": text}]
        if system is not None:
            why = "--raw leaves the chat template out" if self.raw else f"{self.model} has no chat template"
            raise BadRequest(f"--system needs a chat template, but {why}; put the text into the prompt instead.")
        return text
