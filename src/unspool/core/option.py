"""Options of methods: what a value given by name may be, declared beside the parameter that it sets.

    def build(ngram: Annotated[int, Range(1, 16)] = 3, store: Annotated[str, FILE] = "") -> Method: ...

A value is checked against its declaration before anything is built (`made`), and a rule whose
options declare nothing is not registered. What several options cost together is declared on what `build` returns:

    def build(…) -> Annotated[Method, Product(64, "groups", "width")]: ...

Who makes a rule in Python is not asked about any of this.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

from .errors import BadRequest, cut

T = TypeVar("T")
DIGITS = 40  # characters of one number
WHOLE = re.compile(r"-?[0-9]+")
REAL = re.compile(r"-?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|inf)")
LONGEST = 4096  # characters of a file's name


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`; if `endless`, inf too. Not a number (nan) is in no range."""

    low: float
    high: float
    endless: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.endless and value == math.inf)

    def __str__(self) -> str:
        return f"{self.low:.10g} to {self.high:.10g}" + (", or inf" if self.endless else "")


@dataclass(frozen=True)
class Numbers:
    """Several whole numbers, at most `most`, each in a range; written as 3+2+1."""

    each: Range
    most: int

    def __contains__(self, values: tuple[int, ...]) -> bool:
        return len(values) <= self.most and all(value in self.each for value in values)

    def __str__(self) -> str:
        return f"at most {self.most} numbers joined by +, each {self.each}"


@dataclass(frozen=True)
class Choice:
    """One of these names."""

    names: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"


@dataclass(frozen=True)
class FreeText:
    """Any text of at most `most` characters."""

    most: int

    def __contains__(self, text: str) -> bool:
        return len(text) <= self.most

    def __str__(self) -> str:
        return f"a text of at most {self.most} characters"


@dataclass(frozen=True)
class File:
    """The name of a file, or of an object in one. It is read, or even run, so only the operator may give it."""

    def __contains__(self, name: str) -> bool:
        return len(name) <= LONGEST

    def __str__(self) -> str:
        return "a file; not from requests"


Limit: TypeAlias = Range | Numbers | Choice | FreeText | File
FILE = File()


@dataclass(frozen=True)
class Product:
    """These options multiplied are at most `most`, because that is what they cost together.

    Of several numbers their product counts, of a text its characters. An option may be named twice: then its square.
    """

    most: int
    names: tuple[str, ...]

    def __init__(self, most: int, *names: str) -> None:
        object.__setattr__(self, "most", most)
        object.__setattr__(self, "names", names)

    def of(self, values: Mapping[str, Any]) -> int:
        """The product for these values of all options."""
        return math.prod(_amount(values[name]) for name in self.names)

    def __str__(self) -> str:
        return f"{' × '.join(self.names)} at most {self.most}"


def _amount(value: Any) -> int:
    if isinstance(value, tuple):
        return math.prod(value)
    return len(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Option:
    """One option of a method: the type and the limit of its values, and what it is unless told."""

    name: str
    type: Any
    limit: Limit
    default: Any

    @property
    def operator(self) -> bool:
        """Whether nobody but the operator may set it."""
        return isinstance(self.limit, File)

    @property
    def expected(self) -> str:
        """What its values are, for messages and pages."""
        if isinstance(self.limit, Range):
            return f"{'a whole number' if self.type is int else 'a number'} from {self.limit}"
        return str(self.limit)

    @property
    def spelt(self) -> str:
        """Its name and default as they are written in a spec."""
        plus = "+".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)
        return f"{self.name}={plus}"

    def read(self, text: str) -> Any:
        """The value that a text means; ValueError if it is not within the limit."""
        value = _READERS[self.type](text)
        if value not in self.limit:
            raise ValueError(text)
        return value


def _whole(text: str) -> int:
    return int(_spelt(WHOLE, text))


def _real(text: str) -> float:
    return float(_spelt(REAL, text))


def _several(text: str) -> tuple[int, ...]:
    return tuple(map(_whole, text.split("+"))) if text else ()


def _spelt(how: re.Pattern[str], text: str) -> str:
    """A number as people write it: Python itself would take 1_0, digits of other scripts, a plus, and blanks around."""
    if len(text) > DIGITS or not how.fullmatch(text):  # it reads long ones in quadratic time, and some not at all
        raise ValueError(text)
    return text


_READERS: dict[Any, Callable[[str], Any]] = {
    int: _whole,
    float: _real,
    str: str,
    tuple[int, ...]: _several,
}
_LIMITS: dict[Any, tuple[type[Limit], ...]] = {
    int: (Range,),
    float: (Range,),
    str: (Choice, FreeText, File),
    tuple[int, ...]: (Numbers,),
}


def options(build: Callable[..., Any]) -> dict[str, Option]:
    """The options that the parameters of `build` declare; BadRequest if one of them declares no limit."""
    return {name: _option(parameter) for name, parameter in _signature(build).parameters.items()}


def products(build: Callable[..., Any]) -> tuple[Product, ...]:
    """What is declared of several options together."""
    returned = _signature(build).return_annotation
    found = get_args(returned)[1:] if get_origin(returned) is Annotated else ()
    return tuple(each for each in found if isinstance(each, Product))


