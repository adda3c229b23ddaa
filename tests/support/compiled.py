"""Compiles kernels for an H100 or H200 without having one: what Triton's interpreter lets pass shows here.

Run as a program, without TRITON_INTERPRET: the kernels of warps, of a trained drafter and of families, as launched.
"""

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.language import bfloat16, float16

from unspool.kernels import (
    advance,
    alone,
    amend,
    attention,
    attention_join,
    chunked,
    delta_net,
    draft_states,
    edit,
    expert_answers,
    few_tokens,
    fewbits,
    gated_norm,
    grouped,
    grow,
    likely,
    linear,
    mamba,
    many_tokens,
    pick,
    prefix_attention,
    prompt_attention,
    report,
    rope,
    route,
    short_convolution,
    spine,
    tile,
    top,
    truncate,
    verify,
)

HOPPER = GPUTarget("cuda", 90, 32)
REAL, WHOLE, LONG, DOUBLE, HALF, BYTE = "*fp32", "*i32", "*i64", "*fp64", "*bf16", "*u8"


def made(kernel, pointers, constants, warps, **options):
    """Compile a kernel whose other arguments are whole numbers."""
    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in names}
    given = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=given)
    compile(source, target=HOPPER, options={"num_warps": warps, **options})
    print(kernel.__name__)


def main():
    step = {"chained": True}
    weighed = dict.fromkeys(("tops", "temperature", "bars", "logprobs"), REAL) | {"raw": DOUBLE, "warm": DOUBLE}
    for scores in (HALF, REAL):
        found = dict.fromkeys(("near", "floors", "floor", "tops", "maxima"), REAL) | {"masses": DOUBLE}
        rows = found | {"scores": scores, "temperature": REAL, "cuts": DOUBLE, "count": WHOLE, "bars": REAL}
        sizes = {"wide": truncate.CUTS, "block": truncate.BLOCK, "small": likely.GROUP * likely.MOST, "lanes": 16}
        made(truncate._truncate, rows, step | sizes, 16, enable_fp_fusion=False)
        made(likely._survey, rows, step | {"group": likely.GROUP, "block": likely.CHUNK}, 8)
        sizes = {"group": likely.GROUP, "most": likely.MOST, "each": likely.EACH, "at_once": likely.AT_ONCE}
        made(likely._gather, rows, step | sizes, 4)
        own = weighed | {"logits": scores, "count": WHOLE, "bests": WHOLE, "uniforms": DOUBLE, "picks": WHOLE}
        made(pick._weigh, own, step | {"barred": True, "block": pick.CHUNK}, 8)
        made(pick._pick, own, step | {"barred": True, "block": pick.CHUNK, "lanes": 16}, 8)
    listed = dict.fromkeys(edit._edit.arg_names, WHOLE) | {"logits": HALF, "out": REAL, "penalties": REAL}
    numbers = dict.fromkeys(("tokens", "vocab", "length", "stride", "octets"), "i32")
    shape = {"wide": edit.SCOPE, "masks": True, "block": edit.CHUNK, "span": edit.SPAN}
    for tree in (False, True):
        pointers = listed | {"biases": REAL, "bits": BYTE} | numbers
        made(edit._edit, pointers, step | shape | {"tree": tree}, 8, enable_fp_fusion=False)
    noted = weighed | dict.fromkeys(("picked", "best", "turn", "tokens"), WHOLE)
    told = noted | {"logits": HALF, "after": REAL, "values": REAL}
    made(report._report, told, step | {"k": 5, "wide": 8, "lanes": 16}, 1)
    drafts = dict.fromkeys(("picks", "drafted", "parents", "roots", "count", "packed"), WHOLE)
    made(verify._follow, drafts | {"logprobs": REAL, "floats": REAL}, step | {"block": 8}, 1)
    moving = dict.fromkeys(advance._advance.arg_names, WHOLE) | {"logprobs_in": REAL, "logprobs": REAL, "steps": "i32"}
    made(advance._advance, moving, step | {"rows": 32, "block": 32}, 1)
    ranked = dict.fromkeys(("picked", "best", "turn", "ranks"), WHOLE) | {"logprobs": REAL, "values": REAL}
    made(amend._rank, ranked, step | {"k": 8, "wide": 8}, 1)
    moved = dict.fromkeys(amend._amend.arg_names, WHOLE) | {"rows": "i32", "length": "i32"}
    for remembers in (False, True):
        made(amend._amend, moved, step | {"remembers": remembers, "block": 32}, 1)
    drafting(step)
    families(step)
    recurrent(step)


