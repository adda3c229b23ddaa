"""Warps on the device against those of the host, which are their definition: the same tokens stay, at every node."""

import gc
import math
import random
import weakref
from dataclasses import replace
from functools import partial

import interpreted
import pytest
import torch
from letters import Letters
from selection import crossed

from unspool.api.settings import Settings
from unspool.core.chance import At, Philox, Role
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, ROOT
from unspool.core.warp.forbid import BadWords, Forbid, MinTokens, NoRepeatNgram
from unspool.core.warp.mask import Mask
from unspool.core.warp.penalise import Frequency, LogitBias, Presence, Repetition
from unspool.core.warp.truncate import Epsilon, Eta, MinP, TopK, TopNSigma, TopP, Typical
from unspool.core.warp.warp import Prefix, Same, Scored, Temperature, Warp
from unspool.core.warp.warp_plan import ORDER, WarpPlan, plan_of
from unspool.kernels.likely import likely
from unspool.kernels.pick import pick
from unspool.rules.constrain.bits import packed
from unspool.runtime.cuda.sampling import StepMasks
from unspool.runtime.cuda.text_lines import TextLine
from unspool.runtime.cuda.warp_stage import EACH, Shaping, WarpStage, fits

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
NEVER = -math.inf


def on_device(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def logits_of(n, vocab, seed=0, scale=3.0):
    made = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(n, vocab, generator=made)).to(torch.bfloat16).to(DEVICE)


TRUNCATIONS = {
    "top-k": TopK(5),
    "top-k of one": TopK(1),
    "top-k of all": TopK(10**6),
    "top-p": TopP(0.9),
    "top-p small": TopP(0.05),
    "top-p none": TopP(0.0),
    "top-p nearly all": TopP(0.9999),
    "min-p": MinP(0.05),
    "min-p only the best": MinP(1.0),
    "typical": Typical(0.4),
    "typical wide": Typical(0.95),
    "epsilon": Epsilon(0.02),
    "epsilon high": Epsilon(0.9),
    "eta": Eta(0.05),
    "sigma": TopNSigma(1.0),
    "sigma of none": TopNSigma(0.0),
    "top-k and top-p": TopK(20) | TopP(0.8),
    "everything": TopNSigma(2.5) | TopK(50) | TopP(0.95) | MinP(0.01) | Typical(0.9) | Epsilon(0.001) | Eta(0.01),
}


def shaped(warps, logits, prefixes, trees=None):
    """What kernels make of these rows: scores over the temperature, −∞ where a token is gone."""
    rows, nodes = len(warps), logits.shape[0] // len(warps)
    plans = [plan_of(warp) for warp in warps]
    stage = WarpStage(rows, rows, torch.device(DEVICE), logits.shape[0], logits.shape[1])
    stage.put(plans, [prefix.prompt for prefix in prefixes], [TextLine(r, r) for r in range(rows)])
    texts = torch.zeros(rows + 1, 64, dtype=torch.int32)
    for row, prefix in enumerate(prefixes):
        texts[row, : len(prefix)] = torch.tensor(prefix.text)
    heat = on_device(*(plan.temperature for plan in plans), dtype=torch.float32)
    ends, count = on_device(*map(len, prefixes)), on_device(*[nodes] * rows)
    tree = None
    if trees is not None:
        tokens = [x for tree in trees for x in (0, *(drawn.token for drawn in tree.drawn))]
        parents = [x for tree in trees for x in (-1, *(above + 1 for above in tree.parent))]
        tree = on_device(*tokens), on_device(*parents), on_device(*[0] * rows)
    masked = {row: prefixes[row] for row, plan in enumerate(plans) if plan.mask is not None}
    if masked:
        stage.make_masks()
        stage.put_masks(partial(StepMasks(masked).fill, ()))
    scores, bars = stage.shape(Shaping(True, True, 0, bool(masked)), logits, texts.to(DEVICE), ends, heat, count, tree)
    y = scores / heat.where(heat > 0, 1.0).repeat_interleave(nodes)[:, None]
    return torch.where((y < bars[:, :1]) | (y > bars[:, 1:]), NEVER, y).cpu(), scores.cpu(), bars