def part(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The part of a method that an option chooses by name; BadRequest if none of this kind is called so."""
    if name not in known:
        raise BadRequest(f"no {kind} is called {name!r}; expected one of: {', '.join(known)}")
    return known[name]


@lru_cache(maxsize=512)  # of every request's method several times, and reading annotations takes half a millisecond
def _signature(build: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(build, eval_str=True)


def _option(parameter: inspect.Parameter) -> Option:
    kind, *notes = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else [None]
    limits: list[Limit] = [note for note in notes if isinstance(note, _LIMITS.get(kind, ()))]
    if len(limits) != 1 or parameter.default is parameter.empty:
        raise BadRequest(
            f"the option {parameter.name!r} of a method does not say what it may be; declare its type, its limit and a "
            f"default, as in {parameter.name}: Annotated[int, Range(1, 64)] = 4 (docs/own-method.md)"
        )
    return Option(parameter.name, kind, limits[0], parameter.default)


def refuse_unknown(called: str, build: Callable[..., Any], given: Mapping[str, str]) -> None:
    """BadRequest if there is no such option."""
    declared = options(build)
    for option in given:
        if option not in declared:
            listed = ", ".join(each.spelt for each in declared.values()) or "none"
            near = get_close_matches(cut(option), declared, n=1)
            hint = f". Did you mean {near[0]!r}?" if near and len(declared) > 1 else ""
            raise BadRequest(f"the method {called!r} has no option {cut(option)!r}; its options are: {listed}{hint}")


def made(called: str, build: Callable[..., T], given: Mapping[str, str]) -> T:
    """Build it once all of its options are known to be within their limits, each and together."""
    refuse_unknown(called, build, given)
    declared = options(build)
    values = {name: _value(called, declared[name], text) for name, text in given.items()}
    all_values = {name: values.get(name, option.default) for name, option in declared.items()}
    for product in products(build):
        if product.of(all_values) > product.most:
            shown = ",".join(f"{name}={cut(str(all_values[name]))}" for name in dict.fromkeys(product.names))
            raise BadRequest(f"{called}:{shown} cannot be used; expected {product}, not {product.of(all_values)}")
    return build(**values)


def _value(called: str, option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError:
        shown = repr(cut(text)) if option.type is str else cut(text)
        joined = " (to join two parts, put blanks around the plus)" if "+" in text else ""
        raise BadRequest(f"{called}:{option.name} is {shown}; expected {option.expected}{joined}") from None


# Options that many methods share. What is written side by side or drafted together is one forward of so many rows.
Nodes: TypeAlias = Annotated[int, Range(1, 512)]  # of a draft tree
Depth: TypeAlias = Annotated[int, Range(1, 256)]  # tokens of a drafted chain
Ngram: TypeAlias = Annotated[int, Range(1, 16)]  # tokens; an index has an entry for every length at every place
Texts: TypeAlias = Annotated[int, Range(1, 64)]  # written side by side; each keeps the laws of its tokens
Budget: TypeAlias = Annotated[int, Range(0, 10_000_000)]  # that a search may spend, 0 for no limit
Steps: TypeAlias = Annotated[int, Range(1, 4096)]  # tokens of a step, or looks at a canvas
Holes: TypeAlias = Annotated[int, Range(0, 1024)]  # of a canvas or a block; 0 for as many as may be written
MODEL = -1  # as a size of blocks: the one that the model was made for
Block: TypeAlias = Annotated[int, Range(MODEL, 1024)]  # places of a block; 0 for the whole canvas
Level: TypeAlias = Annotated[float, Range(-10_000, 10_000, endless=True)]  # that a certainty is held against
Threshold: TypeAlias = Annotated[float, Range(-10_000, 10_000)]  # the same, where some hole has to reach it
Span: TypeAlias = Annotated[int, Range(1, 1024)]  # of neighbouring places
Few: TypeAlias = Annotated[int, Range(1, 64)]  # of what costs much, each
Share: TypeAlias = Annotated[float, Range(0, 1)]
Weight: TypeAlias = Annotated[float, Range(0, 1000)]
FileName: TypeAlias = Annotated[str, FILE]  # read or even run, so that only the operator may give it


def expect(fits: bool, name: str, given: object, expected: str, param: str | None = None) -> None:
    """Refuse a parameter unless it fits, saying what was given and what was expected.

    `param` is what a request calls it, where its name is a phrase.
    """
    if not fits:
        raise BadRequest(f"{name} is {given!r}; expected {expected}.", param)


def numeral(text: str) -> bool:
    """True for a number in at most 9 digits of ASCII; what Python calls decimal has those of every script."""
    return len(text) < 10 and text.isascii() and text.isdecimal()


def real(given: object, low: float = -math.inf, high: float = math.inf) -> bool:
    """True for a finite number in [low, high]; False for NaN, booleans and everything that is no number."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return False
    return abs(given) <= sys.float_info.max and low <= given <= high  # not isfinite, which fails at huge integers


def level(given: object) -> bool:
    """True for a number that others can be compared with: infinities may be, NaN never is above or below anything."""
    return real(given) or given in (math.inf, -math.inf)


def whole(given: object, low: int, high: float = math.inf) -> bool:
    """True for an integer in [low, high]."""
    return isinstance(given, int) and not isinstance(given, bool) and low <= given <= high
