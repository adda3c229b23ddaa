"""Where chat templates run: programs from model files, with an end to their steps, their time and their size.

Jinja's own sandbox keeps a template from reaching anything but its messages. It does not keep it from looping for ever
or from writing more than fits into memory. Here every turn of a loop or of a filter and every call is a step, and
whatever could make a value larger (an operator, a literal, a method, a filter) is asked beforehand how large that would
be; there is a limit for one value and one for all of them together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

STEPS = 1_000_000  # turns of loops, calls and operators; a chat of ten thousand messages takes some 100 000
SECONDS = 10.0
LARGEST = 1 << 24  # characters of a value, and of all that is written
PARTS = 1 << 18  # of a value: what lists and mappings hold, all told
MADE = 1 << 29  # characters of all values that are made
BITS = 1 << 14  # of a whole number: to divide very long ones takes hours
BUDGET = "the budget"  # a name that no template can say, as it has a blank in it
_TURNS, _JOINED, _WEIGHED, _SLICED = "turns of", "joined by", "weight of", "slice of"  # which none can say either
_NO_METHODS = ("decode", "encode", "format_map", "maketrans", "translate")  # of texts
F = TypeVar("F", bound=Callable[..., Any])


class Exhausted(Exception):
    """A template that goes on for too long or makes something too large."""


@dataclass
class Budget:
    """What one rendering has left."""

    steps: int = STEPS
    letters: int = LARGEST
    made: int = MADE
    until: float = field(default_factory=lambda: monotonic() + SECONDS)

    def step(self, count: int = 1) -> None:
        """Take some steps."""
        self.steps -= count
        if self.steps < 0:
            raise Exhausted(f"it takes more than {STEPS} steps")
        if monotonic() > self.until:
            raise Exhausted(f"it takes more than {SECONDS:g} seconds")

    def make(self, size: int, parts: int = 0) -> None:
        """Make a value of so many characters."""
        fits(size, parts)
        self.made -= max(size, 0)
        if self.made < 0:
            raise Exhausted(f"it makes values of more than {MADE} characters together")

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
    """Jinja's sandbox, with a budget; the context of a rendering has a `Budget` under the name BUDGET.

    `filters` stand above Jinja's own, which know no budget (`unspool.models.template_filters`).
    """

    intercepted_binops = frozenset({"+", "*", "**", "%", "//"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]], extensions: Sequence[type[Extension]]) -> None:
        spaces = {"trim_blocks": True, "lstrip_blocks": True}
        super().__init__(finalize=_written, optimized=False, extensions=extensions, **spaces)
        self.globals.pop("lipsum", None)  # which writes as much as it is asked to
        self.filters.update({**filters, _TURNS: _turns, _JOINED: _joined, _WEIGHED: _weighed, _SLICED: _sliced})

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Counting().visit(super()._parse(source, name, filename)).set_environment(self)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call what a template calls, if it may and what comes back is not too large."""
        budget: Budget = __context[BUDGET]
        budget.step()
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, (int, float)):
            raise SecurityError("methods of numbers are not for chat templates")
        if isinstance(owner, (str, bytes)):
            args = method_arguments(owner, method.__name__, args, kwargs, budget)
        elif __obj is dict:
            budget.make(weight([*args, kwargs]))
        elif isinstance(__obj, LoopContext):  # a loop that calls itself
            args = tuple(BoundedItems(budget, through) for through in args)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator, if what comes of it is not too large."""
        context[BUDGET].step()
        context[BUDGET].make(_operation(operator, left, right))
        return super().call_binop(context, operator, left, right)


class _Counting(NodeTransformer):  # type: ignore[misc]
    """Puts a count where Jinja has no hook: loops, literals, slices, `~`, and the text between tags."""

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
            case nodes.Getitem(arg=nodes.Slice()):
                return _filtered(node, _SLICED)
            case nodes.TemplateData():
                return nodes.Const(node.data, lineno=node.lineno)  # which is finalised, and so counted
        return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def in_context(made: F) -> F:
    """Have Jinja give the context of the rendering to a filter, in which its budget is."""
    pass_context(made)
    return made


@in_context
def _written(context: Context, value: object) -> Any:
    return context[BUDGET].write(value)


@dataclass(frozen=True)
class BoundedItems:
    """What a loop or a filter goes through, a step for each; as long as that is, where Jinja asks.

    If all of it is kept, it must not be too large together.
    """

    budget: Budget
    through: Any
    kept: bool = False

    def __iter__(self) -> Iterator[Any]:
        size = 0
        for count, item in enumerate(self.through):
            self.budget.step()
            if self.kept:
                size += 2 + weight(item)
                fits(size, count)
            yield item

    def __bool__(self) -> bool:
        return bool(self.through)

    def __len__(self) -> int:
        return len(self.through)


@in_context
def _turns(context: Context, through: Any) -> BoundedItems:
    return BoundedItems(context[BUDGET], through)


@in_context
def _joined(context: Context, values: list[Any]) -> str:
    context[BUDGET].step()
    context[BUDGET].make(weight(values))
    return "".join(map(str, values))


@in_context
def _weighed(context: Context, value: Any) -> Any:
    context[BUDGET].step()
    context[BUDGET].make(weight(value))
    return value


@in_context
def _sliced(context: Context, value: Any) -> Any:
    """A part of a text or a list, which holds nothing that was not there."""
    context[BUDGET].step()
    context[BUDGET].make(len(value) if isinstance(value, (str, bytes, list, tuple)) else 0)
    return value


def _operation(operator: str, left: Any, right: Any) -> int:
    """About how many characters comes of an operation; Exhausted if it is one of very long numbers."""
    sized = (str, bytes, list, tuple)
    match operator:
        case "+" if isinstance(left, sized):
            return weight([left, right])
        case "*" if isinstance(left, sized) or isinstance(right, sized):
            many, times = (left, right) if isinstance(left, sized) else (right, left)
            return max(weight(many), 1) * times if isinstance(times, int) else 0
        case "%" if isinstance(left, (str, bytes)):
            return filled_size(str(left), "%", right)
        case _ if isinstance(left, int) and isinstance(right, int):
            times = max(right, 1) if operator == "**" else 1
            if left.bit_length() * times + (0 if operator == "**" else right.bit_length()) > BITS:
                raise Exhausted(f"it makes a value of more than {BITS} bits")
    return 0


def filled_size(pattern: str, mark: str, given: Any) -> int:
    """How large a pattern may get that is filled in: every mark may stand for all that is given."""
    widths = [int(number[:18]) for number in re.findall(r"\d+", pattern)]
    values = [*given.values()] if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]
    widths += [abs(value) for value in values if isinstance(value, int)]
    return len(pattern) + pattern.count(mark) * (weight(given) + max(widths, default=0))


def method_arguments(
    text: str | bytes, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Budget
) -> tuple[Any, ...]:
    """The arguments of a method of a text, refused if what comes of it would be too large."""
    size, parts = len(text), 0
    match name, args:
        case _ if name in _NO_METHODS:
            raise SecurityError(f"the method {name} of texts is not for chat templates")
        case "join", (items,):
            args = (list(BoundedItems(budget, items, kept=True)),)
            size = weight(args[0]) + len(text) * len(args[0])
        case "replace", (old, new, *_) if isinstance(old, type(text)) and isinstance(new, type(text)):
            size += text.count(old) * len(new)  # type: ignore[arg-type]
        case "format", _:
            size = filled_size(str(text), "{", {**dict(enumerate(args)), **kwargs})
        case (("ljust" | "rjust" | "center" | "zfill"), _):
            size += sum(value for value in args if isinstance(value, int))
        case "expandtabs", _:
            size *= max((value for value in (*args, *kwargs.values()) if isinstance(value, int)), default=8)
        case (("split" | "rsplit"), _):
            at = args[0] if args else kwargs.get("sep")
            parts = len(text.split(at, PARTS + 1))
        case "splitlines", _:
            parts = sum(map(str(text).count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
    budget.make(size, parts)
    return args
