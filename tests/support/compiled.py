"""Compiles kernels for an H100 or H200 without having one: what Triton's interpreter lets pass shows here.

Run as a program, without TRITON_INTERPRET: the kernels of warps and of a trained drafter, as steps launch them.
"""

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from unspool.kernels import advance, amend, draft_states, edit, grow, pick, report, spine, top, truncate, verify

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
        rows = {"scores": scores, "temperature": REAL, "cuts": DOUBLE, "count": WHOLE, "bars": REAL}
        made(
            truncate._truncate,
            rows,
            step | {"wide": truncate.CUTS, "block": truncate.BLOCK},
            32,
            enable_fp_fusion=False,
        )
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


def drafting(step):
    """The kernels of a trained drafter inside a step."""
    back = dict.fromkeys(("table", "lanes", "past", "slots", "parents"), WHOLE) | {"states": HALF, "out": HALF}
    for tree in (False, True):
        made(draft_states._look_back, back, step | {"block": 1024, "tree": tree}, 4)
    words = dict.fromkeys(("embedding", "states", "word_norm", "state_norm", "both", "normed"), HALF) | {
        "tokens": WHOLE
    }
    norms = {"norms_words": True, "norms_states": True, "keeps": True, "word_block": 1024, "state_block": 1024}
    for mapped in (False, True):
        given = words | {"ids": LONG if mapped else WHOLE, "eps": "fp32"}
        made(draft_states._pair, given, step | norms | {"mapped": mapped, "words_first": mapped}, 4)
    laid = dict.fromkeys(("table", "lanes", "past", "tally", "chain", "out", "places", "pasts", "count"), WHOLE)
    made(spine._lay, laid, step | {"depth": 5, "wide": 8, "block": spine.BLOCK}, 4)
    laws = {"known": LONG, "laws": WHOLE, "weights": REAL}
    told = dict.fromkeys(("guesses", "drafted", "texts", "lanes", "past", "count", "tags", "tokens_out"), WHOLE)
    for mapped in (False, True):
        given = told | laws | {"values": REAL, "weights_out": REAL, "ids": LONG if mapped else WHOLE}
        given |= {"chain": WHOLE, "heat": REAL}
        made(spine._blend, given, step | {"k": 8, "mapped": mapped, "drawn": mapped}, 1)
    tree = "drafted parents places sees key_places count tally past clear lanes tags matches texts ahead"
    grown = dict.fromkeys(tree.split(), WHOLE) | laws | {"odds": REAL}
    made(grow._grow, grown, step | {"tokens": 16, "words": 1, "windowed": False, "depth": 5}, 1)
    found = {"scores": HALF, "found": LONG, "sums": REAL, "values": REAL, "tokens": WHOLE}
    made(top._select, found, step | {"k": 8, "block": top.CHUNK, "weighed": True}, 8)
    made(top._merge, found, step | {"k": 8, "lanes": 32, "parts": 4, "weighed": True}, 1)


if __name__ == "__main__":
    main()
