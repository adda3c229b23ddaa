"""`unspool train`: change a model's weights, or measure what a change is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from typing import Any

import click

from unspool.apps.cli.root import starting


def _module(name: str) -> Any:
    with starting():
        return import_module(f".{name}", __package__)


class _Command(click.Command):
    """A command whose options are the settings of a module of `unspool_train`, imported when it is used."""

    def __init__(self, name: str, module: str, function: str, settings: str, short_help: str, help: str) -> None:
        self.module, self.function, self.settings = module, function, settings
        super().__init__(name, callback=self._run, short_help=short_help, help=help)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """One option per setting."""
        if not self.params:
            for own in fields(getattr(_module(self.module), self.settings)):
                flag = "--" + own.name.replace("_", "-")
                asks: dict[str, Any] = {"default": own.default, "help": own.metadata["help"]}
                kind = {"is_flag": True} if isinstance(own.default, bool) else {"type": type(own.default)}
                shown = own.default not in ("", False)
                self.params.append(click.Option([flag, own.name], show_default=shown, **asks, **kind))
        return super().get_params(ctx)

    def make_parser(self, ctx: click.Context) -> Any:
        """The parser, once the options are known."""
        self.get_params(ctx)
        return super().make_parser(ctx)

    def _run(self, **given: Any) -> int:
        module = _module(self.module)
        run: Callable[[Any], object] = getattr(module, self.function)
        run(getattr(module, self.settings)(**given))
        return 0


@click.group(short_help="Train drafters and heads, or adapt a model to block diffusion.")
def train() -> None:
    """Train a drafter or heads for a model, or adapt one so that it fills blocks of tokens in any order.

    \b
      unspool train speak --like corpus/ --out corpus/fresh.npz
      unspool train heads --corpus corpus/ --out heads/ --minutes 6
      unspool train length --draft layers:20 --out length.safetensors
      unspool train judge --draft layers:20 --out judge.safetensors
      unspool train drafter --kind eagle3 --corpus corpus/ --out drafter/
      unspool train adapt --corpus corpus/ --out adapted/ --minutes 12
      unspool train filler --kind gaps --texts lines.txt --out inserter/
      unspool train filter --prompts prompts.txt --out filter.safetensors
      unspool train evaluate --delta adapted/ --prompts corpus/fresh.npz
    """


train.add_command(
    _Command(
        "adapt",
        "adapt",
        "adapt",
        "AdaptSettings",
        "Adapt a causal model to block diffusion.",
        "Adapt a causal model to block diffusion and write the change, compressed, to OUT/delta.safetensors. "
        "Every weight is trained first; then the change is cut to its final size and trained on in that form. "
        "Ctrl-C ends training and writes what there is.",
    )
)
train.add_command(
    _Command(
        "drafter",
        "drafter.drafter_training",
        "drafter",
        "DrafterSettings",
        "Train a drafter that reads a model's hidden states.",
        "Train a drafter on a model's own words and write it as a folder in the form of speculators, for --draft and "
        "for other engines. Acceptance on held-out texts is printed, depth by depth. Ctrl-C ends training and leaves a "
        "drafter, and a checkpoint from which --resume goes on.",
    )
)
train.add_command(
    _Command(
        "evaluate",
        "evaluate",
        "evaluate",
        "EvaluateSettings",
        "Measure adapted weights by decoding prompts.",
        "Decode prompts one token per forward and by threshold, and print tokens per forward, the likelihood per "
        "token under the model before adaptation, exact matches with one per forward, and repetition.",
    )
)
train.add_command(
    _Command(
        "filler",
        "filler.filler_training",
        "filler",
        "FillerSettings",
        "Train a small model that fills holes or gaps, from nothing.",
        "Train a small model on lines of text and write it as a folder that loads: one that fills holes, that says "
        "what goes between two tokens (POINTER, for the method insert), that corrects whole texts (AR2Diff, for "
        "resample), or that is certain where it is right (dParallel, for peaked). Ctrl-C ends training and writes what "
        "there is.",
    )
)
train.add_command(
    _Command(
        "filter",
        "filter",
        "learn",
        "FilterSettings",
        "Train the filter of the method filtered.",
        "Have a model that fills holes answer prompts one token per look, let an oracle note which guesses were right, "
        "and train a small net to tell them by how sure the model is (Learn2PD). It is written to OUT, for "
        "--method filtered:file=OUT.",
    )
)
train.add_command(
    _Command(
        "heads",
        "medusa_heads",
        "heads",
        "HeadsSettings",
        "Train heads that look ahead, for the method heads.",
        "Train heads that guess the tokens after the next one from a model's last state, and write them to "
        "OUT/heads.safetensors, with how often their guesses are right. Ctrl-C ends training and writes what there is.",
    )
)
train.add_command(
    _Command(
        "judge",
        "judge_head",
        "judge",
        "JudgeSettings",
        "Train the head that lets drafted tokens stand, for the verifier judged.",
        "Swap tokens of the target's answers to sums for those of its draft model, let it finish, and see whether the "
        "number stays: on these labels a linear head on the target's states learns which drafted tokens do not matter "
        "(Judge decoding). Prints what it is worth on questions it has not seen.",
    )
)
train.add_command(
    _Command(
        "length",
        "length",
        "length",
        "LengthSettings",
        "Train the head that ends drafts in time, for the method specdecpp.",
        "Let a pair of models answer prompts, note which drafted tokens the target accepts, and train a small head on "
        "the draft model's states that foresees it (SpecDec++). Prints what it is worth on texts it has not seen.",
    )
)
train.add_command(
    _Command(
        "speak",
        "speak",
        "speak",
        "SpeakSettings",
        "Write documents in the model's own words to train on.",
        "Let the model ask itself questions by sampling and answer them greedily, and write the conversations.",
    )
)
