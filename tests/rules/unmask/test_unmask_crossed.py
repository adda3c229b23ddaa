"""Rules made of rules: what a part has to know of the vocabulary, or to remember of a request, the whole passes on."""

from dataclasses import dataclass, fields, is_dataclass, replace
from types import SimpleNamespace

import pytest

from unspool.core.errors import BadRequest
from unspool.loops.denoise import Denoise
from unspool.loops.unmasker import Rule, begun, suited
from unspool.rules import unmask
from unspool.rules.decode.deliberate import Deliberate
from unspool.rules.decode.fragments import Fragments
from unspool.rules.unmask import Clocked, Confident, Early, EntropyBound, Explore, Quota, Timed
from unspool.rules.unmask.certainty import confidence
from unspool.rules.unmask.end_token import Endless, Late
from unspool.rules.unmask.renoise import Unchanged

WORDS = SimpleNamespace(eos=frozenset({7}))
LATE = Late(confidence)


@dataclass(frozen=True)
class Able(Rule):
    """A rule that has to know the vocabulary, and that remembers."""

    eos: frozenset[int] = frozenset()
    memory: list | None = None

    def fit(self, vocabulary):
        return replace(self, eos=vocabulary.eos)

    def begin(self):
        return replace(self, memory=[])

    def __call__(self, *given):
        raise AssertionError("not asked here")


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (Confident(certainty=LATE), "certainty"),
        (Quota(certainty=LATE), "certainty"),
        (Timed(certainty=LATE), "certainty"),
        (Clocked(certainty=LATE), "certainty"),
        (EntropyBound(certainty=LATE), "certainty"),
        (Explore(first=LATE), "first"),
        (Late(LATE), "certainty"),
        (Unchanged(Endless()), "view"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_part_learns_of_the_vocabulary(whole, part):
    """Else ends of text would come as early as any token, and nobody would be told."""
    assert getattr(suited(whole, WORDS), part).ends == {7}


def test_a_rule_in_a_rule_learns_of_the_vocabulary_and_has_a_memory_per_request():
    whole = suited(Early(rule=Early(rule=Able()), blocks=Able()), WORDS)
    assert whole.rule.rule.eos == whole.blocks.eos == {7}
    one, two = begun(whole), begun(whole)
    assert one.rule.rule.memory == []
    assert one.rule.rule.memory is not two.rule.rule.memory
    assert one.blocks.memory is not two.blocks.memory
    assert whole.rule.rule.memory is None
    assert begun(Unchanged(Able())).view.memory == []


def test_a_clock_inside_another_rule_goes_on():
    """Timed begins anew at every call if it was not begun, and its clock would stand still."""
    assert begun(Early(rule=Timed(steps=4))).rule is not begun(Early(rule=Timed(steps=4))).rule
    assert type(begun(Early(rule=Timed(steps=4))).rule) is type(begun(Timed(steps=4)))


def test_a_plain_function_is_a_rule_as_it_is():
    assert begun(confidence) is suited(confidence, WORDS) is confidence


NO_RULES = (Rule, unmask.Lave, *unmask.ROUTES.values())  # a guard, and what decides whether to check


def test_every_rule_with_a_part_or_a_memory_is_declared():
    """So that nobody has to look for a method by its name, and none is passed over."""
    for found in (getattr(unmask, name) for name in dir(unmask)):
        if isinstance(found, type) and is_dataclass(found) and not issubclass(found, NO_RULES):
            assert not {"begin", "fit"} & set(dir(found)), found
            parts = {field.name for field in fields(found)} & {"certainty", "first", "view", "rule", "blocks", "remask"}
            assert not parts, found


@pytest.mark.parametrize("ability", ["fit", "begin"])
def test_abilities_that_are_not_declared_are_refused_and_not_passed_over(ability):
    class Undeclared:
        def __call__(self, state):
            return list(state.canvas.holes)[:1]

    setattr(Undeclared, ability, lambda self, *_: self)
    with pytest.raises(BadRequest, match="derive Undeclared from"):
        suited(Undeclared(), WORDS)
    with pytest.raises(BadRequest, match="derive Undeclared from"):
        begun(Undeclared())


@pytest.mark.parametrize("outer", [Deliberate, Fragments])
def test_a_method_inside_a_method_learns_of_the_vocabulary(outer):
    """Else ends of text would come as early as any token in the first writing, and nobody would be told."""
    inner = Denoise(Confident(certainty=LATE))
    assert outer(first=inner).fit(
        SimpleNamespace(**vars(WORDS), token=lambda sign: None)
    ).first.unmask.certainty.ends == {7}
