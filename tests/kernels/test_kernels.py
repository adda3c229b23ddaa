"""The kernels against what they say they compute: in Triton's interpreter, or on the GPU where there is one."""

import math
import random

import pytest
import torch
import torch.nn.functional as F
from interpreted import INTERPRETED
from selection import crossed

from unspool.core.chance import Philox, Role
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Temperature
from unspool.core.warp.warp import Prefix, Scored
from unspool.kernels import attention as attention_
from unspool.kernels import gate as gate_
from unspool.kernels import linear as linear_
from unspool.kernels import norm as norm_
from unspool.kernels import paths as paths_
from unspool.kernels import pick as pick_
from unspool.kernels import reject as reject_
from unspool.kernels import rope as rope_
from unspool.kernels import verify as verify_
from unspool.kernels.kernel_rows import Rows, Visibility
from unspool.kernels.tile import LIBRARY, Tile, cut_for, cuts, steady_cut
from unspool.kernels.tiling import Tiling
from unspool.rules.verify import greedy, rejection, sample_match
from unspool.runtime.network.attention import Rotary, turn
from unspool.runtime.network.linear import rms

DEVICE = "cpu" if INTERPRETED else "cuda"
# The interpreter cuts bfloat16 off instead of rounding it, and cannot multiply matrices of it.
DTYPES = [torch.float32, torch.float16] + ([] if INTERPRETED else [torch.bfloat16])
NEAR = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
NAN = float("nan")

# numpy says aloud what floating point does silently on a GPU
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    random.seed(0)


def close(ours, theirs, dtype=None):
    assert not ours.isnan().any()
    near = NEAR[dtype or theirs.dtype]
    torch.testing.assert_close(ours.float(), theirs.float(), atol=near, rtol=near)


def tensor(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE).to(dtype)


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def test_chunks_of_a_sum_are_added_as_splits_are():
    x, weight = tensor(5, 200), tensor(48, 200)
    for more in ({"activation": "silu"}, {"residual": tensor(5, 48)}, {}):
        one, several = (
            linear_.linear(x, weight, cut=Tile(16, 16, 32, splits=splits, chunks=chunks), **more)
            for splits, chunks in ((1, 3), (3, 1))
        )
        assert torch.equal(one, several)


@pytest.mark.parametrize("n", [1, 2, 16, 17, 64, 65, 128, 300, 5000])
@pytest.mark.parametrize(("width", "depth"), [(960, 576), (576, 1536), (49152, 576), (4096, 14336), (300, 100)])
@pytest.mark.parametrize("gated", [False, True])
def test_a_steady_cut_adds_up_in_one_order_whatever_the_number_of_tokens(n, width, depth, gated):
    few, cut = (steady_cut(width, depth, tokens, torch.bfloat16, gated) for tokens in (2, n))
    assert cut.rows > 1 or cut.at_once  # on tensor cores, and not by a library
    assert cut.splits * cut.chunks == few.splits * few.chunks
    assert 1 in (cut.splits, cut.chunks)
    assert not cut.norms or cut.at_once  # tiles would sum squares in another way than the norm's own launch
    each, first = (math.ceil(math.ceil(depth / t.step) / (t.splits * t.chunks)) * t.step for t in (cut, few))
    assert each == first or few.splits * few.chunks == 1
    assert cut.apart == few.apart
    assert not cut.apart or cut.step == few.step or (cut.described and few.step % cut.step == 0)
    exact = [steady_cut(width, depth, tokens, torch.float32, gated) for tokens in (1, n)]
    assert exact[0] == exact[1]


