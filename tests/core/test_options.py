"""Options of methods: each says what it may be, and no value within that makes a decoder work without end."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
from littlemodel import chatting_model, loaded

from unspool import LM, Settings
from unspool.core.canvas import Field
from unspool.core.claim import HEURISTIC, Method, claims
from unspool.core.cost import FREE
from unspool.core.errors import BadRequest, cut
from unspool.core.option import FILE, Choice, File, FreeText, Numbers, Option, Product, Range, options, products
from unspool.recipes.methods import method, requested, runnable
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Lookup, Trigram
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

EVERY = [entry.name for entry in runnable()]
ROWS = 1024  # of one forward
CALLS = 2_000_000  # of functions between two forwards: a second or two
STEPS = 4  # forwards of each decoder
PROMPT = "abcabdabe" * 40
# Where the ends of two ranges do not go together: what else goes with them.
TOGETHER = {
    "blended": {"by": "target"},
    "cautious": {"low": 0.0, "high": 0.5},
    "insert": {"none": 1, "words": "ab+c", "prevent": "a", "reduce": "b+c", "promote": "d"},
    "rewarded": {"power": 1.0},
    "smc": {"power": 1.0},
}
FILED = ("judged", "retrieve", "specdecpp")  # which cannot do without a file


def build_of(name):
    return next(entry for entry in runnable() if entry.name == name).build


# ---- what is declared


@pytest.mark.parametrize("name", EVERY)
def test_every_option_declares_what_it_may_be(name):
    for option in options(build_of(name)).values():
        match option.limit:
            case Range(low, high):
                assert option.type in (int, float)
                assert -math.inf <= low < high < math.inf
            case Numbers(each, most):
                assert option.type == tuple[int, ...]
                assert 1 <= most <= 64
                assert each.high < math.inf
            case Choice(names):
                assert len(names) > 1
            case FreeText(most):
                assert most <= 1024
            case File():
                assert option.operator
        assert option.default in option.limit
    known = options(build_of(name))
    assert all(set(product.names) <= set(known) for product in products(build_of(name)))
    values = {option.name: option.default for option in known.values()}
    assert all(product.of(values) <= product.most for product in products(build_of(name)))


def test_what_names_a_file_is_marked():
    marked = {f"{name}:{o.name}" for name in EVERY for o in options(build_of(name)).values() if o.operator}
    remembering = ("bigram_recycling", "merge", "phrase", "prefilled", "recycle", "stand", "suffixtree")
    assert marked == {
        *(f"{name}:memory" for name in remembering),
        *(f"{name}:reward" for name in ("astar", "chaotic", "foresight", "several")),
        "copy:input",
        "suffix:corpus",
        "trigram:corpus",
        "filtered:file",
        "fragments:reward",
        "judged:head",
        "mcts:reward",
        "retrieve:project",
        "retrieve:store",
        "rewarded:partial",
        "rewarded:reward",
        "specdecpp:head",
    }


def undeclared():
    def whole(depth: int = 4) -> Method: ...
    def typed(depth: Annotated[int, FILE] = 4) -> Method: ...
    def text(name: Annotated[str, Range(0, 1)] = "") -> Method: ...
    def bare(depth=4) -> Method: ...
    def twice(depth: Annotated[int, Range(0, 1), Range(0, 2)] = 1) -> Method: ...
    def unset(depth: Annotated[int, Range(0, 1)]) -> Method: ...
    def listed(widths: Annotated[tuple[int, ...], Range(0, 1)] = ()) -> Method: ...

    return [whole, typed, text, bare, twice, unset, listed]


@pytest.mark.parametrize("build", undeclared(), ids=lambda build: build.__name__)
def test_a_rule_whose_options_say_nothing_is_not_registered(build):
    def rule() -> None: ...

    before = list(runnable())
    with pytest.raises(BadRequest, match="does not say what it may be"):
        claims(HEURISTIC, trials=lambda _: [], build=build, name="undeclared")(rule)
    assert list(runnable()) == before


# ---- what is refused, and how that is said


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("lookup:ngram=17", "lookup:ngram is 17; expected a whole number from 1 to 16"),
        ("lookup:ngram=0", "from 1 to 16"),
        ("lookup:ngram=2.5", "a whole number from 1 to 16"),
        ("lookup:ngram=" + "9" * 5000, "lookup:ngram is " + "9" * 60 + "…; expected"),
        ("confident:threshold=nan", "confident:threshold is nan; expected a number from -10000 to 10000"),
        ("credited:weight=inf", "expected a number from 0 to 1000"),
        ("credited:weight=-inf", "expected a number from 0 to 1000"),
        ("beam:length=long", "beam:length is 'long'; expected one of power, gnmt"),
        ("stand:widths=1+65", "each 1 to 64"),
        ("stand:widths=" + "+".join(["1"] * 17), "at most 16 numbers"),
        ("stand:widths=1++2", "at most 16 numbers"),
        ("template:words=" + "a" * 513, "at most 512 characters"),
        ("diverse:groups=9,width=8", "diverse:groups=9,width=8 cannot be used; expected groups × width at most 64"),
        ("slots:beam=32", "slots:beam=32,together=2 cannot be used"),
        ("lookup:magic=2", "has no option 'magic'"),
        ("lookup:dpth=2", "Did you mean 'depth'?"),
        ("plain:" + "," * 10_000, "characters; expected at most 8192"),
        ("x" * 5000, "no method is called 'xxx"),
    ],
)
def test_a_refusal_names_the_option_what_was_given_and_the_range(spec, told):
    for make in (method, requested):
        with pytest.raises(BadRequest) as refused:
            make(spec)
        assert told in str(refused.value)
        assert len(str(refused.value)) < 2000


ONE = [
    "1_0",
    "\uff11",
    "\u0663",
    "+1",
    " 1",
    "1 ",
    "\t1",
    "1\n",
    "1\u2028",
    "\u00b2",
    "0x1",
    "1e0",
    "1.0",
    "--1",
    "",
    "-",
]


@pytest.mark.parametrize("written", ONE)
def test_a_whole_number_is_one_as_people_write_it(written):
    """Python's `int` takes the first nine of these."""
    for spec in (f"lookup:ngram={written},depth=2", f"stand:widths=2+{written},depth=2"):
        with pytest.raises(BadRequest) as refused:
            requested(spec)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "written", ["1_0", "\uff11", "+0.5", " 0.5", "0.5\n", "0.5\x1b[2J", "1e1_0", "nan", "infinity", "Inf", "1e", "."]
)
def test_a_number_is_one_as_people_write_it(written):
    with pytest.raises(BadRequest, match="confident:threshold is") as refused:
        requested(f"confident:threshold={written},size=2")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("written", ["0.5", ".5", "5.", "5e-1", "0", "1E0", "-1", "-0.5"])