def drafting(step):
    """The kernels of a trained drafter inside a step."""
    back = dict.fromkeys(("table", "lanes", "past", "slots", "parents", "places", "before"), WHOLE) | {
        "states": HALF,
        "out": HALF,
    }
    for tree in (False, True):
        made(draft_states._look_back, back, step | {"block": 1024, "tree": tree}, 4)
    words = dict.fromkeys(("embedding", "states", "word_norm", "state_norm", "both", "kept"), HALF)
    words |= {"tokens": WHOLE, "source": WHOLE, "eps": "fp32"}
    norms = {"norms_words": True, "norms_states": True, "word_block": 1024, "state_block": 1024}
    for sourced in (False, True):
        odd = {"sourced": sourced, "words_first": sourced, "keeps": 1 + sourced}
        made(draft_states._pair, words, step | norms | odd, 4)
    laid = dict.fromkeys(("table", "lanes", "past", "tally", "out", "places", "pasts", "count"), WHOLE)
    made(spine._lay, laid, step | {"depth": 5, "wide": 8, "kids": 4, "block": spine.BLOCK}, 4)
    level = dict.fromkeys(("guesses", "picks", "nodes", "past", "line", "tokens", "above", "follow"), WHOLE)
    level |= {"line_out": WHOLE, "keys": WHOLE}
    level |= dict.fromkeys(("values", "heat", "reaches", "reaches_out"), REAL)
    for kids, odd in ((1, False), (4, True)):
        shape = {"kids": kids, "k": 8, "wide": 8, "first": not odd, "mapped": odd, "drawn": odd}
        made(spine._expand, level | {"ids": LONG if odd else WHOLE}, step | shape, 1)
    laws = {"known": LONG, "laws": WHOLE, "weights": REAL}
    told = dict.fromkeys(("guesses", "drafted", "texts", "lanes", "past", "count", "tags", "tokens_out"), WHOLE)
    for mapped in (False, True):
        given = told | laws | {"values": REAL, "weights_out": REAL, "ids": LONG if mapped else WHOLE}
        given |= dict.fromkeys(("picks", "words", "above", "follow", "follow_out"), WHOLE) | {"heat": REAL}
        made(spine._blend, given, step | {"kids": 4, "k": 8, "mapped": mapped, "drawn": mapped}, 1)
    tree = "drafted parents places sees key_places count tally past clear lanes tags matches texts ahead follow"
    grown = dict.fromkeys(tree.split(), WHOLE) | laws | {"odds": REAL}
    made(grow._grow, grown, step | {"tokens": 16, "words": 1, "windowed": False, "drafts": 20}, 1)
    found = {"scores": HALF, "found": LONG, "sums": REAL, "values": REAL, "tokens": WHOLE}
    made(top._select, found, step | {"k": 8, "block": top.CHUNK, "weighed": True}, 8)
    made(top._merge, found, step | {"k": 8, "lanes": 32, "parts": 4, "weighed": True}, 1)


