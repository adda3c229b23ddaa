"""Methods by name: `plain`, `lookup`, `lookup:ngram=2,depth=8`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

from .claim import Entry, Method, entries
from .errors import BadRequest

# Rules outside unmask/ that ask a model which was trained to fill holes.
FILLING = frozenset({"anyorder", "blended", "deliberate", "denoised", "fragments", "insert", "masks", "slots"})


@runtime_checkable
class Fitting(Protocol):
    """A method that has to know the tokens it will decode."""

    def fit(self, vocabulary: Any) -> Method:
        """The method for this vocabulary."""
        ...


@runtime_checkable
class Branching(Protocol):
    """A method that goes on with several texts at the same time."""

    @property
    def texts(self) -> int:
        """How many at most."""
        ...


def overheard(made: Method, listen: Callable[[Sequence[Any]], None]) -> Method:
    """The method with one more to whom it tells what it has found, if it tells that anybody (a field `watch`)."""
    if not is_dataclass(made) or isinstance(made, type) or "watch" not in {field.name for field in fields(made)}:
        return made
    watch = getattr(made, "watch")  # noqa: B009  (only some methods have one)

    def both(found: Sequence[Any]) -> None:
        watch(found)
        listen(found)

    return replace(made, watch=both)


def fitted(spec: str | Method, vocabulary: Any) -> Method:
    """The method that a spec names, made to fit a model's vocabulary if it asks for that."""
    made = method(spec)
    return made.fit(vocabulary) if isinstance(made, Fitting) else made


def method(spec: str | Method) -> Method:
    """The method that a spec names, with its options; a method is returned as it is."""
    if not isinstance(spec, str):
        return spec
    entry, options = _parsed(spec)
    build = entry.build
    assert build is not None  # only such entries are parsed
    known = inspect.signature(build, eval_str=True).parameters
    for option in options:
        if option not in known:
            listed = ", ".join(f"{p.name}={p.default}" for p in known.values()) or "none"
            raise BadRequest(f"the method {entry.name!r} has no option {option!r}; its options are: {listed}")
    return build(**{name: _value(entry.name, known[name], text) for name, text in options.items()})


def fills(entry: Entry) -> bool:
    """Whether a rule asks a model that was trained to fill holes."""
    return entry.family == "unmask" or entry.name in FILLING


def needs(spec: str | Method) -> tuple[str, ...]:
    """The models besides the target that a named method asks; nothing is known of a method given as an object."""
    return _parsed(spec)[0].needs if isinstance(spec, str) else ()


def runnable() -> list[Entry]:
    """The registered rules that can be run by name."""
    return [entry for entry in entries().values() if entry.build is not None]


def _parsed(spec: str) -> tuple[Entry, dict[str, str]]:
    name, _, rest = spec.partition(":")
    known = {entry.name: entry for entry in runnable()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BadRequest(f"no method is called {name!r}.{hint} There are: {', '.join(known)}")
    options: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise BadRequest(f"{part!r} in {spec!r} is not an option: write {name}:option=value,option=value")
        options[option.strip()] = value.strip()
    return known[name], options


def _value(method_name: str, parameter: inspect.Parameter, text: str) -> Any:
    kind = parameter.annotation
    readers: dict[Any, Callable[[str], Any]] = {
        int: int,
        float: float,
        str: str,
        tuple[int, ...]: lambda s: tuple(int(x) for x in s.split("+")),  # widths=3+2+1
    }
    try:
        return readers[kind](text)
    except ValueError:
        wanted = getattr(kind, "__name__", str(kind))
        raise BadRequest(f"{method_name}:{parameter.name}={text} is not a valid {wanted}") from None