def same_law(ours, law):
    """The same tokens, with the same weights up to rounding."""
    theirs = law.scores
    assert torch.equal(ours > NEVER, theirs > NEVER)
    kept = theirs > NEVER
    torch.testing.assert_close(ours[kept].double(), theirs[kept].double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "t", "vocab"), crossed(TRUNCATIONS, [1.0, 0.7], [7, 300, 9000], quick=3))
def test_a_truncation_keeps_what_the_hosts_keeps(name, t, vocab):
    warp = (Temperature(t) if t != 1 else Same()) | TRUNCATIONS[name]
    logits = logits_of(3, vocab, seed=vocab)
    logits[1] = torch.round(logits[1])  # many ties
    logits[2, vocab // 2 :] = NEVER
    prefixes = [Prefix.of((1, 2), warp)] * 3
    ours, _, _ = shaped([warp] * 3, logits, prefixes)
    for row in range(3):
        same_law(ours[row], prefixes[row].shape(Law(logits[row].float().cpu())))


@pytest.mark.parametrize("vocab", [7, 9000])
def test_every_score_above_the_floor_is_among_the_likeliest(vocab):
    logits = logits_of(2, vocab, seed=vocab)
    logits[1] = torch.round(logits[1])  # many ties
    found = likely(logits, on_device(0.7, 1.0, dtype=torch.float32))
    for row in range(2):
        near, every = (x[row].float().cpu() for x in (found.near, logits))
        near = near[near > NEVER].sort().values
        if vocab <= found.near.shape[1]:
            assert torch.equal(near, every.sort().values)
        else:
            floor = found.floor[row].cpu()
            assert torch.equal(near[near > floor], every[every > floor].sort().values)


EDITS = {
    "bias": LogitBias({1: 2.5, 3: -4.0, 5: NEVER, 299: 1.0}),
    "repetition": Repetition(1.3),
    "repetition that rewards": Repetition(0.7),
    "frequency": Frequency(0.3),
    "presence": Presence(0.8),
    "unigrams": NoRepeatNgram(1),
    "bigrams": NoRepeatNgram(2),
    "trigrams": NoRepeatNgram(3),
    "long n-grams": NoRepeatNgram(40),
    "bad words": BadWords(((4,), (2, 3), (1, 2, 3), (9, 9, 9, 9))),
    "forbidden": Forbid({0, 6, 299}),
    "min tokens": MinTokens(4, {0, 2}),
    "penalties": LogitBias({1: 2.5}) | Repetition(1.2) | Frequency(0.3) | Presence(-0.2),
    "all": LogitBias({1: 2.5}) | Repetition(1.2) | Frequency(0.3) | Presence(0.2) | NoRepeatNgram(3)
    | BadWords(((1, 2),)) | Forbid({5}) | MinTokens(2, {0}) | Temperature(0.7) | TopK(40) | TopP(0.9),
}  # fmt: skip


def texts_of(warp, dice, rows, alphabet=4):
    """Texts that repeat themselves, some of them partly generated."""
    found = []
    for _ in range(rows):
        prefix = Prefix.of(tuple(dice.randrange(alphabet) for _ in range(dice.randint(1, 12))), warp)
        found.append(prefix.then([dice.randrange(alphabet) for _ in range(dice.randint(0, 9))]))
    return found


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_changes_what_the_hosts_changes(name):
    warp, dice = EDITS[name], random.Random(name)
    prefixes = texts_of(warp, dice, 6)
    logits = logits_of(6, 300, seed=len(name))
    ours, _, _ = shaped([warp] * 6, logits, prefixes)
    for row, prefix in enumerate(prefixes):
        same_law(ours[row], prefix.shape(Law(logits[row].float().cpu())))


@pytest.mark.parametrize("name", EDITS)
def test_every_node_of_a_tree_is_edited_at_its_own_prefix(name):
    warp, dice, nodes = EDITS[name], random.Random(name), 7
    prefixes, trees = texts_of(warp, dice, 3), []
    for _ in prefixes:
        tree, ends = NOTHING, [ROOT]
        for _ in range(nodes - 1):
            tree, node = tree.grow(Drawn(dice.randrange(4), Law.point(0)), dice.choice(ends))
            ends.append(node)
        trees.append(tree)
    logits = logits_of(3 * nodes, 300, seed=3)
    ours, _, _ = shaped([warp] * 3, logits, prefixes, trees)
    laws = [Law(row.float().cpu()) for row in logits]
    for row, (prefix, tree) in enumerate(zip(prefixes, trees, strict=True)):
        own = laws[row * nodes : (row + 1) * nodes]
        scored = Scored(tree, prefix, own[0], own[1:])
        for node in range(ROOT, nodes - 1):
            same_law(ours[row * nodes + node + 1], scored.law(node))


class Even(Mask):
    """Every other token, and after an odd one all but the first."""

    def start(self, text):
        return text[-1] % 2

    def step(self, state, token):
        return token % 2

    def bits(self, state):
        return packed(self.allowed(state))

    def allowed(self, state, size=300):
        token = torch.arange(size)
        return token > 0 if state else token % 2 == 0

    def __call__(self, state, law):
        return law.only(self.allowed(state, law.size))


def test_a_mask_comes_before_all_else_and_binds_its_own_rows_alone():
    warps = [Even(), Same() | TopK(7), Even() | Repetition(1.3) | Temperature(0.8) | TopP(0.9)]
    prefixes = [Prefix.of((2,), warps[0]), Prefix.of((4,), warps[1]), Prefix.of((2, 3), warps[2])]
    logits = logits_of(3, 300)
    ours, _, _ = shaped(warps, logits, prefixes)
    for row, prefix in enumerate(prefixes):
        same_law(ours[row], prefix.shape(Law(logits[row].float().cpu())))


def test_rows_of_one_batch_have_warps_of_their_own():
    dice = random.Random(0)
    warps = [Same(), Temperature(0.5) | TopP(0.7), EDITS["all"], Repetition(1.5), Same() | TopK(3), Temperature(0)]
    prefixes = [texts_of(warp, dice, 1)[0] for warp in warps]
    logits = logits_of(len(warps), 300)
    ours, _, _ = shaped(warps, logits, prefixes)
    for row, prefix in enumerate(prefixes[:-1]):
        same_law(ours[row], prefix.shape(Law(logits[row].float().cpu())))
    assert torch.equal(ours[-1], logits[-1].float().cpu())


@pytest.mark.parametrize("name", ["top-p", "typical", "everything", "all"])
def test_what_is_picked_is_what_the_host_picks(name):
    warp = TRUNCATIONS.get(name) or EDITS[name]
    logits = logits_of(1, 300, scale=1.0).expand(16, -1).contiguous()
    prefix, plan = Prefix.of((1, 2, 1), warp), plan_of(warp)
    _, scores, bars = shaped([warp] * 16, logits, [prefix] * 16)
    chances = [Philox(seed) for seed in range(16)]
    numbers = torch.tensor([c.uniform(At(3, Role.PICK)) for c in chances], dtype=torch.float64, device=DEVICE)
    heat = on_device(*[plan.temperature] * 16, dtype=torch.float32)
    picks, logprobs = pick(scores.to(DEVICE), heat, numbers, on_device(*[1] * 16), bars)
    law = prefix.shape(Law(logits[0].float().cpu()))
    drawn = [chance.choose(law, At(3, Role.PICK)) for chance in chances]
    assert picks.tolist() == drawn
    assert len(set(drawn)) > 1
    expected = torch.tensor([law.logprob(token) for token in drawn])
    torch.testing.assert_close(logprobs[:, 1].cpu(), expected, rtol=1e-5, atol=1e-5)


def test_where_nothing_is_left_the_pick_says_so_and_nan_is_seen_through_every_truncation():
    warps = [Forbid(range(300)), Same() | TopP(0.5), TRUNCATIONS["everything"]]
    logits = logits_of(3, 300)
    logits[1:, 7] = math.nan
    _, scores, bars = shaped(warps, logits, [Prefix.of((1,), warp) for warp in warps])
    heat, noise = torch.ones(3, device=DEVICE), torch.zeros(3, dtype=torch.float64, device=DEVICE)
    _, logprobs = pick(scores.to(DEVICE), heat, noise, on_device(1, 1, 1), bars)
    assert logprobs[0, 1] == NEVER
    assert logprobs[1:, 1].isnan().all()


# ---- plans


def test_a_plan_is_what_settings_ask_for():
    settings = Settings(
        temperature=0.7, top_p=0.9, top_k=50, min_p=0.1, typical=0.9, epsilon=0.01, eta=0.02, top_n_sigma=2.0,
        repetition_penalty=1.1, frequency_penalty=0.2, presence_penalty=0.3, no_repeat_ngram_size=3,
        logit_bias={3: 1.5}, min_tokens=2, max_tokens=9, stop_tokens=(4,),
    )  # fmt: skip
    words = Letters(tuple("abcdefgh "))
    assert plan_of(replace(settings, bad_words=("ab",)).warp(words)) is None  # spellings are compared on the host
    plan = plan_of(settings.warp(words))
    assert plan.logit_bias == ((3, 1.5),)
    assert (plan.repetition, plan.frequency, plan.presence, plan.no_repeat_ngram) == (1.1, 0.2, 0.3, 3)
    assert (plan.temperature, plan.top_k, plan.top_p, plan.min_p) == (0.7, 50, 0.9, 0.1)
    assert (plan.typical, plan.epsilon, plan.eta, plan.top_n_sigma) == (0.9, 0.01, 0.02, 2.0)
    assert plan.min_tokens == 2
    assert 4 in plan.ends
    assert plan.remembers
    assert plan.edits
    assert plan.truncates


def test_other_orders_and_other_warps_have_no_plan():
    assert plan_of(TopP(0.9) | Temperature(0.7)) is None
    assert plan_of(TopP(0.9) | TopK(4)) is None
    assert plan_of(TopK(9) | TopK(4)) is None
    assert plan_of(Temperature(0.7) | TopK(4)) is not None

    class Own(Warp):
        def __call__(self, state, law):
            return law.without(0)

    assert plan_of(Own() | TopK(4)) is None


def test_a_temperature_alone_is_a_bare_plan_and_greedy_truncates_nothing():
    assert plan_of(Same()) == WarpPlan()
    assert plan_of(Temperature(0.3)).bare
    assert (Temperature(0) | TopK(3)) is not None
    assert plan_of(Temperature(0) | TopK(3)).bare
    assert not plan_of(Same() | TopK(3)).bare


def test_every_warp_of_the_order_says_what_it_does():
    made = {Temperature: Temperature(0.5), Forbid: Forbid({1})}
    for warp in (*TRUNCATIONS.values(), *EDITS.values()):
        made.setdefault(type(warp), warp)
    assert {kind for kind in ORDER if plan_of(made[kind]) != WarpPlan()} == set(ORDER)


def test_a_plan_goes_with_its_warp_and_is_made_once():
    """A warp may hold a compiled grammar: nothing keeps it beyond its request."""
    warp = Even() | Repetition(1.2)
    assert plan_of(warp) is plan_of(warp)
    gone, alone = weakref.ref(warp), Even()
    assert plan_of(alone).mask is alone
    alone_gone = weakref.ref(alone)
    del warp, alone
    gc.collect()
    assert gone() is alone_gone() is None


def test_a_warp_with_slots_has_a_plan_too():
    class Slotted(Warp):
        __slots__ = ()

        def __call__(self, state, law):
            return law

    assert plan_of(Slotted()) is None


def test_lists_that_are_too_long_are_the_hosts():
    assert fits(plan_of(LogitBias(dict.fromkeys(range(EACH), 1.0))))
    assert not fits(plan_of(LogitBias(dict.fromkeys(range(EACH + 1), 1.0))))
    assert not fits(plan_of(Forbid({2**31})))
    assert not fits(plan_of(BadWords([tuple(range(EACH + 1))])))
