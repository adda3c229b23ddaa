"""Groups of options that several commands share: a frozen dataclass whose fields are click options; and --method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from ... import api, recipes
from ...recipes.names import checked

if TYPE_CHECKING:
    from ...api.settings import Settings


F = TypeVar("F", bound=Callable[..., Any])
_KEY = "option"
HOW = "A name of `unspool methods`: lookup:ngram=2, 'chain + block', FILE.py:NAME."
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class GroupedOption(click.Option):
    """An option that stands under a heading of its own in --help."""

    def __init__(self, *given: Any, heading: str = "", **attributes: Any) -> None:
        super().__init__(*given, **attributes)
        self.heading = heading


class Grouped(click.Command):
    """A command whose --help lists options under headings: its own first, then those of each group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (told := each.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(each, "heading", "") or "Options", []).append(told)
        for heading in sorted(sections, key=lambda name: name != "Options"):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def option(*flags: str, **attributes: Any) -> Any:
    """A dataclass field that is read from a click option; `flags` and `attributes` are those of `click.option`."""
    return field(metadata={_KEY: (flags, attributes)})


def options(group: type[Any], name: str) -> Callable[[F], F]:
    """Give a command every option of a group; they arrive together, as one `group` object in the parameter `name`."""
    declared = [(f.name, *f.metadata[_KEY]) for f in fields(group)]

    def decorate(command: F) -> F:
        @wraps(command)
        def gathered(*rest: Any, **given: Any) -> Any:
            given[name] = group(*(given.pop(own) for own, _, _ in declared))
            return command(*rest, **given)

        decorated: Any = gathered
        for own, flags, attributes in reversed(declared):  # click lists the decorator nearest to the function last
            heading = getattr(group, "HEADING", "")
            decorated = click.option(*flags, own, cls=GroupedOption, heading=heading, **attributes)(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def known_method(ctx: click.Context, parameter: click.Parameter, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """The callback of an option --method: what was given, if its names are known, with new names for old ones."""
    return _known(given) if isinstance(given, str) else tuple(map(_known, given))


def _known(spec: str) -> str:
    name, notes = checked(spec)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return name


def method_option(default: str, told: str = HOW) -> Decorator:
    """The option --method of a command that decodes by one method."""
    return click.option(
        "--method", callback=known_method, shell_complete=methods_like, default=default, show_default=True, help=told
    )


def methods_like(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The methods whose names begin so, for shells that complete."""
    found = [each for each in recipes.listing.listings().values() if each.runnable and each.name.startswith(begun)]
    return [CompletionItem(each.name, help=each.summary) for each in found]


def _bias(given: str) -> tuple[int, float]:
    token, _, bias = given.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a bias; expected TOKEN=NUMBER, as in 42=-1.5") from None


@dataclass(frozen=True)
class SamplingOptions:
    """Settings as given on the command line; None is not given, so that `Settings` alone knows the defaults."""

    HEADING = "Sampling and stopping"

    temperature: float | None = option(
        "-t", "--temperature", type=float, metavar="T", help="0 is greedy (default); 1 is the model's own law."
    )
    top_k: int | None = option("--top-k", type=int, metavar="K", help="Only the K most probable tokens.")
    top_p: float | None = option("--top-p", type=float, metavar="P", help="The fewest tokens with mass P.")
    min_p: float | None = option("--min-p", type=float, metavar="P", help="At least P times the best one's.")
    typical: float | None = option("--typical", type=float, metavar="P", help="Locally typical tokens with mass P.")
    eta: float | None = option("--eta", type=float, metavar="E", help="Entropy-dependent threshold.")
    epsilon: float | None = option("--epsilon", type=float, metavar="E", help="At least probability E.")
    top_n_sigma: float | None = option(
        "--top-n-sigma", type=float, metavar="N", help="Logits within N standard deviations of the best."
    )
    repetition_penalty: float | None = option(
        "--repetition-penalty", type=float, metavar="R", help="Divide the logits of tokens seen by R; 1 is off."
    )
    frequency_penalty: float | None = option(
        "--frequency-penalty", type=float, metavar="F", help="Subtract F per occurrence."
    )
    presence_penalty: float | None = option(
        "--presence-penalty", type=float, metavar="F", help="Subtract F if it occurred."
    )
    no_repeat_ngram_size: int | None = option(
        "--no-repeat-ngram-size", type=int, metavar="N", help="No N tokens in a row twice."
    )
    logit_bias: tuple[tuple[int, float], ...] = option(
        "--logit-bias",
        type=_bias,
        multiple=True,
        metavar="ID=BIAS",
        help="Add BIAS to the logit of token ID. Repeatable.",
    )
    bad_words: tuple[str, ...] = option(
        "--bad-words", multiple=True, metavar="TEXT", help="Never write this word or phrase; case counts. Repeatable."
    )
    min_tokens: int | None = option("--min-tokens", type=int, metavar="N", help="No end of text before N tokens.")
    max_tokens: int | None = option(
        "--max-tokens",
        "--max-new-tokens",
        type=int,
        metavar="N",
        help="Stop after N tokens (default 256; compare, trace: 64).",
    )
    stop: tuple[str, ...] = option(
        "--stop", multiple=True, metavar="TEXT", help="End the text before TEXT. Repeatable."
    )
    stop_tokens: tuple[int, ...] = option(
        "--stop-token", type=int, multiple=True, metavar="ID", help="End the text after token ID. Repeatable."
    )
    heal: bool = option(
        "--heal", is_flag=True, help="The prompt may end inside a word: go on from its letters, not its last tokens."
    )
    ignore_eos: bool = option("--ignore-eos", is_flag=True, help="Go on after the end-of-text token.")
    seconds: float | None = option(
        "--seconds", type=float, metavar="S", help="Stop after S seconds, with what there is by then."
    )
    seed: int | None = option("-s", "--seed", type=int, metavar="N", help="Same seed, same text (default 0).")

    def settings(self, max_tokens: int | None = None, n: int | None = None, logprobs: int | None = None) -> Settings:
        """The settings; `max_tokens` is this command's own default, `n` and `logprobs` are given by some commands."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "logit_bias"}
        given.update(n=n, logprobs=logprobs, logit_bias=dict(self.logit_bias))
        if given["max_tokens"] is None:
            given["max_tokens"] = max_tokens
        return api.settings.Settings(**{name: value for name, value in given.items() if value is not None})