def test_numbers_as_people_write_them(written):
    requested(f"confident:threshold={written}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nunspool: done", r"a\nunspool: done"),
        ("\x1b[2J\x7f\r", r"\x1b[2J\x7f\r"),
        ("\u2028\u2029\x85\u202e", r"\u2028\u2029\x85\u202e"),
        ("\udc80", r"\udc80"),
        ("Grüße, 世界 🙂", "Grüße, 世界 🙂"),
        ("\n" * 100, r"\n" * 60 + "…"),
    ],
)
def test_what_a_message_repeats_stays_on_one_line_and_steers_no_screen(text, shown):
    assert cut(text) == shown


@pytest.mark.parametrize("spec", ["early:threshold=inf", "lookup:ngram=16", "checked:cost=-inf", "diverse:groups=64"])
def test_the_ends_of_a_range_are_in_it(spec):
    method(spec)


def test_who_makes_a_rule_in_python_is_not_asked():
    assert Lookup(ngram=100).ngram == 100


def test_nothing_is_built_before_all_is_checked():
    built = []

    def build(
        depth: Annotated[int, Range(1, 4)] = 2, width: Annotated[int, Range(1, 4)] = 2
    ) -> Annotated[Method, Product(8, "depth", "width")]:
        built.append((depth, width))
        return plain()

    name = "checked-first"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unspool.core.claim._entries", {})
        claims(HEURISTIC, trials=lambda _: [], build=build, name=name)(plain)
        patch.setattr("unspool.recipes.methods.entries", lambda: __import__("unspool.core.claim").claim._entries)
        for wrong in ("depth=5", "depth=x", "depth=4,width=3"):
            with pytest.raises(BadRequest):
                method(f"{name}:{wrong}")
        assert not built
        method(f"{name}:depth=4,width=2")
    assert built == [(4, 2)]


# ---- what is allowed, at its lowest and highest