@pytest.mark.parametrize("given", [{}, {"activation": "silu"}, {"residual": True}, {"norm": True}, {"bias": True}])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_pieces_of_few_tokens_taken_at_once_are_what_their_parts_are(given, n):
    x, weight = tensor(n, 300, dtype=torch.float16), tensor(44, 300, dtype=torch.float16)
    width = 22 if "activation" in given else 44
    made = {"residual": tensor(n, width), "norm": tensor(300), "bias": tensor(44)}
    more = {name: made[name].half() if value is True else value for name, value in given.items()}
    out = torch.full((n + 1, width), NAN, dtype=torch.float16, device=DEVICE)
    cut = Tile(n, 8, 128, norms=True, apart=True, at_once=True)
    ours = linear_.linear(x, weight, eps=1e-5, cut=cut, out=out[:n], **more)
    torch.testing.assert_close(ours, linear_.reference(x, weight, eps=1e-5, **more), atol=2e-2, rtol=1e-2)
    assert out[n].isnan().all()


@pytest.mark.parametrize("n", [1, 3])
def test_few_tokens_and_weights_of_eight_bits_are_scaled_as_many_are(n):
    x, scale = tensor(3, 300, dtype=torch.float16), torch.rand(44, device=DEVICE) / 300
    weight = torch.randint(-128, 128, (44, 300), dtype=torch.int8, device=DEVICE)
    for more in ({"activation": "silu"}, {}):
        many = linear_.linear(x, weight, scale=scale, cut=Tile(16, 16, 128, apart=True), **more)
        few = linear_.linear(x[:n], weight, scale=scale, cut=Tile(n, 4, 128, apart=True, at_once=True), **more)
        torch.testing.assert_close(few, many[:n], atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("given", [{}, {"activation": "silu"}, {"residual": True}, {"norm": True}, {"bias": True}])
@pytest.mark.parametrize("step", [64, 128])
def test_tiles_that_the_chip_copies_are_what_their_parts_are(given, step):
    n, depth, apart = 37, 328, "bias" not in given
    x, weight = tensor(n, depth, dtype=torch.float16), tensor(44, depth, dtype=torch.float16)
    width = 22 if "activation" in given else 44
    made = {"residual": tensor(n, width), "norm": tensor(depth), "bias": tensor(44)}
    more = {name: made[name].half() if value is True else value for name, value in given.items()}
    out = torch.full((n + 1, width), NAN, dtype=torch.float16, device=DEVICE)
    described, plain = (Tile(16, 16, size, apart=apart, described=size == step) for size in (step, 32))
    assert linear_.describable(x, weight, out)
    ours = linear_.linear(x, weight, eps=1e-5, cut=described, out=out[:n], **more)
    close(ours, linear_.linear(x, weight, eps=1e-5, cut=plain, **more))
    assert out[n].isnan().all()
    odd = x[:, :301].contiguous(), weight[:, :301].contiguous()  # of which lines do not start where they must
    assert not linear_.describable(*odd, out)
    close(linear_.linear(*odd, cut=described), linear_.linear(*odd, cut=plain))


@pytest.mark.parametrize(
    "cut", [{"at_once": True}, {}, {"turned": True}, {"described": True}, {"described": True, "step": 64}]
)
def test_pieces_of_a_sum_are_added_in_order(cut):
    """One term of each piece is not zero, so what a piece sums to is exact, and 2^24 + 1 + 1 - 2^24 tells the order."""
    x, weight = torch.zeros(2, 600, device=DEVICE), torch.ones(20, 600, device=DEVICE)
    x[:, torch.arange(0, 600, 128) + torch.arange(5) * 7] = torch.tensor([4096.0, 1.0, 1.0, -4096.0, 3.0]).to(DEVICE)
    weight[:, torch.tensor([0, 3 * 128 + 21])] = 4096.0
    ours = linear_.linear(x.half(), weight.half(), cut=Tile(16, 16, **{"step": 128, "apart": True, **cut}))
    assert ours.unique().tolist() == [3.0]  # all at once it would be 5


# ---- attention


def packed(bits, words):
    """Sets of numbers as rows of 32-bit words."""
    lines = [[sum(1 << (b % 32) for b in line if b // 32 == w) for w in range(words)] for line in bits]
    return ints([[word - (1 << 32) if word >> 31 else word for word in line] for line in lines])


def rows_of(sight, pasts, counts, tokens, room, block=3):
    """Rows of random trees (under BITS) or texts, over scattered slots; the last slot is for padding."""
    number, slots = len(pasts), len(pasts) * (room + tokens) + 1
    order = random.sample(range(slots - 1), slots - 1)
    table = ints(order[: number * room]).view(number, room)
    own = [order[number * room + i] if i % tokens < counts[i // tokens] else slots - 1 for i in range(number * tokens)]
    places, clears, sees, key_places = [], [], [], []
    words = (room // 2 + tokens + 31) // 32
    for past in pasts:
        clear = max(past - past // 3, past + tokens - 32 * words)
        below = [j - 1 if sight != Visibility.BITS else random.randrange(1, j) if j > 1 else -1 for j in range(tokens)]
        depth, path = [], []
        for j, above in enumerate(below):
            depth.append(0 if above < 0 else depth[above] + 1)
            path.append({past - clear + j} | (path[above] if above >= 0 else set(range(past - clear))))
        clears.append(clear)
        places += [past + d for d in depth]
        sees += path
        line = [*range(clear, past), *(past + d for d in depth)]
        key_places += [line + [0] * (32 * words - len(line))]
    rows = Rows(
        table, ints(pasts), ints(counts), ints(own), ints(places), sight, block,
        ints(clears), packed(sees, words), ints(key_places),
    )  # fmt: skip
    return rows, slots


def pools(rows, slots, kv_heads, width, dtype):
    """Keys and values with NaN in every slot that nothing may read."""
    made = [tensor(kv_heads, slots, width, dtype=dtype) for _ in range(2)]
    used = torch.cat([rows.seen(row, None)[0] for row in range(rows.number)]).long()
    unused = torch.ones(slots, dtype=torch.bool, device=DEVICE)
    unused[used] = False
    for pool in made:
        pool[:, unused] = NAN
    return made


def check_attention(rows, slots, kv_heads, group, width, dtype=torch.float32, window=None, cut=None):
    keys, values = pools(rows, slots, kv_heads, width, dtype)
    queries = tensor(rows.number * rows.tokens, kv_heads * group, width, dtype=dtype)
    given = queries, keys, values, rows, width**-0.5, window
    ours, theirs = attention_.attention(*given, cut), attention_.reference(*given)
    close(ours, theirs)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("sight", Visibility)
@pytest.mark.parametrize(("tokens", "group", "splits"), [(1, 1, 4), (5, 3, 1), (5, 7, 3)])
def test_attention(sight, window, tokens, group, splits):
    rows, slots = rows_of(sight, [37, 0, 12], [1, tokens, 0], tokens, 40)
    check_attention(rows, slots, 2 if group < 7 else 1, group, 16, window=window, cut=Tiling(16, 16, splits))


@pytest.mark.parametrize(("odd", "cut"), crossed(["chunked", "softcap", "sinks"], [(1, 0), (3, 0), (4, 16)], quick=3))
def test_attention_with_capped_scores_sinks_and_chunks(odd, cut):
    splits, share = cut
    rows, slots = rows_of(Visibility.BITS, [37, 0, 12], [1, 3, 0], 3, 40)
    rows = paths_.in_order(rows) if share else rows
    keys, values = pools(rows, slots, 2, 8, torch.float32)
    queries, window = 4 * tensor(9, 6, 8), 7 if odd == "chunked" else None
    told = {"softcap": 1.5, "sinks": tensor(6), "chunked": True}
    given = queries, keys, values, rows, 0.5, window
    ours = attention_.attention(*given, Tiling(16, 16, splits, share=share), **{odd: told[odd]})
    close(ours, attention_.reference(*given, **{odd: told[odd]}))
    assert not torch.allclose(ours, attention_.reference(*given), atol=1e-2)


@pytest.mark.parametrize("width", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_every_width_in_its_own_tiling(width, dtype):
    rows, slots = rows_of(Visibility.BITS, [70], [3], 4, 80)
    check_attention(rows, slots, 1, 3, width, dtype)


@pytest.mark.parametrize(("window", "splits", "share"), [(None, 1, 0), (9, 1, 0), (None, 4, 48)])
def test_attention_of_a_long_prompt(window, splits, share):
    rows, slots = rows_of(Visibility.CAUSAL, [0, 100], [20, 17], 20, 100)
    check_attention(rows, slots, 1, 2, 16, window=window, cut=Tiling(16, 16, splits, share=share))


def test_a_tree_is_each_of_its_paths_read_alone():
    rows, slots = rows_of(Visibility.BITS, [20], [6], 6, 32)
    keys, values = pools(rows, slots, 1, 16, torch.float32)
    queries = tensor(6, 2, 16)
    tree = attention_.attention(queries, keys, values, rows, 0.25)
    for node in range(6):
        read, seen = rows.seen(0, None)
        at = read[seen[node]].long()
        q, k, v = queries[node][None, :, None], keys[:, at], values[:, at]
        alone = F.scaled_dot_product_attention(q, k[None].expand(-1, 2, -1, -1), v[None].expand(-1, 2, -1, -1))
        close(tree[node], alone.flatten())


def test_shares_of_a_fixed_size_make_a_drafted_chain_equal_to_plain_decoding_in_every_bit():
    past, tokens, cut = 29, 5, Tiling(16, 16, 4, share=16)
    rows, slots = rows_of(Visibility.CAUSAL, [past], [tokens], tokens, 48)
    keys, values = pools(rows, slots, 1, 16, torch.float32)
    queries = tensor(tokens, 3, 16)
    chain = attention_.attention(queries, keys, values, rows, 0.25, None, cut)
    for j in range(tokens):
        table = rows.table.clone()
        table[0, past : past + j] = rows.slots[:j]
        own = torch.cat((rows.slots[j : j + 1], ints([slots - 1] * (tokens - 1))))
        plain = Rows(table, ints([past + j]), ints([1]), own, rows.places)
        alone = torch.cat((queries[j : j + 1], queries[:1].expand(tokens - 1, -1, -1)))
        assert torch.equal(attention_.attention(alone, keys, values, plain, 0.25, None, cut)[0], chain[j])


def test_paths_list_what_each_token_sees_in_the_order_of_its_text():
    rows, _ = rows_of(Visibility.BITS, [37, 0, 12], [1, 5, 0], 5, 40)
    listed = paths_.in_order(rows).paths
    for row, tokens in enumerate(paths_.reference(rows)):
        for token, path in enumerate(tokens):
            assert torch.equal(listed[row, token, : len(path)], path)


@pytest.mark.parametrize(("sight", "window"), crossed([Visibility.CAUSAL, Visibility.BITS], [None, 2], quick=2))
def test_attention_along_paths(sight, window):
    rows, slots = rows_of(sight, [37, 0, 12], [1, 5, 0], 5, 40)
    check_attention(paths_.in_order(rows), slots, 2, 3, 16, window=window, cut=Tiling(16, 16, 4, share=16))


def test_shares_of_wide_heads_are_joined_by_columns():
    rows, slots = rows_of(Visibility.CAUSAL, [37, 0], [1, 2], 2, 40)
    check_attention(paths_.in_order(rows), slots, 1, 3, 40, cut=Tiling(16, 16, 3, share=16))


@pytest.mark.parametrize("window", [None, 9])
def test_one_program_joins_all_shares_of_a_prompt_as_many_programs_do(window):
    """Small shares first, then larger ones; a token is read alone, and among others that one program has together."""
    tokens, past = 6, 61
    rows, slots = rows_of(Visibility.CAUSAL, [past, 3], [tokens, 2], tokens, 80)
    keys, values = tensor(2, slots, 16), tensor(2, slots, 16)
    queries = tensor(2 * tokens, 4, 16)
    shares = {"share": 32, "early": 2, "small": 1}
    together = attention_.attention(queries, keys, values, rows, 0.25, window, Tiling(32, 16, 1, joins=True, **shares))
    for row, count in ((0, tokens), (1, 2)):
        for j in range(count):
            n = row * tokens + j
            before = int(rows.past[row])
            table = rows.table[row : row + 1].clone()
            table[0, before : before + j] = rows.slots[row * tokens : n]
            alone = Rows(table, ints([before + j]), ints([1]), rows.slots[n : n + 1], rows.places[n : n + 1])
            cut = Tiling(16, 16, 4, **shares)
            one = attention_.attention(queries[n : n + 1], keys, values, alone, 0.25, window, cut)
            assert torch.equal(one[0], together[n])
    check_attention(rows, slots, 2, 2, 16, window=window, cut=Tiling(32, 16, 1, joins=True, **shares))


def test_some_rows_of_a_batch_are_the_same_rows_alone():
    rows, slots = rows_of(Visibility.BITS, [37, 5, 12], [1, 5, 3], 5, 40)
    rows = paths_.in_order(rows)
    keys, values = pools(rows, slots, 1, 16, torch.float32)
    queries, cut = tensor(15, 3, 16), Tiling(16, 16, 4, share=16)
    whole = attention_.attention(queries, keys, values, rows, 0.25, None, cut)
    for row in range(3):
        alone = attention_.attention(
            queries[5 * row : 5 * row + 5], keys, values, rows.part(row, row + 1), 0.25, None, cut
        )
        assert torch.equal(alone, whole[5 * row : 5 * row + 5])


def test_paths_make_a_drafted_tree_equal_to_plain_decoding_in_every_bit():
    tokens, cut = 6, Tiling(16, 16, 4, share=16)
    rows, slots = rows_of(Visibility.BITS, [29], [tokens], tokens, 48)
    keys, values = pools(rows, slots, 1, 16, torch.float32)
    queries, clear = tensor(tokens, 3, 16), int(rows.clear[0])
    tree = attention_.attention(queries, keys, values, paths_.in_order(rows), 0.25, None, cut)
    for j, path in enumerate(paths_.reference(rows)[0]):
        table, place = rows.table.clone(), int(rows.places[j])
        table[0, clear:place] = path[:-1]
        plain = paths_.in_order(Rows(table, ints([place]), ints([1]), path[-1:], ints([place])))
        assert torch.equal(attention_.attention(queries[j : j + 1], keys, values, plain, 0.25, None, cut)[0], tree[j])


# ---- queries and keys, norms, gates


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [None, False, True])
@pytest.mark.parametrize("width", [64, 80])
def test_rope(dtype, wide, width):
    heads, kv_heads, n, slots = 6, 2, 5, 12
    rotary = Rotary(torch.rand(width // 2, device=DEVICE), 1.0, dtype)
    angles = torch.arange(64, device=DEVICE)[:, None].float() * rotary._frequencies
    norm = None if wide is None else tensor(heads + kv_heads, width, dtype=torch.float32 if wide else dtype)
    qkv = tensor(n, 2 * (heads + 2 * kv_heads) * width, dtype=dtype)[:, : (heads + 2 * kv_heads) * width]
    places, where = ints([0, 63, 7, 9, 9]), ints([3, 0, 7, 11, 11])  # two of them are padding
    ours, theirs = ([torch.full((kv_heads, slots, width), 7.0, device=DEVICE, dtype=dtype) for _ in "kv"] for _ in "ot")
    given = qkv, norm, 1e-6, angles.cos(), angles.sin(), places, where
    queries = rope_.rope(*given, *ours)
    close(queries, rope_.reference(*given, *theirs), dtype)
    for pool, pool_ in zip(ours, theirs, strict=True):
        close(pool[:, :-1], pool_[:, :-1], dtype)
        assert (pool[:, [1, 2, 4, 5, 6, 8, 9, 10]] == 7).all()
    heads_of = qkv.view(n, -1, width)[:, :heads]
    if norm is not None:
        heads_of = rms(heads_of, norm[:heads], 1e-6)
    close(queries, turn(heads_of, *rotary.at(places, 63)), dtype)


@pytest.mark.parametrize("pairs", [0, 3, 8])
def test_what_does_not_turn_is_left_as_it_is(pairs):
    qkv, where = tensor(3, 4 * 16), ints([0, 1, 2])
    angles = torch.rand(64, pairs, device=DEVICE)
    ours, theirs = ([torch.zeros(1, 4, 16, device=DEVICE) for _ in "kv"] for _ in "ot")
    given = qkv, None, 1e-6, angles.cos(), angles.sin(), ints([0, 63, 7]), where
    queries = rope_.rope(*given, *ours)
    close(queries, rope_.reference(*given, *theirs))
    close(ours[0], theirs[0])
    assert torch.equal(queries[..., 2 * pairs :], qkv.view(3, 4, 16)[:, :2, 2 * pairs :])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dim", [16, 576])
def test_norms(dtype, wide, dim):
    x, added = tensor(5, dim, dtype=dtype), tensor(5, dim, dtype=dtype)
    weight, after = (tensor(dim, dtype=torch.float32 if wide else dtype) for _ in range(2))
    close(norm_.rms(x, weight, 1e-5), rms(x, weight, 1e-5))
    close(norm_.rms(x, weight, 1e-5), norm_.rms_reference(x, weight, 1e-5))
    for behind in (None, after):
        ours = norm_.add_rms(x, added, weight, 1e-5, behind)
        for one, other in zip(ours, norm_.add_rms_reference(x, added, weight, 1e-5, behind), strict=True):
            close(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [gate_.SILU, gate_.GELU])
def test_gates(dtype, activation):
    both = 20 * tensor(3, 2 * 1100, dtype=dtype)
    close(gate_.gate(both, activation), gate_.reference(both, activation))


# ---- products


def check_linear(n, depth, width, dtype, cut, *, bias=False, norm=False, adds=False, activation=None):
    x = tensor(n, depth, dtype=dtype)
    weight = tensor(2 * width if activation else width, depth, dtype=dtype) * depth**-0.5
    given = {
        "bias": tensor(weight.shape[0], dtype=dtype) if bias else None,
        "norm": tensor(depth, dtype=dtype) if norm else None,
        "eps": 1e-5,
        "residual": tensor(n, width, dtype=dtype) if adds else None,
        "activation": activation,
    }
    out = torch.full((n, width), NAN, device=DEVICE, dtype=torch.float32)
    assert linear_.linear(x, weight, out=out, cut=cut, **given) is out
    close(out, linear_.reference(x, weight, **given), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "rows"), [(1, 1), (1, 16), (3, 16), (17, 32), (21, 16)])
@pytest.mark.parametrize("splits", [1, 3])
def test_products(dtype, n, rows, splits):
    cut = Tile(rows, 16, 32, splits, norms=True)
    check_linear(n, 100, 37, dtype, cut)
    check_linear(n, 100, 37, dtype, cut, bias=True, norm=True, adds=True)
    check_linear(n, 100, 37, dtype, cut, activation="silu")
    check_linear(n, 100, 37, dtype, cut, bias=True, norm=True, activation="gelu_tanh")


@pytest.mark.parametrize("cut", [Tile(16, 16, 32, turned=True), Tile(16, 16, 32, 2, norms=True, turned=True), LIBRARY])
def test_products_the_other_way_round_and_by_the_library(cut):
    check_linear(3, 100, 37, torch.float16, cut, bias=True, norm=True, adds=True)
    check_linear(3, 100, 37, torch.float16, cut, norm=True, activation="silu")


@pytest.mark.parametrize("n", [1, 2, 64, 70])
def test_products_cut_by_the_rule(n):
    check_linear(n, 96, 80, torch.float16, None, norm=True, adds=True)
    check_linear(n, 96, 80, torch.float16, None, norm=True, activation="silu")


def test_a_residual_may_be_overwritten():
    x, weight, residual = tensor(3, 64), tensor(48, 64), tensor(3, 48)
    theirs = linear_.reference(x, weight, residual=residual)
    close(linear_.linear(x, weight, residual=residual, out=residual, cut=Tile(16, 16, 32, 2)), theirs)


@pytest.mark.parametrize(("width", "depth"), [(576, 576), (960, 576), (6144, 4096), (128256, 4096)])
@pytest.mark.parametrize("n", [1, 8, 33])
def test_every_cut_makes_whole_tiles(width, depth, n):
    for dtype in (torch.float32, torch.bfloat16):
        chosen = cut_for(width, depth, n, dtype, False)
        assert chosen == LIBRARY or chosen.rows >= n
    for cut in cuts(width, depth, n, False):
        if cut == LIBRARY:
            continue
        assert cut.rows >= n
        assert all(math.log2(size).is_integer() for size in (cut.rows, cut.block, cut.step, cut.warps))
        assert cut.rows == 1 or cut.at_once or (cut.block >= 16 and cut.step >= 16)  # what tensor cores take


# ---- verdicts


def drafted_trees(vocab, each, shapes, temperatures, chain=False):
    """Trees of drafted tokens that are often right, as the rules and as the kernels take them."""
    logits = 3 * tensor(len(shapes) * each, vocab)
    drafts = logits.roll(1, 0) + tensor(*logits.shape)
    tokens, parents, cases = [], [], []
    for row, (size, t) in enumerate(zip(shapes, temperatures, strict=True)):
        first, tree = row * each, NOTHING
        warp = Temperature(t)
        laws = [Law(line) for line in logits[first : first + each].cpu()]
        prefix = Prefix.of((5, 6, 7), warp)
        for node in range(size - 1):
            under = node - 1 if chain else random.randrange(-1, node)
            law = Law(drafts[first + node + 1].cpu()).temper(t) if chain else laws[under + 1]
            likely = prefix.shape(laws[under + 1]).invert(random.random())
            drawn = Drawn(law.invert(random.random()), law) if chain else Drawn(likely, Law.point(likely, law))
            tree, _ = tree.grow(drawn, under)
        scored = Scored(tree, prefix, laws[0], laws[1:])
        tokens += [0, *(d.token for d in tree.drawn)] + [0] * (each - size)
        parents += [-1, *(p + 1 for p in tree.parent)] + [-1] * (each - size)
        cases.append(scored)
    shape = ints(tokens), ints(parents), ints([0] * len(shapes)), ints(shapes)
    return logits, drafts, shape, torch.tensor(temperatures, device=DEVICE), cases


def numbers(cases, each, role, under=0):
    """The noise of a role for every token of a batch; of the node above it for `under` 1."""
    found = []
    for scored in cases:
        above = [ROOT, *scored.tree.parent]
        nodes = [(above[j] if under else j - 1) for j in range(len(scored.tree) + 1)]
        found += [Philox(7).uniform(scored.at(role, node)) for node in nodes] + [0.5] * (each - len(nodes))
    return torch.tensor(found, dtype=torch.float64, device=DEVICE)


def check_verdicts(ours, theirs, rule, cases):
    for row, scored in enumerate(cases):
        verdict = rule(scored, Philox(7))
        path = [ROOT, *scored.tree.path(verdict.node)]
        texts = [*scored.tree.tokens(path[1:]), verdict.token]
        for found in (ours, theirs):
            assert (int(found.nodes[row]) - 1, int(found.tokens[row])) == verdict
            assert int(found.lengths[row]) == len(path)
            logprobs = [
                [scored.raw(node).logprob(x), scored.law(node).logprob(x)] for node, x in zip(path, texts, strict=True)
            ]
            close(found.logprobs[row, : len(path)].cpu(), torch.tensor(logprobs))
            assert found.logprobs[row, len(path) :].isnan().all()


@pytest.mark.parametrize("vocab", [3, 4100])
@pytest.mark.parametrize("rule", [greedy, sample_match])
def test_verify_is_the_rule_on_the_device(vocab, rule):
    temperatures = [0.0] * 3 if rule is greedy else [1.0, 0.6, 1.3]
    logits, _, (tokens, parents, roots, count), t, cases = drafted_trees(vocab, 5, [5, 1, 4], temperatures)
    given = logits, tokens, parents, roots, count, t, numbers(cases, 5, Role.PICK)
    check_verdicts(verify_.verify(*given), verify_.reference(*given), rule, cases)


def test_verify_tells_where_scores_are_broken():
    """NaN after the text, or after a token that stands, is told; NaN after a token that falls is nobody's business."""
    logits = torch.zeros(3 * 3, 5, device=DEVICE)
    logits[0::3, 2] = logits[1::3, 3] = 9.0
    logits[0, 1], logits[4, 4], logits[8, 0] = NAN, float("inf"), NAN
    tokens, parents = ints([0, 2, 4] * 3), ints([-1, 0, 0] * 3)
    heat, noise = torch.zeros(3, device=DEVICE), torch.zeros(9, dtype=torch.float64, device=DEVICE)
    found = verify_.verify(logits, tokens, parents, ints([0] * 3), ints([3] * 3), heat, noise)
    assert found.tokens.tolist() == [-1, -1, 3]
    assert found.nodes.tolist() == [0, 1, 1]


@pytest.mark.parametrize("vocab", [11, 4100])
@pytest.mark.parametrize("chosen", [False, True])
def test_reject_is_the_rule_on_the_device(vocab, chosen):
    logits, drafts, (tokens, _, roots, count), t, cases = drafted_trees(
        vocab, 4, [4, 1, 3], [1.0, 0.6, 1.3], chain=True
    )
    if chosen:
        cases = [
            Scored(
                Tree(tuple(Drawn(d.token, Law.point(d.token, d.law)) for d in s.tree.drawn), s.tree.parent),
                s.prefix, s.raw_root, s.raw_after,
            )
            for s in cases
        ]  # fmt: skip
    coins, uniforms = numbers(cases, 4, Role.ACCEPT, under=1), numbers(cases, 4, Role.RESIDUAL)
    given = logits, None if chosen else drafts, tokens, roots, count, t, coins, uniforms
    check_verdicts(reject_.reject(*given), reject_.reference(*given), rejection, cases)


def test_picks_at_every_point_of_the_unit_interval():
    logits, count = 3 * tensor(1, 11), ints([24])
    logits[0, [0, 5, 10]] = float("-inf")  # at both ends too, where rounding would look for a token
    uniforms = torch.linspace(0, 1, 24, dtype=torch.float64, device=DEVICE)  # 1: what a number below it may round to
    for t in (1.0, 0.0):
        given = logits.expand(24, -1).contiguous(), torch.tensor([t], device=DEVICE), uniforms, count
        ours, theirs = pick_.pick(*given), pick_.reference(*given)
        assert torch.equal(ours[0], theirs[0])
        close(ours[1], theirs[1])


def test_the_best_of_equals_is_the_first_and_bad_scores_show():
    logits = torch.zeros(3, 4100, device=DEVICE)
    logits[1, 7] = NAN
    logits[2] = float("-inf")
    picks, logprobs = pick_.pick(
        logits, torch.zeros(1, device=DEVICE), torch.zeros(3, dtype=torch.float64, device=DEVICE), ints([3])
    )
    assert int(picks[0]) == 0
    assert logprobs[1, 0].isnan()
    assert (logprobs[2] == float("-inf")).all()  # nothing is possible, and nothing is broken
    assert ((picks >= 0) & (picks < 4100)).all()
