"""Where chat templates run: programs from model files, with an end to their steps, their time and their size.

Jinja's own sandbox keeps a template from reaching anything but its messages. It does not keep it from looping for ever
or from writing more than fits into memory. Here every turn of a loop and every call is a step, and whatever could make
a value larger (an operator, a literal, a method, a filter) is asked beforehand how large that would be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from jinja2 import Environment, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

STEPS = 1_000_000  # turns of loops, calls and operators; a chat of ten thousand messages takes some 100 000
SECONDS = 10.0
LARGEST = 1 << 24  # characters of a value, and of all that is written
PARTS = 1 << 18  # of a value: what lists and mappings hold, all told
BUDGET = "the budget"  # a name that no template can say, as it has a blank in it
_TURNS, _JOINED, _WEIGHED = "turns of", "joined by", "weight of"  # filters that no template can say either
_REFUSED = ("batch", "center", "filesizeformat", "pprint", "slice", "urlize", "wordwrap", "xmlattr")
_SPELLING = (
    *("capitalize", "e", "escape", "forceescape", "lower", "string"),
    *("striptags", "title", "trim", "upper", "urlencode", "wordcount"),
)
F = TypeVar("F", bound=Callable[..., Any])


class Exhausted(Exception):
    """A template that goes on for too long or makes something too large."""


@dataclass
class Budget:
    """What one rendering has left."""

    steps: int = STEPS
    letters: int = LARGEST
    until: float = field(default_factory=lambda: monotonic() + SECONDS)

    def step(self, count: int = 1) -> None:
        """Take some steps."""
        self.steps -= count
        if self.steps < 0:
            raise Exhausted(f"it takes more than {STEPS} steps")
        if monotonic() > self.until:
            raise Exhausted(f"it takes more than {SECONDS:g} seconds")

    def write(self, value: object) -> Any:
        """Write a value."""
        self.letters -= weight(value)
        if self.letters < 0:
            raise Exhausted(f"it writes more than {LARGEST} characters")
        return value


def weight(value: object) -> int:
    """About how many characters a value has when it is written out; Exhausted if there are too many."""
    total, parts, left = 0, 0, [value]
    while left:
        part = left.pop()
        parts += 1
        if isinstance(part, (str, bytes)):
            total += len(part)
        elif isinstance(part, int):
            total += 1 + part.bit_length() // 3
        elif isinstance(part, dict):
            total += 4 + 4 * len(part)
            left += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple, set, frozenset)):
            total += 2 + 2 * len(part)
            left += part
        else:
            total += 16
        fits(total, parts + len(left))
    return total


def fits(size: int, parts: int = 0) -> None:
    """Refuse what would be too large."""
    if size > LARGEST or parts > PARTS:
        raise Exhausted(f"it makes a value of more than {LARGEST} characters or {PARTS} parts")


class BoundedEnvironment(ImmutableSandboxedEnvironment):  # type: ignore[misc]  # jinja2 is skipped by the type checker
    """Jinja's sandbox, with a budget; the context of a rendering has a `Budget` under the name BUDGET."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_written, optimized=False, **options)
        self.globals.pop("lipsum", None)  # which writes as much as it is asked to
        self.filters.update({name: _no_filter(name) for name in _REFUSED})
        self.filters.update({name: _spelling(FILTERS[name]) for name in _SPELLING})
        self.filters.update({_TURNS: _turns, _JOINED: _joined, _WEIGHED: _weighed})
        self.filters.update(join=_join, replace=_replace, format=_format, indent=_indent, sum=_sum)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Counting().visit(super()._parse(source, name, filename)).set_environment(self)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call what a template calls, if it may and what comes back is not too large."""
        __context[BUDGET].step()
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        if isinstance(getattr(method, "__self__", None), (str, bytes)):
            args = _method(method.__self__, method.__name__, args, kwargs)
        elif __obj is dict:
            weight([*args, kwargs])
        elif isinstance(__obj, LoopContext):  # a loop that calls itself
            args = tuple(_Turns(__context[BUDGET], through) for through in args)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator, if what comes of it is not too large."""
        context[BUDGET].step()
        _operation(operator, left, right)
        return super().call_binop(context, operator, left, right)