def families(step):
    """What layers have beside a plain Llama's: partial turns, capped scores, sinks, chunks, experts, few bits."""
    pools = dict.fromkeys(("queries", "keys", "values", "sinks", "out"), HALF) | {"parts": REAL, "stats": REAL}
    rows = "table past_of count_of clear_of slots places sees key_places paths"
    seen = pools | dict.fromkeys(rows.split(), WHOLE) | {"scale": "fp32", "cap": "fp32"}
    for width, group, fixed in ((64, 4, True), (576, 16, False)):
        padded = 1 << (width - 1).bit_length()
        shape = {"words": 1, "group": group, "lines": group, "width": width, "padded": padded, "rows": 16, "step": 32}
        shape |= {"whole": False, "share": 128 if fixed else 0, "early": 16 if fixed else 0, "small": 1}
        shape |= {"sight": 0, "windowed": True, "listed": False, "joins": False, "late": 2}
        odd = {"capped": True, "chunked": width == 64, "sinking": True}
        made(attention._attend, seen, step | shape | odd, 4, num_stages=2, enable_fp_fusion=False)
        joined = {"width": width, "padded": padded, "sinking": True}
        made(attention_join._join, seen, step | joined | {"lanes": 16}, 4)
        made(attention_join._join_in_order, seen, step | joined | {"at_once": 8}, 2)
    shape = {"group": 3, "width": 64, "padded": 64, "rows": 64, "step": 64, "early": 16, "share": 4, "late": 2}
    made(
        prompt_attention._prompt,
        seen,
        step | shape | {"steady": True},
        4,
        num_stages=2,
        enable_fp_fusion=False,
    )
    shape = {"group": 3, "width": 64, "padded": 64, "step": 64, "early": 16, "size": 4, "late": 2}
    for rows, warps in (prefix_attention.SMALL, prefix_attention.LARGE):
        made(prefix_attention._prefix, seen, step | shape | {"rows": rows}, warps, enable_fp_fusion=False)
    for listed in (False, True):
        odd = {"lines": 16, "listed": listed, "at_once": prefix_attention.AT_ONCE}
        made(prefix_attention._rest, seen, step | shape | odd, prefix_attention.REST_WARPS, enable_fp_fusion=False)
    turning = dict.fromkeys(("qkv", "norm", "queries", "keys", "values"), HALF) | {"eps": "fp32"}
    turning |= {"cos": REAL, "sin": REAL, "places": WHOLE, "slots": WHOLE}
    shape = {"heads": 8, "kv_heads": 2, "width": 128, "half": 64, "pairs": 32, "block": 4, "normed": True}
    made(rope._rope, turning, step | shape, 1)
    judged = {"x": HALF, "norm": HALF, "weight": REAL, "bias": REAL, "out": REAL, "kept": HALF, "eps": "fp32"}
    shape = {"together": 16, "block": 4, "step": 2048, "normed": True, "has_bias": True}
    for whole in (False, True):
        made(route._score, judged, step | shape | {"whole": whole}, 4)
    told = {"scores": REAL, "bias": REAL, "chosen": WHOLE, "weights": REAL, "scale": "fp32"}
    best = {"active": 8, "slots": 8, "lanes": 128, "normed": True, "biased": True}
    made(route._choose, told, step | best | {"softmax": True}, 1)
    sorted_ = {"chosen": WHOLE, "order": WHOLE, "ends": WHOLE}
    made(route._arrange, sorted_, step | {"piece": 64, "lanes": 128}, 4)
    product = dict.fromkeys(("x", "weight", "bias", "out"), HALF) | {"ends": WHOLE, "order": WHOLE, "factors": REAL}
    for rows, activation in ((16, grouped.SILU), (64, grouped.CLAMPED)):
        shape = {"rows": rows, "block": 32, "step": 128, "lanes": 128, "listed": rows == 16, "takes": True}
        shape |= {"puts": False, "gates": True, "activation": activation, "has_bias": True, "weighs": True}
        shape |= {"turned": rows == 16, "soon": rows == 16}
        made(grouped._grouped, product, step | shape, 4, num_stages=3)
    said = dict.fromkeys(("bent", "weight", "bias", "beside", "residual", "out"), HALF)
    said |= {"chosen": WHOLE, "factors": REAL}
    shape = {"active": 8, "slots": 8, "block": 16, "step": 128, "wide": 16, "has_bias": True, "more": True}
    made(expert_answers._answer, said, step | shape | {"adds": True, "weighs": True, "ahead": 4}, 4, num_stages=4)
    sums = dict.fromkeys(("answers", "beside", "residual", "out"), HALF) | {"weights": REAL}
    made(grouped._combine, sums, step | {"active": 8, "block": 512, "adds": True, "more": True, "weighs": True}, 4)
    few_bits(step)
    dense(step)


