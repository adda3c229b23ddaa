"""Trees: paths, depths and leaves against parents followed one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, ROOT, Tree

LEAVES = 3


def drawn(token):
    return Drawn(token, Law.point(token))


@st.composite
def trees(draw):
    """Trees of any shape below several leaves; node i has token 10 + i."""
    size = draw(st.integers(0, 12))
    parent = tuple(draw(st.integers(-LEAVES, i - 1)) for i in range(size))
    return Tree(tuple(drawn(10 + i) for i in range(size)), parent)


@given(trees())
def test_a_path_leads_from_below_the_leaf_to_the_node(tree):
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[-1] == node
        assert tree.parent[path[0]] == ~tree.leaf(node)
        assert all(tree.parent[below] == above for above, below in itertools.pairwise(path))
        assert tree.depth(node) == len(path)
        assert tree.tokens(path) == tuple(10 + i for i in path)


@given(trees())
def test_tokens_below_the_first_leaf_lead_to_the_end_of_their_path(tree):
    for node in range(len(tree)):
        if tree.leaf(node) == 0:
            assert tree.end(tree.tokens(tree.path(node))) == node
    assert tree.end(()) == ROOT
    with pytest.raises(ValueError, match="was not drafted"):
        tree.end((9,))


@given(trees())
def test_kids_are_the_inverse_of_parents_in_draft_order(tree):
    for node in range(-LEAVES, len(tree)):
        assert tree.kids(node) == [i for i in range(len(tree)) if tree.parent[i] == node]
    assert sum(len(tree.kids(node)) for node in range(-LEAVES, len(tree))) == len(tree)


@given(st.integers(0, 5))
def test_a_leaf_has_no_path_no_depth_and_its_own_number(r):
    tree = Tree.chain([drawn(1), drawn(2)])
    assert tree.path(~r) == []
    assert tree.depth(~r) == 0
    assert tree.leaf(~r) == r


@given(trees())
def test_growing_node_by_node_gives_the_same_tree_and_leaves_the_old_alone(tree):
    grown = NOTHING
    for node in range(len(tree)):
        before = grown.drawn, grown.parent, grown.kids(tree.parent[node])[:]
        bigger, number = grown.grow(tree.drawn[node], tree.parent[node])
        assert number == node
        assert (grown.drawn, grown.parent, grown.kids(tree.parent[node])) == before
        grown = bigger
    assert grown == tree
    assert all(grown.depth(node) == tree.depth(node) for node in range(len(tree)))


@given(trees(), st.integers(0, 4))
def test_pruning_by_depth_keeps_the_paths_of_all_shallower_nodes_in_order(tree, depth):
    pruned = tree.within(depth)
    stay = [node for node in range(len(tree)) if tree.depth(node) <= depth]
    paths = [(tree.leaf(node), tree.tokens(tree.path(node))) for node in stay]
    assert [(pruned.leaf(node), pruned.tokens(pruned.path(node))) for node in range(len(pruned))] == paths
    assert tree.within(len(tree)) is tree


def test_a_chain_is_a_tree_with_one_path():
    tree = Tree.chain([drawn(x) for x in (7, 8, 9)])
    assert tree.parent == (ROOT, 0, 1)
    assert tree.tokens(tree.path(2)) == (7, 8, 9)
    assert [tree.kids(node) for node in (ROOT, 0, 1, 2)] == [[0], [1], [2], []]


def test_no_draft_is_the_empty_tree():
    assert Tree.chain([]) == NOTHING
    assert len(NOTHING) == 0
    assert NOTHING.kids(ROOT) == []
    assert NOTHING.tokens(NOTHING.path(ROOT)) == ()


def test_a_node_keeps_the_law_it_was_drawn_from():
    law = Law.of([1, 2])
    tree, node = NOTHING.grow(Drawn(1, law))
    assert tree.drawn[node].law is law
    assert tree.parent == (ROOT,)


def test_holes_are_no_guesses():
    tree = Tree.chain([Drawn(3, Law.point(3)), Drawn(-1, Law.point(-1)), Drawn(0, Law.point(0))])
    assert (len(tree), tree.guesses) == (3, 2)


def test_what_a_drafter_thinks_of_a_node_goes_with_it():
    tree = Tree(tuple(map(drawn, range(4))), (ROOT, 0, ROOT, 2), (0.9, 0.8, 0.3, 0.2))
    assert tree.only([0, 2, 3]).sure == (0.9, 0.3, 0.2)
    assert tree.within(1).sure == (0.9, 0.3)
