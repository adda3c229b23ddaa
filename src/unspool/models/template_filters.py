"""The filters of chat templates: Jinja's own, with a step for every item and a limit to what they make.

A filter that stands nowhere here looks at one value and makes none that is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import Environment
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context
from jinja2.utils import _PassArg

from .bounded import BITS, BUDGET, BoundedItems, filled_size, in_context, method_arguments, weight

PRECISION = 300  # decimal places to which a number may be rounded
_REFUSED = ("batch", "center", "filesizeformat", "pprint", "slice", "striptags", "urlize", "wordwrap", "xmlattr")
_SPELLING = (
    *("capitalize", "e", "escape", "forceescape", "lower", "reverse", "safe", "string"),
    *("title", "trim", "truncate", "upper", "urlencode", "wordcount"),
)
_PASSING = ("first", "map", "reject", "rejectattr", "select", "selectattr")  # on one item after the other
_KEEPING = ("groupby", "list", "max", "min", "sort", "unique")  # all of them


def _no_filter(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise SecurityError(f"the filter {name} is not for chat templates")

    return refuse


def _spelling(made: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that writes its value out, which must not be too large."""

    @in_context
    def spell(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        value = list(BoundedItems(context[BUDGET], value, kept=True)) if isinstance(value, Iterator) else value
        context[BUDGET].step()
        context[BUDGET].make(weight(value))
        return made(*_passed(made, context), value, *args, **kwargs)

    return spell


def _going(made: Callable[..., Any], keeping: bool) -> Callable[..., Any]:
    """A filter that goes through its value, a step for each item of it."""

    @in_context
    def go(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        context[BUDGET].step()
        return made(*_passed(made, context), BoundedItems(context[BUDGET], value, keeping), *args, **kwargs)

    return go


def _passed(made: Callable[..., Any], context: Context) -> tuple[Any, ...]:
    """What a filter of Jinja's is given before its value."""
    match _PassArg.from_obj(made):
        case _PassArg.context:
            return (context,)
        case _PassArg.eval_context:
            return (context.eval_ctx,)
        case _PassArg.environment:
            return (context.environment,)
    return ()


@in_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    environment: Environment = context.environment
    found = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    items = list(BoundedItems(context[BUDGET], found, kept=True))
    context[BUDGET].make(weight(items) + len(str(d)) * len(items))
    return str(d).join(map(str, items))


@in_context
def _replace(context: Context, s: Any, old: str, new: str, count: int | None = None) -> str:
    context[BUDGET].step()
    weight(s)
    text = str(s)
    method_arguments(text, "replace", (str(old), str(new)), {}, context[BUDGET])
    return text.replace(str(old), str(new), -1 if count is None else count)


@in_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    context[BUDGET].step()
    context[BUDGET].make(filled_size(str(value), "%", kwargs or args))
    return str(value) % (kwargs or args)


@in_context
def _indent(context: Context, s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    context[BUDGET].step()
    context[BUDGET].make(weight(s) + str(s).count("\n") * (width if isinstance(width, int) else len(width)))
    made: str = FILTERS["indent"](str(s), width, first, blank)
    return made


@in_context
def _sum(context: Context, iterable: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    if not isinstance(start, (int, float)):
        raise SecurityError("the filter sum is for numbers")
    found = iterable if attribute is None else map(make_attrgetter(context.environment, attribute), iterable)
    return sum(BoundedItems(context[BUDGET], found), start)


@in_context
def _int(context: Context, value: Any, default: int = 0, base: int = 10) -> int:
    context[BUDGET].step()
    if isinstance(value, (str, bytes)) and len(value) * base.bit_length() > BITS:
        return default
    made: int = FILTERS["int"](value, default, base)
    return made


@in_context
def _round(context: Context, value: Any, precision: int = 0, method: str = "common") -> Any:
    context[BUDGET].step()
    if abs(precision) > PRECISION:
        raise SecurityError(f"numbers are rounded to at most {PRECISION} places in chat templates")
    return FILTERS["round"](value, precision, method)


BOUNDED: dict[str, Callable[..., Any]] = {
    **{name: _no_filter(name) for name in _REFUSED},
    **{name: _spelling(FILTERS[name]) for name in _SPELLING},
    **{name: _going(FILTERS[name], name in _KEEPING) for name in (*_PASSING, *_KEEPING)},
    "join": _join,
    "replace": _replace,
    "format": _format,
    "indent": _indent,
    "sum": _sum,
    "int": _int,
    "round": _round,
}