def few_bits(step):
    """Weights of 4 and 8 bits, for one token, few and many."""
    given = dict.fromkeys(("bias", "residual", "out"), HALF) | {"x": WHOLE, "weight": WHOLE, "scale": REAL}
    for kind, some, bits in ((bfloat16, 1, 4), (float16, 4, 4), (float16, 1, 8), (bfloat16, 4, 8)):
        shape = {"kind": kind, "some": some, "bits": bits, "size": fewbits.WORDS[bits], "tiles": 1, "warps": 2}
        shape |= {"ahead": 2, "silu": True, "has_bias": False, "zeros": some == 4}
        shape |= {"gates": some == 1, "adds": some == 4, "even": some == 1, "packs": True}
        for floats in (False, True)[: bits // 4]:
            odd = {"floats": floats, "blocks": floats and some == 1}
            made(fewbits._product, given, step | shape | odd, 2, num_stages=1)
    shape = {"kind": bfloat16, "zeros": True, "size": 160, "warps": 2, "ahead": 1, "gates": True}
    shape |= {"silu": True, "has_bias": False, "adds": False, "even": False, "packs": True}
    made(alone.one_token, given, step | shape, 2, num_stages=1)


def dense(step):
    """Small products whose pieces are summed apart, for one token and for many."""
    given = dict.fromkeys(("x", "weight", "bias", "norm", "residual", "out"), HALF) | {"eps": "fp32"}
    given |= {"scale": REAL, "parts": REAL}
    turning = {"cos": REAL, "sin": REAL, "places": WHOLE, "slots": WHOLE, "keys": HALF, "values": HALF}
    split = {"block": 16, "step": 128, "chunks": 4, "tokens": 8, "wide": 32, "ahead": 4, "has_bias": True, "adds": True}
    made(chunked._chunked, given, step | split, 4, num_stages=4)
    for gates in (False, True):
        around = {"step": 128, "gates": gates, "silu": True, "has_bias": False, "adds": not gates}
        for tokens, block, warps in ((1, 4, 4), (8, 4, 4), (16, 8, 8)):
            few = {"block": block, "tokens": tokens, "pieces": 5, "lanes": 8, "wide": max(16, 8 * tokens)}
            few |= {"normed": True, "scaling": False, "heads": 9, "kv_heads": 3, "head_width": 64, "pairs": 32}
            for turns in (False, True)[: 1 if gates else 2]:
                made(few_tokens._few_tokens, given | turning, step | around | few | {"turns": turns}, warps)
        many = {"rows": 64, "block": 16, "splits": 1, "normed": False, "scaled": False, "chunks": 1, "turned": False}
        made(linear._few, given, step | around | many | {"apart": True, "ahead": 8}, 4, num_stages=4)
        cut = tile.APART[gates]
        tiles = {"tokens": cut.rows, "weights": cut.block, "others": cut.block}
        described = {name: f"tensordesc<bf16[{lines}, {cut.step}]>" for name, lines in tiles.items()}
        shape = {"rows": cut.rows, "block": cut.block, "piece": tile.PIECE, "apart": True, "stages": cut.stages}
        made(
            many_tokens._many_tokens,
            given | described,
            step | around | shape | {"step": cut.step},
            cut.warps,
            num_stages=cut.stages,
        )


def recurrent(step):
    """Layers that carry a state from token to token."""
    followed = dict.fromkeys(("before", "into", "count"), WHOLE)
    given = followed | dict.fromkeys(("x", "weight", "bias", "times", "states", "out"), HALF)
    shape = {"size": 4, "block": 256, "has_bias": True, "silu": True, "gates": True}
    made(short_convolution._convolve, given, step | shape, 4)
    wide = followed | dict.fromkeys(("decay", "shift", "skip", "states"), REAL) | {"mixed": HALF}
    shape = {"keys": 128, "lanes": 128, "block": 16}
    given = wide | {"ba": HALF, "out": HALF, "scale": "fp32"}
    made(delta_net._delta, given, step | shape | {"group": 2, "width": 128, "all_keys": 2048}, delta_net.WARPS)
    given = wide | {"dt": HALF, "out": REAL, "least": "fp32", "most": "fp32"}
    made(mamba._mamba, given, step | shape | {"share": 16, "width": 64, "inner": 4096, "groups": 4}, mamba.WARPS)
    given = {"y": REAL, "z": HALF, "weight": HALF, "out": HALF, "eps": "fp32"}
    for early in (False, True):
        made(gated_norm._gated_norm, given, step | {"block": 4096 if early else 128, "early": early}, 4)


if __name__ == "__main__":
    main()
