"""Trees and single tokens whose first keys are read for all of a row at once: the bits of every token alone."""

import random
from dataclasses import replace

import pytest
import torch
from interpreted import INTERPRETED
from test_kernels import ints, pools, rows_of, tensor

from unspool.kernels import attention as attention_
from unspool.kernels import paths as paths_
from unspool.kernels.kernel_rows import Rows, Visibility
from unspool.kernels.tiling import Tiling, steady

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, of what floating point does silently
ONE_BY_ONE = Tiling(16, 16, 12, share=32, early=4)
PREFIXED = replace(ONE_BY_ONE, prefixed=True, warps=4)
TREE = Visibility.BITS, [130, 0, 50], [5, 3, 0], 5
TEXTS = Visibility.CAUSAL, [130, 0, 63, 64, 9], [1, 1, 1, 1, 0], 1
NARROW = torch.float16 if INTERPRETED else torch.bfloat16


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    random.seed(0)


def given(case, width=24):
    """Queries, keys, values and rows with their keys in order; what nothing may read is NaN."""
    rows, slots = rows_of(*case, 150)
    rows = paths_.in_order(rows)
    queries = tensor(len(case[1]) * case[3], 6, width, dtype=NARROW)
    return queries, *pools(rows, slots, 2, width, NARROW), rows


@pytest.mark.parametrize("programs", [1, 1000])
@pytest.mark.parametrize("case", [TREE, TEXTS])
def test_keys_read_for_a_whole_row_give_the_bits_of_keys_read_for_each_token(case, programs, monkeypatch):
    monkeypatch.setattr("unspool.kernels.prefix_attention.PROGRAMS", programs)
    asked = given(case)
    ours = attention_.attention(*asked, 0.25, None, PREFIXED)
    assert torch.equal(ours, attention_.attention(*asked, 0.25, None, ONE_BY_ONE))
    rows = asked[3]
    padding = [row * rows.tokens + token for row, n in enumerate(case[2]) for token in range(n, rows.tokens)]
    assert not ours[padding].any()


def test_a_tree_that_crosses_shares_is_each_of_its_paths_read_alone():
    """A chain of 20 behind 60 keys ends in the first large share, three shares after its beginning."""
    tokens, past = 20, 40
    rows, slots = rows_of(Visibility.BITS, [past], [tokens], tokens, 80)
    places = past + torch.arange(tokens)
    chain = [sum(1 << bit for bit in range(past - int(rows.clear[0]) + n + 1)) for n in range(tokens)]
    words = [[(bits >> (32 * w)) & 0xFFFFFFFF for w in range(rows.sees.shape[1])] for bits in chain]
    sees = ints([[word - (1 << 32) if word >> 31 else word for word in line] for line in words])
    clear = int(rows.clear[0])
    key_places = ints([[*range(clear, past + tokens), *[0] * (32 * len(words[0]) - past - tokens + clear)]])
    rows = replace(rows, places=places.to(rows.places), sees=sees, key_places=key_places)
    keys, values = pools(rows, slots, 1, 16, NARROW)
    queries = tensor(tokens, 3, 16, dtype=NARROW)
    tree = attention_.attention(queries, keys, values, paths_.in_order(rows), 0.25, None, PREFIXED)
    line = torch.cat((rows.table[0, :past], rows.slots))
    for n in range(tokens):
        table = torch.zeros_like(rows.table)
        table[0, : past + n] = line[: past + n]
        alone = Rows(table, ints([past + n]), ints([1]), line[past + n : past + n + 1], ints([past + n]))
        for cut in (PREFIXED, ONE_BY_ONE)[: 1 + (n == tokens - 1)]:
            one = attention_.attention(queries[n : n + 1], keys, values, alone, 0.25, None, cut)
            assert torch.equal(one[0], tree[n])


def test_what_has_a_window_is_read_by_the_other_kernel():
    asked = given(TEXTS)
    ours, theirs = (attention_.attention(*asked, 0.25, 7, one) for one in (PREFIXED, ONE_BY_ONE))
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, attention_.attention(*asked, 0.25, None, PREFIXED))


@pytest.mark.parametrize(("keys", "shares"), [(1, 1), (16, 1), (17, 2), (64, 4), (65, 5), (96, 5), (97, 6)])
def test_the_first_shares_are_of_one_block(keys, shares):
    assert ONE_BY_ONE.shares(keys) == shares


@pytest.mark.parametrize(
    ("room", "width", "tiles", "tokens", "prefixed"),
    [
        (1024, 64, 3, 1, True),
        (4096, 64, 3, 1, False),  # one text, whose many shares are joined by a launch of its own
        (4096, 64, 24, 8, True),
        (1024, 64, 384, 1, False),  # many texts, a program each
        (1024, 64, 384, 8, True),
        (1024, 256, 24, 8, False),
    ],
)
def test_which_batches_read_shared_keys_once_and_that_their_shares_are_those_of_all(
    room, width, tiles, tokens, prefixed
):
    cut, alone = steady(room, 8192, 3, width, tiles, tokens), steady(8192, 8192, 3, width)
    assert cut.prefixed == prefixed
    assert (cut.keys, cut.share, cut.early, cut.small) == (alone.keys, alone.share, alone.early, alone.small)