class Counted(Table):
    """A table that also fills holes without enumerating, and counts the rows and the work between two forwards."""

    def __init__(self, vocab):
        super().__init__(vocab, self._weights)
        self.calls = self.rows = 0
        self.heads = (self,) * 3

    def _weights(self, text):
        return [1 + (hash((text[-3:], x)) % 97) ** 2 for x in range(self.vocab)]

    def law(self, text):
        return super().law(text[-3:])  # few laws, made once

    def score(self, asked):
        return self._answered(super().score(asked))

    def look(self, asked):
        return self._answered([self._field(ask.look) for ask in asked])

    def _field(self, look):
        return Field({i: self.law((i % 7,)) for i in (*look.along, *look.places)}, rows=len(look.canvas))

    def _answered(self, answers):
        self.rows = max(self.rows, *(answer.rows for answer in answers))
        self.calls = 0
        return answers

    def count(self, frame, event, arg):
        self.calls += 1
        if self.calls > CALLS:
            sys.setprofile(None)
            raise AssertionError(f"more than {CALLS} calls between two forwards")


@dataclass
class World:
    """A model of letters with two draft models, all of them counted."""

    target: Counted
    lm: LM

    @staticmethod
    def of(words):
        target = Counted(words.size)
        small = LM("small", target, words)
        return World(target, LM("table", target, words, draft=LM("draft", target, words, draft=small)))

    def decode(self, spec):
        """A few forwards of the method of this name."""
        self.decode_by(method(spec))

    def decode_by(self, made):
        """A few forwards of a method; raises what ends it before that."""
        engine = Engine(self.lm.models(), lambda name: FREE)
        settings = Settings(temperature=1.0, max_tokens=1000)
        self.target.calls = 0
        sys.setprofile(self.target.count)
        try:
            (writer,) = self.lm.writers(engine, [PROMPT], settings, made)
            for _ in range(STEPS):
                engine.step()
            engine.cancel(writer.job)
        finally:
            sys.setprofile(None)
        if writer.job.error is not None:
            raise writer.job.error


def extremes(option: Option):
    match option.limit:
        case Range(low, high):
            return option.type(max(low, -1e9)), option.type(high)
        case Numbers(each, most):
            return (int(each.low),), (int(each.high),) * most
        case Choice(names):
            return names[0], names[-1]
        case FreeText(most):
            return "", ("abc+" * most)[: most - 1].strip("+")
    return "", ""


def corner(called, highest, first):
    """All options at one end; where that is too much together, those of `first` keep theirs and others give way."""
    build = build_of(called)
    known = {option.name: option for option in options(build).values() if not option.operator}
    values = {name: extremes(option)[highest] for name, option in known.items()} | TOGETHER.get(called, {})
    for product in products(build):
        order = sorted(dict.fromkeys(product.names), key=lambda name: name in first)
        while product.of({**dict.fromkeys(product.names, ""), **values}) > product.most:
            name = next(n for n in order if values[n] != extremes(known[n])[0])
            values[name] = less(values[name], extremes(known[name])[0])
    return ",".join(f"{name}={spelt(value)}" for name, value in values.items())


def less(value, least):
    if isinstance(value, str):
        return value[: len(value) * 3 // 4].strip("+")
    return max(least, value * 3 // 4)


def spelt(value):
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def corners():
    for name in EVERY:
        build = build_of(name)
        joint = dict.fromkeys(n for product in products(build) for n in product.names)
        found = {corner(name, 0, ()): None}
        for first in joint or [""]:
            found[corner(name, 1, (first,))] = None
        for number, rest in enumerate(found):
            yield pytest.param(f"{name}:{rest}", id=f"{name}-{number}")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with loaded(chatting_model(tmp_path_factory.mktemp("options") / "little")) as little:
        yield World.of(little.vocabulary)


@pytest.mark.parametrize("spec", list(corners()))
def test_no_corner_of_the_ranges_is_without_bound(world, spec):
    world.target.rows = 0
    if spec.partition(":")[0] in FILED:
        with pytest.raises(BadRequest, match="needs"):
            method(spec)
        return
    world.decode(spec)
    assert 0 < world.target.rows <= len(PROMPT) + ROWS
    made = method(spec)
    assert not isinstance(made, Speculate) or made.budget < ROWS  # also where this text gave it less to draft


def test_the_count_of_work_can_fail(world):
    with pytest.raises(AssertionError, match="between two forwards"):
        world.decode_by(Speculate(Trigram(rounds=10**9)))


def test_tokens_that_the_model_does_not_have_are_refused(world):
    with pytest.raises(BadRequest, match="a token of insert is 100000"):
        world.decode("insert:none=100000")


def test_the_constraint_is_asked_so_often_for_all_particles_together():
    for count in (1, 8, 64):
        made = method(f"smc:particles={count},propose=recursive")
        assert made.particles * made.propose.checks <= 2**11
        made = method(f"smc:particles={count},propose=geometric")
        assert made.particles * made.propose.refusals <= 2**11
    assert method("smc:propose=recursive,checks=3").propose.checks == 3
