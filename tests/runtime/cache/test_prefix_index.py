"""The index of beginnings: what a new text shares with one that is computed, however long both are."""

import pytest

from unspool.runtime.cache.sequence import BLOCK, SHORT, CachedSequence, PrefixIndex

LONG = SHORT + 5 * BLOCK


def noted(index, tokens, computed=None, owner=""):
    leaf = CachedSequence(list(tokens), list(range(1000, 1000 + (computed or len(tokens)))), owner=owner)
    index.note(leaf)
    return leaf


@pytest.mark.parametrize("shared", [0, 1, SHORT - 1, SHORT, SHORT + 1, SHORT + BLOCK, LONG - 3, LONG])
def test_all_that_two_texts_share_is_found(shared):
    index = PrefixIndex()
    leaf = noted(index, range(LONG))
    text = [*range(shared), *range(5000, 5040)]
    assert index.longest(text, len(text)) == leaf.slots[:shared]


@pytest.mark.parametrize("most", [1, SHORT, SHORT + 7, LONG - 1])
def test_no_more_is_given_than_is_wanted_nor_than_is_computed(most):
    index = PrefixIndex()
    leaf = noted(index, range(LONG), computed=SHORT + BLOCK + 3)
    assert index.longest(range(LONG), most) == leaf.slots[:most]


def test_the_text_of_another_owner_is_not_found():
    index = PrefixIndex()
    leaf = noted(index, range(LONG), owner="ann")
    assert index.longest(range(LONG), LONG, "bob") == []
    assert index.longest(range(LONG), LONG, "ann") == leaf.slots


def test_what_was_given_up_is_not_found():
    index = PrefixIndex()
    leaf = noted(index, range(LONG))
    leaf.slots = []
    assert index.longest(range(LONG), LONG) == []
    del leaf
    assert index.longest(range(LONG), LONG) == []
