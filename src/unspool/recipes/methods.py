"""Methods by name: `plain`, `lookup:ngram=2`, `chain:depth=4 + block`; and all rules of unspool, with recipes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache, wraps
from importlib import import_module
from inspect import isfunction, unwrap
from pkgutil import iter_modules
from typing import Any, NamedTuple

from .. import recipes, rules
from ..core.asks import Verify
from ..core.claim import HEURISTIC, Choosing, Claim, Entry, Fitting, Method, compose, decodes, registered
from ..core.errors import BadRequest, cut
from ..core.option import made, options, refuse_unknown
from ..core.verifier import Bounded
from ..loops.drafter import Draft
from ..loops.speculate import Speculate
from .names import HOMES, RENAMED, Part, known, parts_of, renamed, unnamed

# Rules outside unmask/ that ask a model which was trained to fill holes.
FILLING = frozenset({"anyorder", "blended", "deliberate", "denoised", "fragments", "insert", "masks", "slots"})
# The families of rules, and the modules beside this one that hold their recipes: functions called as the methods are.
FAMILIES = {
    "constrain": ("constrain",),
    "decode": ("decode",),
    "draft": ("draft", "draft_lengths"),
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
    if build is None:
        return entry
    if home.family != "verify" or name not in recipes.verify.USUAL:
        return compose(name, build)
    usual = ours(recipes.verify.USUAL[name])
    return compose(name, _with_usual(build, usual), (*entry.needs, *usual.needs))


def _with_usual(build: Callable[..., Verify], usual: Entry) -> Callable[..., Method]:
    """A recipe of a verifier as one of a method, with the drafter that is usual; it keeps the options of the rule."""

    @wraps(build)
    def whole(**given: Any) -> Method:
        assert usual.build is not None  # drafters are methods
        return recipes.composition.composed(usual.build(), build(**given), usual.name)

    return whole


def recipe(name: str) -> Callable[..., Any] | None:
    """What makes a method of a rule that comes with unspool, or a verifier; None if it is a part of methods only."""
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


def fitted(spec: str | Method, vocabulary: Any, models: Collection[str] = ()) -> Method:
    """The method that a spec names, made to fit a model's vocabulary and the models that draft, if it asks for that."""
    made = method(spec)
    chosen = made.among(models) if isinstance(made, Choosing) else made
    return chosen.fit(vocabulary) if isinstance(chosen, Fitting) else chosen


def method(spec: str | Method) -> Method:
    """The method that a spec of one's own names (`unspool.recipes.spec`); a method is returned as it is.

    It may name files, which are read or run: what comes from elsewhere goes through `requested`.
    """
    if not isinstance(spec, str):
        if not isinstance(spec, Speculate) and not decodes(spec):
            meant = f"Speculate({type(spec).__name__}(…))" if isinstance(spec, Draft) else "in docs/own-method.md"
            raise BadRequest(
                f"the method is {cut(repr(spec))}; expected a name of `unspool methods`, as in 'lookup', or an object "
                f"that decodes, as {meant}"
            )
        return spec
    for part in parts_of(spec):
        if part.said in RENAMED:
            warnings.warn(renamed(part.said), FutureWarning, stacklevel=2)
    return _made(spec, _parsed(spec))


def requested(spec: str, offered: Collection[str] = (), client: str = "") -> Method:
    """The method that somebody else's text names: a request, a line of a batch, a profile that was downloaded.

    No part of it may name a file or share a memory with other requests, unless the operator `offered` exactly this
    spec; then it shares that with others of this `client` alone. Nothing is looked for on the disk before that is
    settled, so that no refusal tells what is there.
    """
    chosen = _parsed(spec)
    if spec not in offered:
        _refuse_files(chosen)
    refuse_session(spec)
    return _made(spec, chosen, client)


def refuse_files(spec: str) -> None:
    """NotOffered if a spec names a file, BadRequest if it cannot be read; nothing is built."""
    _refuse_files(_parsed(spec))


def refuse_session(spec: str) -> None:
    """BadRequest if a spec shares a session where every request has its method made anew, so that there is none."""
    if any(part.scope == "session" for part in parts_of(spec)):
        raise BadRequest(
            f"{cut(spec)!r} cannot be used here: a session is one chat, or one method that a program keeps, and every "
            "request has a method of its own. Write @process, which the requests of one client share, or @batch"
        )


class NotOffered(BadRequest):
    """A method that only the operator may name."""


def fills(entry: Entry) -> bool:
    """Whether a rule asks a model that was trained to fill holes."""
    return entry.family == "unmask" or entry.name in FILLING


def needs(spec: str | Method) -> tuple[str, ...]:
    """The models besides the target that a named method asks; nothing is known of a method given as an object."""
    if not isinstance(spec, str):
        return ()
    chosen = [each for each in _parsed(spec) if each.entry is not None]
    found = [need for each in chosen for need in each.asks]
    inside = [ours(inner).needs for each in chosen if (inner := each.part.given.get("inner")) in recipes.names.INNER]
    found += [recipes.names.ASKED.get(need, need) for asked in inside for need in asked]
    return tuple(dict.fromkeys(found))


def described(spec: str) -> Entry:
    """A spec as an entry of the registry: a rule's own for its bare name, else one about the method as it is written.

    A composition claims what its verifier claims, as the drafters here change how fast a text comes and not what it is;
    one with a drafter of somebody's own that claims less claims that. A rule that is only ever a part of methods has no
    other spec than its bare name.
    """
    if known(spec) is not None and (part := named(spec)).build is None:
        return part
    chosen = _parsed(spec)
    entry = _judged(spec, chosen)
    if len(chosen) == 1 and chosen[0].entry is not None and not chosen[0].part.rest:
        return entry
    found = _made(spec, chosen)
    bound = found.verify if isinstance(found, Speculate) and isinstance(found.verify, Bounded) else None
    return replace(
        entry,
        name=spec,
        trials=lambda _: [found],
        build=entry.build if len(chosen) == 1 else None,
        needs=needs(spec),
        bound=entry.bound if bound is None else lambda case: bound.gap(case.most),
    )


