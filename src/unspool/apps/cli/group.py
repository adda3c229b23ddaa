"""Groups of options that several commands share: a frozen dataclass whose fields are click options; and --method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from ... import api, recipes
from ...recipes.names import checked
from ...rules import constrain
from .root import starting
from .terminal import STDIN, note, read_file, read_stdin

if TYPE_CHECKING:
    from ...api.settings import Settings
    from ...recipes.method_listing import MethodListing
    from ...rules.constrain import Form


F = TypeVar("F", bound=Callable[..., Any])
_KEY = "option"
FORCED = "forced"  # the method under a constraint, unless told: the text of plain, without a forward for what is forced
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
            if isinstance(each, click.Option) and (told := each.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(each, "heading", "") or "Options", []).append(told)
        for heading in sorted(sections, key=lambda name: name != "Options"):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def option(*flags: str, **attributes: Any) -> Any:
    """A dataclass field that is read from a click option; `flags` and `attributes` are those of `click.option`."""
    return field(metadata={_KEY: (flags, attributes)})


def options(group: type[Any], name: str, defaults: Mapping[str, object] = {}) -> Callable[[F], F]:
    """Give a command every option of a group; they arrive together, as one `group` object in the parameter `name`.

    `defaults` are those of this command where they are not the group's own.
    """
    declared = [(f.name, *f.metadata[_KEY]) for f in fields(group)]
    declared = [
        (own, flags, {**attributes, "default": defaults[own]} if own in defaults else attributes)
        for own, flags, attributes in declared
    ]

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
    for each in notes:
        note(f"note: {each}")
    return name


def method_option(default: str, told: str = HOW) -> Decorator:
    """The option --method of a command that decodes by one method."""
    return click.option(
        "--method", callback=known_method, shell_complete=methods_like, default=default, show_default=True, help=told
    )


def methods_like(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The methods whose names begin so, for shells that complete."""
    return [item for item, each in _rules(begun) if each.runnable]


def rules_like(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The same of all rules, those that are only parts of methods too."""
    return [item for item, _ in _rules(begun)]


def _rules(begun: str) -> list[tuple[CompletionItem, MethodListing]]:
    every = recipes.method_listing.listings().values()
    return [(CompletionItem(each.name, help=each.summary), each) for each in every if each.name.startswith(begun)]


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
        with starting():
            kind = api.settings.Settings
        return kind(**{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class Constraining:
    """What the text must be; at most one of these."""

    HEADING = "Structured output"

    json_schema: str | None = option(
        "--json-schema",
        metavar="FILE|JSON",
        help="The text is JSON that this schema accepts: a file, - or '{…}' itself.",
    )
    json_check: bool = option(
        "--json-check", is_flag=True, help="What a grammar cannot enforce of the schema is checked at the end."
    )
    regex: str | None = option("--regex", metavar="REGEX", help="The whole text matches this regular expression.")
    grammar: str | None = option(
        "--grammar", metavar="FILE", help="The text is derived from this grammar (Lark or GBNF); - is stdin."
    )
    cfg: str | None = option(
        "--cfg",
        metavar="FILE",
        help='The same by a table, {"rules": …, "terminals": …, "ignore": …}; on a canvas it is asked about holes.',
    )
    items: str | None = option(
        "--items", metavar="FILE", help="The text is one of the lines of this file, of which there may be millions."
    )
    choices: str | None = option("--choices", metavar="A,B,…", help="The text is one of these.")
    within: int | None = option(
        "--within", type=int, metavar="N", help="Close the text within N tokens, so that it is never cut."
    )

    def form(self, most: int) -> Form | None:
        """The one that was given, closed in time if that was asked for; `most` tokens may be written."""
        found = self._form()
        if self.within is None:
            return found
        if found is None:
            raise click.UsageError("--within goes with --json-schema, --regex, --grammar, --cfg, --items or --choices")
        if self.within > most:
            raise click.UsageError(
                f"--within {self.within} is more than --max-tokens {most}; raise that, or ask for less"
            )
        return found.within(self.within)

    def _form(self) -> Form | None:
        named = ("json_schema", "regex", "grammar", "cfg", "items", "choices")
        given = [name for name in named if getattr(self, name) is not None]
        if len(given) > 1:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise click.UsageError(f"{flags}: give one of these")
        if self.json_check and self.json_schema is None:
            raise click.UsageError("--json-check goes with --json-schema")
        if self.json_schema is not None:
            inline = self.json_schema.lstrip().startswith("{")
            schema = self.json_schema if inline else _source(self.json_schema)
            return constrain.json_schema(schema, self.json_check)
        if self.regex is not None:
            return constrain.regex(self.regex)
        if self.grammar is not None:
            return constrain.grammar(_source(self.grammar))
        if self.cfg is not None:
            return constrain.read_cfg(_source(self.cfg))
        if self.items is not None:
            return constrain.items(self.items)
        return None if self.choices is None else constrain.choices(*self.choices.split(","))

    def reads_stdin(self) -> bool:
        """True if stdin is taken."""
        return STDIN in (self.json_schema, self.grammar, self.cfg)


def _source(path: str) -> str:
    return read_stdin() if path == STDIN else read_file(path)