class _Counting(NodeTransformer):  # type: ignore[misc]
    """Puts a count where Jinja has no hook: loops, literals, `~`, and the text between tags."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        match node:
            case nodes.For():
                node.iter = _filtered(node.iter, _TURNS)
            case nodes.Concat():
                return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)
            case nodes.Tuple(ctx="store"):  # which is assigned to
                return node
            case nodes.List() | nodes.Dict() | nodes.Tuple():
                return _filtered(node, _WEIGHED)
            case nodes.TemplateData():
                return nodes.Const(node.data, lineno=node.lineno)  # which is finalised, and so counted
        return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _in_context(made: F) -> F:
    """Have Jinja give the context of the rendering to a filter, in which its budget is."""
    pass_context(made)
    return made


@_in_context
def _written(context: Context, value: object) -> Any:
    return context[BUDGET].write(value)


@dataclass(frozen=True)
class _Turns:
    """What a loop goes through, a step for each; as long as that is, where Jinja asks."""

    budget: Budget
    through: Any

    def __iter__(self) -> Iterator[Any]:
        for item in self.through:
            self.budget.step()
            yield item

    def __len__(self) -> int:
        return len(self.through)


@_in_context
def _turns(context: Context, through: Any) -> _Turns:
    return _Turns(context[BUDGET], through)


@_in_context
def _joined(context: Context, values: list[Any]) -> str:
    context[BUDGET].step()
    weight(values)
    return "".join(map(str, values))


@_in_context
def _weighed(context: Context, value: Any) -> Any:
    context[BUDGET].step()
    weight(value)
    return value


def _operation(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose outcome would be too large."""
    sized = (str, bytes, list, tuple)
    match operator:
        case "+" if isinstance(left, sized):
            weight([left, right])
        case "*" if isinstance(left, sized) or isinstance(right, sized):
            many, times = (left, right) if isinstance(left, sized) else (right, left)
            fits(max(weight(many), 1) * times if isinstance(times, int) else 0)
        case "*" | "**" if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            fits(bits // 3)
        case "%" if isinstance(left, (str, bytes)):
            _fill(str(left), "%", right)


def _fill(pattern: str, mark: str, given: Any) -> None:
    """Refuse to fill in a pattern if that would get too large: every mark may stand for all that is given."""
    widths = [int(number[:18]) for number in re.findall(r"\d+", pattern)]
    values = [*given.values()] if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]
    widths += [abs(value) for value in values if isinstance(value, int)]
    fits(len(pattern) + pattern.count(mark) * (weight(given) + max(widths, default=0)))


def _method(text: str | bytes, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a method of a text, refused if what comes of it would be too large."""
    match name, args:
        case (("translate" | "format_map" | "maketrans"), _):
            raise SecurityError(f"the method {name} of texts is not for chat templates")
        case "join", (items,):
            args = (list(items),)
            fits(weight(args[0]) + len(text) * len(args[0]))
        case "replace", (old, new, *_) if isinstance(old, type(text)) and isinstance(new, type(text)):
            fits(len(text) + text.count(old) * len(new))  # type: ignore[arg-type]
        case "format", _:
            _fill(str(text), "{", {**dict(enumerate(args)), **kwargs})
        case (("ljust" | "rjust" | "center" | "zfill"), _):
            fits(sum(value for value in args if isinstance(value, int)))
        case "expandtabs", _:
            fits(len(text) * max((value for value in (*args, *kwargs.values()) if isinstance(value, int)), default=8))
    return args


def _no_filter(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise SecurityError(f"the filter {name} is not for chat templates")

    return refuse


def _spelling(made: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that writes its value out, which must not be too large."""

    @_in_context
    def spell(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        context[BUDGET].step()
        weight(value)
        return made(value, *args, **kwargs)

    return spell


@_in_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    environment: Environment = context.environment
    items = list(value) if attribute is None else list(map(make_attrgetter(environment, attribute), value))
    context[BUDGET].step(1 + len(items))
    fits(weight(items) + len(str(d)) * len(items))
    return str(d).join(map(str, items))


@_in_context
def _replace(context: Context, s: Any, old: str, new: str, count: int | None = None) -> str:
    context[BUDGET].step()
    weight(s)
    text = str(s)
    _method(text, "replace", (str(old), str(new)), {})
    return text.replace(str(old), str(new), -1 if count is None else count)


@_in_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    context[BUDGET].step()
    _fill(str(value), "%", kwargs or args)
    return str(value) % (kwargs or args)


@_in_context
def _indent(context: Context, s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    context[BUDGET].step()
    fits(weight(s) + str(s).count("\n") * (width if isinstance(width, int) else len(width)))
    made: str = FILTERS["indent"](str(s), width, first, blank)
    return made


@_in_context
def _sum(context: Context, iterable: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    if not isinstance(start, (int, float)):
        raise SecurityError("the filter sum is for numbers")
    found = iterable if attribute is None else map(make_attrgetter(context.environment, attribute), iterable)
    return sum(found, start)
