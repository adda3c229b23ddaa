"""The options that choose and load a model, and how to decode it."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ... import api, models, recipes
from ...core.errors import BadRequest, UnspoolError
from ...models.catalog import CATALOG
from .group import option
from .root import starting
from .terminal import note, status

if TYPE_CHECKING:
    from ...api.lm import LM, Prompt


def _profiled(ctx: click.Context, parameter: click.Parameter, file: str | None) -> str | None:
    """Make what a profile says the defaults of this command; what is given on the command line stands above them."""
    if file is not None:
        found = api.profile.Profile.read(file)
        options = {each.name for each in ctx.command.params if isinstance(each, click.Option)}
        given = {name: value for name, value in vars(found).items() if name in options and value is not None}
        ctx.default_map = {**(ctx.default_map or {}), **given}
    return file


def _models_like(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The models of the catalogue whose names begin so, for shells that complete."""
    return [CompletionItem(name, help=each.title) for name, each in CATALOG.items() if name.startswith(begun)]


@dataclass(frozen=True)
class Loading:
    """Which model, where and how."""

    HEADING = "Model"

    profile: str | None = option(
        "--profile", metavar="FILE", is_eager=True, callback=_profiled, help="Model and method by `unspool auto-tune`."
    )
    model: str = option(
        "-m",
        "--model",
        metavar="MODEL",
        default="smollm2",
        shell_complete=_models_like,
        show_default=True,
        help="A catalogue name, .gguf file, folder, or Hub id.",
    )
    draft: str | None = option(
        "--draft",
        metavar="MODEL",
        help="A second model, or the folder of a trained drafter (EAGLE, DFlash, Medusa, …), for methods that ask one; "
        "layers:N is MODEL's own first N, self:int4 (NAME:bf16, …) another precision, mtp the module in it.",
    )
    small: str | None = option("--small", metavar="MODEL", help="A third one, which drafts for the second.")
    heads: str | None = option(
        "--heads", metavar="FILE", help="Heads that look ahead, by `unspool train heads`; smollm2 has its own."
    )
    adapter: str | None = option(
        "--adapter", metavar="FOLDER", help="A LoRA adapter, as PEFT saves it, added to MODEL's weights."
    )
    dtype: str = option(
        "--dtype", default="auto", help="fp32, bf16, fp16; auto: fp32 on a CPU, bf16 on a GPU; fast: timed."
    )
    quantization: str = option(
        "--quantization",
        default="auto",
        help="none, packed (blocks of a .gguf), int8 or int4; auto: what is fastest.",
    )
    device: str = option("--device", default="auto", help="cpu, cuda or cuda:N; auto takes a GPU if there is one.")
    runtime: str = option(
        "--runtime",
        default="auto",
        help="native, transformers or llama.cpp; auto: native if it knows the model.",
    )
    kv_cache_tokens: int | None = option(
        "--kv-cache-tokens", type=int, metavar="N", help="Tokens the cache holds for all texts together."
    )
    batch_invariant: bool | None = option(
        "--batch-invariant/--no-batch-invariant",
        default=None,
        help="The same bits whatever is drafted or batched; so it is on a Hopper GPU unless told.",
    )
    ranks: int = option("--ranks", type=int, default=1, metavar="N", help="Processes that share the model's heads.")
    raw: bool = option("--raw", is_flag=True, help="No chat template: continue the text as it stands.")

    def check(self, methods: tuple[str, ...]) -> None:
        """Refuse methods that are not known or lack a model, and devices that do not exist, before a model is read."""
        with starting():
            loader, own, known = api.loader, models.address, recipes.methods
        loader.dtype_of(self.dtype, loader.device_of(self.device))
        if self.kv_cache_tokens is not None and self.kv_cache_tokens < 1:
            raise BadRequest(
                f"--kv-cache-tokens is {self.kv_cache_tokens}; expected a whole number of tokens from 1 on."
            )
        have = {"draft": self.draft, "small": self.small, "heads": own.heads_of(self.model, self.heads)}
        for spec in methods:
            known.method(spec)
            for need in known.needs(spec):
                if have.get(need, need) is not None:
                    continue
                if need == "heads":
                    own.heads_for(self.model, self.heads, f"the method {spec!r}")
                    raise BadRequest(
                        f"the method {spec!r} asks for heads that look ahead, and none come with {self.model}; name a "
                        "file of them with --heads FILE (`unspool train heads` makes one)."
                    )
                raise BadRequest(f"the method {spec!r} asks a {need} model; name one with --{need} MODEL.")
        if self.small is not None and self.draft is None:
            raise BadRequest(f"--small {self.small} drafts for the draft model; name that too, with --draft MODEL.")
        if self.small is not None and self.draft is not None and api.trained_draft.is_trained(self.draft):
            raise BadRequest(f"--small {self.small} drafts for a model of its own; {self.draft} reads {self.model}.")

    def load(self, quiet: bool = False, longest: int = 1) -> LM:
        """The model with its draft models, if any were named; says on stderr how their tokens are related.

        Unless --kv-cache-tokens says how large the cache is, it holds so many of the longest texts.
        """
        with status(f"loading {self.model} …"):
            with_same = partial(
                api.loader.load,
                dtype=self.dtype,
                quantization=self.quantization,
                device=self.device,
                runtime=self.runtime,
                kv_cache_tokens=self.kv_cache_tokens,
                longest=longest,
            )
            lm = with_same(
                self.model,
                batch_invariant=self.batch_invariant,
                ranks=self.ranks,
                draft=self.draft,
                small=self.small,
                heads=self.heads,
                adapter=self.adapter,
            )
        if not quiet and lm.note is not None and sys.stderr.isatty():
            note(f"{self.model}: {lm.note}")
        for role, found in () if quiet else lm.alignments.items():
            note(f"{getattr(self, role)} drafts for {self.model}: {found}")
        if lm.drafter is not None and not quiet:
            with status(f"measuring {self.draft} on a short text …"):
                lm, told = api.trained_draft.fitted(lm)
            for line in told:
                note(f"{self.draft} drafts for {self.model}: {line}")
        return lm

    def prepare(self, lm: LM, methods: tuple[str, ...]) -> None:
        """Have what `auto` must know of this machine measured, if it never was; say where `on_device` is plain."""
        first = {recipes.names.known(recipes.names.parts_of(spec)[0].said) for spec in methods}
        if "on_device" in first and getattr(lm.model, "device", None) is None:
            note(api.ignored.PLAIN)
        if "auto" in first:
            with (
                status("measuring what forwards cost here, once for this model and machine …"),
                suppress(UnspoolError),  # a model that only fills holes, which who asks is told
            ):
                lm.price()
                if lm.draft is not None:
                    lm.price("draft")

    def prompt(self, lm: LM, text: str, system: str | None = None) -> Prompt:
        """The text as the model wants it: a user's message if it has a chat template, else the text itself."""
        if system is None:
            return lm.encode(lm.asked(text, self.raw))
        if self.raw or lm.vocabulary.chat_template is None:
            why = "--raw leaves the chat template out" if self.raw else f"{self.model} has no chat template"
            raise BadRequest(f"--system needs a chat template, but {why}; put the text into the prompt instead.")
        return [{"role": "system", "content": system}, {"role": "user", "content": text}]
