"""Edits of scores on the device: biases, penalties and prohibitions, each row by its own, at its own prefix."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from ..core.warp.forbid import without
from .draft_chain import chained, start, wait

CHUNK = 4096  # scores per program
SPAN = 1024  # tokens of a text, or entries of a list, at a time
PENALTIES = 3  # numbers per row: repetition, frequency, presence
NO_PENALTY = (1.0, 0.0, 0.0)
SCOPE = 8  # numbers per row: prompt, ngram, first and last bias, first and last strike, longest head, masked
ALWAYS = 2**31 - 1  # the length of a text up to which a strike holds that always does


@dataclass(frozen=True)
class Edits:
    """What is changed in each of R rows; the lists of all rows stand one after the other.

    penalties [R, 3] float32, applied to the tokens of the text; scope [R, 8] int32: how long the prompt is, whose
    tokens count for the repetition penalty alone; n, if no n-gram may repeat; from where to where the row's biases and
    its strikes stand; the longest head among these; and whether only the tokens are left whose bits are set in `bits`
    [n, ⌈vocab/8⌉], uint8, bit i of byte j for token 8·j + i. A bias adds `biases` to the score of `biased`. A strike
    forbids token `struck` while the text has fewer than `until` tokens, if it ends in the `sizes` tokens of `heads`
    from `starts` on.
    """

    penalties: Tensor
    scope: Tensor
    biased: Tensor
    biases: Tensor
    struck: Tensor
    until: Tensor
    starts: Tensor
    sizes: Tensor
    heads: Tensor
    bits: Tensor | None = None


@triton.jit
def _at(text, path, place, end, there):
    """The tokens at some places of a node's text: those of the row's, and behind its end those of the path."""
    old = tl.load(text + place, mask=there & (place >= 0) & (place < end), other=-1)
    new = tl.load(path + place - end, mask=there & (place >= end), other=-1)
    return tl.where(place < end, old, new)


@triton.jit
def _edit(
    logits, out, texts, lines, ends, drafted, parents, roots, count, paths, counts,
    penalties, scope, biased, biases, struck, until, starts, sizes, heads, bits,
    tokens, vocab, length, stride, octets, wide: tl.constexpr,
    masks: tl.constexpr, tree: tl.constexpr, block: tl.constexpr, span: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    node, chunk = tl.program_id(0), tl.program_id(1)
    row = node // tokens
    if node % tokens < tl.load(count + row):
        least = chunk * block
        x = least + tl.arange(0, block)
        line = out + node.to(tl.int64) * vocab
        score = tl.load(logits + node.to(tl.int64) * stride + x, mask=x < vocab, other=0.0).to(tl.float32)
        own = scope + row * wide
        if masks:
            byte = tl.load(bits + node.to(tl.int64) * octets + x // 8, mask=x < vocab, other=0).to(tl.int32)
            banned = ((byte >> (x % 8)) & 1) < tl.load(own + 7)  # nothing is, where the row has no mask
            score = tl.where(banned, float("-inf"), score)
        tl.store(line + x, score, mask=x < vocab)
        prompt, n = tl.load(own), tl.load(own + 1)
        repetition = tl.load(penalties + 3 * row)
        frequency, presence = tl.load(penalties + 3 * row + 1), tl.load(penalties + 3 * row + 2)
        text = texts + tl.load(lines + row).to(tl.int64) * length
        end = tl.load(ends + row)
        path = paths + node * tokens
        size = end
        if tree:  # put the path down, last token first; every chunk's program writes the same, those before a root none
            root, at = tl.load(roots + row), node % tokens
            while at > root:
                size += 1
                at = tl.load(parents + row * tokens + at)
            at, depth = node % tokens, size - end
            while at > root:
                depth -= 1
                tl.store(path + depth, tl.load(drafted + row * tokens + at))
                at = tl.load(parents + row * tokens + at)
        tl.debug_barrier()
        # biases
        for first in range(tl.load(own + 2), tl.load(own + 3), span):
            entry = first + tl.arange(0, span)
            there = entry < tl.load(own + 3)
            token = tl.load(biased + entry, mask=there, other=-1)
            there = there & (token >= least) & (token < least + block) & (token < vocab)
            old = tl.load(line + token, mask=there, other=0.0)
            tl.store(line + token, old + tl.load(biases + entry, mask=there, other=0.0), mask=there)
        # penalties
        if (repetition != 1.0) | (frequency != 0.0) | (presence != 0.0):
            own_counts = counts + node.to(tl.int64) * vocab
            for first in range(0, size, span):
                place = first + tl.arange(0, span)
                token = _at(text, path, place, end, place < size)
                there = (token >= least) & (token < least + block) & (token < vocab)
                tl.atomic_or(own_counts + token, 1, mask=there & (place < prompt), sem="relaxed", scope="cta")
                tl.atomic_add(own_counts + token, 2, mask=there & (place >= prompt), sem="relaxed", scope="cta")
            tl.debug_barrier()
            counted = tl.load(own_counts + x, mask=x < vocab, other=0, volatile=True)
            seen, made = counted, counted >> 1
            score = tl.load(line + x, mask=x < vocab, other=0.0)
            scaled = tl.where(score < 0, score * repetition, tl.div_rn(score, tl.zeros_like(score) + repetition))
            score = tl.where(seen > 0, scaled, score)
            score = tl.where(made > 0, score - frequency * made.to(tl.float32), score)
            score = tl.where(made > 0, score - presence, score)
            tl.store(line + x, score, mask=x < vocab)
        # prohibitions
        if (n > 0) & (size >= n):
            tl.debug_barrier()
            for first in range(n - 1, size, span):
                place = first + tl.arange(0, span)
                there = place < size
                for back in range(1, n):
                    last = _at(text, path, size - back + tl.zeros([span], tl.int32), end, there)
                    there = there & (_at(text, path, place - back, end, there) == last)
                token = _at(text, path, place, end, there)
                there = there & (token >= least) & (token < least + block) & (token < vocab)
                tl.store(line + token, tl.full([span], float("-inf"), tl.float32), mask=there)
        if tl.load(own + 5) > tl.load(own + 4):
            tl.debug_barrier()
            for first in range(tl.load(own + 4), tl.load(own + 5), span):
                entry = first + tl.arange(0, span)
                there = entry < tl.load(own + 5)
                token = tl.load(struck + entry, mask=there, other=-1)
                there = there & (token >= least) & (token < least + block) & (token < vocab)
                there = there & (size < tl.load(until + entry, mask=there, other=0))
                head = tl.load(starts + entry, mask=there, other=0)
                many = tl.load(sizes + entry, mask=there, other=0)
                there = there & (many <= size)
                for i in range(tl.load(own + 6)):
                    asked = there & (i < many)
                    wanted = tl.load(heads + head + i, mask=asked, other=-2)
                    same = _at(text, path, size - many + i, end, asked) == wanted
                    there = there & (same | (i >= many))
                tl.store(line + token, tl.full([span], float("-inf"), tl.float32), mask=there)


def edit(
    logits: Tensor,
    edits: Edits,
    texts: Tensor,
    lines: Tensor,
    ends: Tensor,
    count: Tensor,
    drafted: Tensor | None = None,
    parents: Tensor | None = None,
    roots: Tensor | None = None,
) -> Tensor:
    """The scores after every node [n, vocab] with each row's edits applied at the node's own prefix, float32.

    logits [n, vocab], n = R·T. texts [lines, length] holds tokens, int32; the text of row r is the first ends[r] tokens
    of line lines[r], the root among them, and that of a node below goes on with the drafted tokens on its path: a node
    stands behind its parent. What stands before the root is not asked for. Without a tree every row is one node. The
    order is that of `Settings.warp`, and every edit computes what its warp does: products and differences are float32
    and rounded one by one. count as for `pick`; padding is not written.
    Cost: logits once, and as many counts; texts once per chunk of rows that remember, from the cache of the chip; two
    launches. Tokens are counted where scores stand: a histogram of so many bins took ten times as long.
    """
    n, vocab = logits.shape
    out = torch.empty(n, vocab, dtype=torch.float32, device=logits.device)
    each, tree = n // count.shape[0], parents is not None
    paths = torch.empty(n, each, dtype=torch.int32, device=logits.device)
    counts = torch.zeros(n, vocab, dtype=torch.int32, device=logits.device)  # twice what was made, odd if also given
    drafted, parents, roots = (lines if given is None else given for given in (drafted, parents, roots))
    block, chain = min(CHUNK, triton.next_power_of_2(vocab)), chained()
    _edit[(n, triton.cdiv(vocab, block))](
        logits, out, texts, lines, ends, drafted, parents, roots, count, paths, counts,
        edits.penalties, edits.scope, edits.biased, edits.biases, edits.struck, edits.until, edits.starts, edits.sizes,
        edits.heads, edits.scope if edits.bits is None else edits.bits, each, vocab, texts.shape[1], logits.stride(0),
        0 if edits.bits is None else edits.bits.shape[1], wide=SCOPE, masks=edits.bits is not None, tree=tree,
        block=block, span=SPAN, num_warps=max(1, min(8, block // 512)), chained=chain, launch_pdl=chain,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def reference(
    logits: Tensor,
    edits: Edits,
    texts: Tensor,
    lines: Tensor,
    ends: Tensor,
    count: Tensor,
    drafted: Tensor | None = None,
    parents: Tensor | None = None,
    roots: Tensor | None = None,
) -> Tensor:
    """The same, node by node and token by token; padding is zero."""
    n, vocab = logits.shape
    each, out = n // count.shape[0], torch.zeros(n, vocab)
    for node in range(n):
        row, at = divmod(node, each)
        if at >= int(count[row]):
            continue
        path: list[int] = []
        while drafted is not None and parents is not None and roots is not None and at > int(roots[row]):
            path.insert(0, int(drafted[row * each + at]))
            at = int(parents[row * each + at])
        text = texts[int(lines[row]), : int(ends[row])].tolist() + path
        prompt, ngram, *spans, _, masked = edits.scope[row].tolist()
        scores = logits[node].float().cpu().clone()
        if masked and edits.bits is not None:
            allowed = (edits.bits[node].cpu()[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
            scores = torch.where(allowed.flatten()[:vocab].bool(), scores, float("-inf"))
        for entry in range(spans[0], spans[1]):
            if int(edits.biased[entry]) < vocab:
                scores[int(edits.biased[entry])] += edits.biases[entry].cpu()
        repetition, frequency, presence = edits.penalties[row].cpu()
        for token in {token for token in text if token < vocab}:
            made = text[prompt:].count(token)
            if repetition != 1:
                scores[token] = scores[token] * repetition if scores[token] < 0 else scores[token] / repetition
            if made:
                scores[token] = scores[token] - frequency * made - presence
        law = Law(scores)
        if ngram:
            grams = [text[i : i + ngram] for i in range(len(text) - ngram + 1)]
            law = without(law, {gram[-1] for gram in grams if gram[:-1] == text[len(text) - ngram + 1 :]})
        for entry in range(spans[2], spans[3]):
            first, size = int(edits.starts[entry]), int(edits.sizes[entry])
            ends_so = size <= len(text) and text[len(text) - size :] == edits.heads[first : first + size].tolist()
            if len(text) < int(edits.until[entry]) and ends_so:
                law = without(law, {int(edits.struck[entry])})
        out[node] = law.scores
    return out.to(logits.device)
