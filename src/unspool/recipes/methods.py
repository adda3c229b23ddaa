"""Methods by name: `plain`, `lookup`, `lookup:ngram=2,depth=8`; and all rules that come with unspool, with recipes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules
from typing import Any

from .. import rules
from ..core.claim import Entry, Method, compose, fit, registered
from ..core.errors import BadRequest
from ..core.option import Option, options, products
from .names import HOMES, cut, known, parted, renamed, unknown

LONGEST = 8192  # characters of a spec: two names of files, and room for the rest

# Rules outside unmask/ that ask a model which was trained to fill holes.
FILLING = frozenset({"anyorder", "blended", "deliberate", "denoised", "fragments", "insert", "masks", "slots"})
# The families of rules, and the modules beside this one that hold their recipes: functions called as the methods are.
FAMILIES = {
    "constrain": ("constrain",),
    "decode": ("decode",),
    "draft": ("draft",),
    "search": ("search",),
    "unmask": ("unmask", "unmask_looks"),
    "verify": ("verify",),
}


def entries() -> dict[str, Entry]:
    """Every registered rule by name; the first call imports all of them."""
    _import_all()
    return registered()


@cache
def ours(name: str) -> Entry:
    """A rule that comes with unspool, with its recipe if it is a method by itself; no other rule is imported for it."""
    home = HOMES[name]
    import_module(f"{rules.__name__}.{home.family}.{home.module}")
    entry = registered()[name]
    build = None if entry.build else recipe(name)
    return compose(name, build) if build else entry


def recipe(name: str) -> Callable[..., Method] | None:
    """What makes a method of a rule that comes with unspool; None if it is a part of methods only."""
    for each in FAMILIES[HOMES[name].family]:
        module = import_module(f".{each}", __package__)
        found = vars(module).get(name)
        if isfunction(found) and found.__module__ == module.__name__:
            return found
    return None


@cache
def _import_all() -> None:
    for family in FAMILIES:
        package = import_module(f"{rules.__name__}.{family}")
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    for name in HOMES:
        ours(name)


def fitted(spec: str | Method, vocabulary: Any) -> Method:
    """The method that a spec names, made to fit a model's vocabulary if it asks for that."""
    return fit(method(spec), vocabulary)


def method(spec: str | Method) -> Method:
    """The method that a spec of one's own names, with its options; a method is returned as it is.

    Its options may name files, which are read or run: what comes from elsewhere goes through `requested`.
    """
    if not isinstance(spec, str):
        return spec
    if note := renamed(parted(spec)[0]):
        warnings.warn(note, FutureWarning, stacklevel=2)
    return _made(*_parsed(spec))


def requested(spec: str, offered: Collection[str] = ()) -> Method:
    """The method that somebody else's text names: a request, a line of a batch, a profile that was downloaded.

    It may name no file, unless the operator `offered` exactly this spec. Nothing is looked for on the disk before that
    is settled, so that no refusal tells what is there.
    """
    entry, given = _parsed(spec)
    if spec not in offered:
        _refuse_files(entry, given)
    return _made(entry, given)


def refuse_files(spec: str) -> None:
    """NotOffered if a spec names a file, BadRequest if it cannot be read; nothing is built."""
    _refuse_files(*_parsed(spec))


class NotOffered(BadRequest):
    """A method that only the operator may name."""


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
    if len(spec) > LONGEST:
        raise BadRequest(f"the method {cut(spec)!r} has {len(spec)} characters; expected at most {LONGEST}")
    said, _, rest = parted(spec)
    entry = named(said)
    name = entry.name
    if entry.build is None:
        raise BadRequest(
            f"{name!r} is a part of methods, of the family {entry.family}, and no method by itself; in Python it can "
            f"be put into one, as its page in the documentation shows"
        )
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise BadRequest(f"{cut(part)!r} in {cut(spec)!r} is not an option: write {name}:option=value,option=value")
        given[option.strip()] = value.strip()
    declared = options(_build(entry))
    for option in given:
        if option not in declared:
            listed = ", ".join(each.spelt for each in declared.values()) or "none"
            raise BadRequest(f"the method {name!r} has no option {cut(option)!r}; its options are: {listed}")
    return entry, given


def named(said: str) -> Entry:
    """The rule that people call so: by our name, a paper's or a system's, or a number on arXiv. Only it is imported."""
    name = known(said)
    found = ours(name) if name is not None else registered().get(said)  # somebody's own may be registered too
    if found is None:
        raise unknown(said)
    return found


def _build(entry: Entry) -> Callable[..., Method]:
    assert entry.build is not None  # only such entries are parsed
    return entry.build


def _refuse_files(entry: Entry, given: Mapping[str, str]) -> None:
    for name, option in options(_build(entry)).items():
        if option.operator and name in given:
            raise NotOffered(
                f"{entry.name}:{name} names a file, and only the operator may name files: a request gets such a method "
                "by the exact name under which --method or --allow offers it"
            )


def _made(entry: Entry, given: Mapping[str, str]) -> Method:
    """Build a method once all of its options are known to be within their limits, each and together."""
    declared = options(_build(entry))
    values = {name: _value(entry.name, declared[name], text) for name, text in given.items()}
    all_values = {name: values.get(name, option.default) for name, option in declared.items()}
    for product in products(_build(entry)):
        if product.of(all_values) > product.most:
            shown = ",".join(f"{name}={cut(str(all_values[name]))}" for name in dict.fromkeys(product.names))
            raise BadRequest(f"{entry.name}:{shown} cannot be used; expected {product}, not {product.of(all_values)}")
    return _build(entry)(**values)


def _value(called: str, option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError:
        shown = repr(cut(text)) if option.type is str else cut(text)
        raise BadRequest(f"{called}:{option.name} is {shown}; expected {option.expected}") from None