def claim_of(spec: str) -> Claim:
    """What a method claims as it is written; nothing is built."""
    return _judged(spec, _parsed(spec)).claim


def _judged(spec: str, chosen: tuple[_Chosen, ...]) -> Entry:
    """The rule that decides what a method claims, with that claim."""
    found = [each.entry or recipes.yours.claimed(each.part.said) or _unclaimed(spec) for each in chosen]
    every = _joins(chosen)  # a view makes a choice of holes no surer
    yours = [entry.claim for entry, each in zip(found, chosen, strict=True) if each.entry is None or every]
    entry = found[-1]
    return replace(entry, claim=recipes.composition.weakest(entry.claim, *yours)) if yours else entry


def _unclaimed(spec: str) -> Entry:
    """An entry for an object of somebody's own that is no rule under @claims."""
    note = "(of your own, and claims nothing)"
    return Entry(spec, "yours", HEURISTIC, "", (), _parsed, lambda _: [], None, (), None, True, None, note)


def runnable() -> list[Entry]:
    """The registered rules that can be run by name."""
    return [entry for entry in entries().values() if entry.build is not None]


def named(said: str) -> Entry:
    """The rule that people call so: by our name, a paper's or a system's, or a number on arXiv. Only it is imported."""
    name = known(said)
    found = ours(name) if name is not None else registered().get(said)  # somebody's own may be registered too
    if found is None:
        raise unnamed(said)
    return found


class _Chosen(NamedTuple):
    """One part of a spec, and the rule it names; None if that is FILE.py:NAME."""

    part: Part
    entry: Entry | None
    whole: bool  # whether it is the whole method, and not one of two parts

    @property
    def build(self) -> Callable[..., Any]:
        """What makes it: the method, or of two parts the verifier alone."""
        assert self.entry is not None  # files are asked by nobody
        assert self.entry.build is not None  # no other entry is chosen
        return self.entry.build if self.whole or self.entry.family != "verify" else unwrap(self.entry.build)

    @property
    def asks(self) -> tuple[str, ...]:
        """The models that it needs; a verifier by itself needs none."""
        assert self.entry is not None  # files are asked by nobody
        return self.entry.needs if self.whole or self.entry.family != "verify" else ()


def _parsed(spec: str) -> tuple[_Chosen, ...]:
    """The parts of a spec; BadRequest if one is not known, is in the wrong place or lacks an option that is given."""
    parts = parts_of(spec)
    if len(parts) > 1 and recipes.names.elsewhere(spec):
        raise recipes.names.unknown(spec)
    chosen = tuple(_Chosen(part, None if part.file else named(part.said), len(parts) == 1) for part in parts)
    if len(chosen) > 1:
        recipes.composition.expect_families(spec, [each.entry for each in chosen])
    for each in chosen:
        if (entry := each.entry) is None:
            continue
        if each.part.scope:
            recipes.memory.expect_scope(each.part.scope, spec, each is chosen[0])
        if entry.build is None:
            raise BadRequest(
                f"{entry.name!r} is a part of methods, of the family {entry.family}, and no method by itself; in Python"
                " it can be put into one, as its page in the documentation shows"
            )
        refuse_unknown(entry.name, each.build, each.part.given)
    return chosen


def _refuse_files(chosen: tuple[_Chosen, ...]) -> None:
    for each in chosen:
        if each.entry is None:
            raise NotOffered(_PRIVATE.format("FILE.py:NAME", "names a file"))
        if each.part.scope and each.part.scope not in recipes.memory.OPEN:
            raise NotOffered(_PRIVATE.format(f"@{each.part.scope}", "shares what was written between requests"))
        for name, option in options(each.build).items():
            if option.operator and name in each.part.given:
                raise NotOffered(_PRIVATE.format(f"{each.entry.name}:{name}", "names a file"))


_PRIVATE = (
    "{} {}, and only the operator may do that: a request gets such a method by the exact name under which --method or "
    "--allow offers it"
)


def _made(spec: str, chosen: tuple[_Chosen, ...], client: str = "") -> Method:
    """The method; every part has its options checked before it is built, and two parts whether they fit each other."""
    if _joins(chosen):
        return recipes.canvas_parts.composed(spec, chosen, _part)
    parts: list[Any] = [_part(each) for each in chosen]
    first, *rest = parts
    if scope := chosen[0].part.scope:
        first = recipes.memory.scoped(first, scope, spec, client)
    if rest:
        return recipes.composition.composed(first, rest[0], spec)
    if isinstance(first, Draft):
        return Speculate(first)
    if chosen[0].entry is None and recipes.yours.is_verifier(first):
        return recipes.composition.composed(method(recipes.verify.USUAL["sample_match"]), first, spec)
    whole: Method = first
    return whole


def _joins(chosen: tuple[_Chosen, ...]) -> bool:
    """Whether these are parts of one that fills a canvas."""
    return len(chosen) > 1 and recipes.composition.fills_canvas([each.entry for each in chosen])


def _part(each: _Chosen, shared: Mapping[str, str] = {}) -> Any:
    if each.entry is None:
        return recipes.yours.yours(each.part.said, each.part.given)
    return made(each.entry.name, each.build, {**each.part.given, **shared})
