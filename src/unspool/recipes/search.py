"""Recipes of searches: how wide, how far, and by what texts are compared."""

from __future__ import annotations

import math
from typing import Annotated

from ..core.claim import Method
from ..core.option import Budget, Choice, Few, FileName, FreeText, Product, Range, Steps, Texts, Weight, expect, part
from ..rules import constrain, search

PAUSES = (".", ",", "\n", "?", "!", ":", ";", ")", "]", "}")
ANSWER = "How good is your answer so far? Give one digit from 0 to 9: 9 if it is right, 0 if it is wrong."
CHECKS = 2**11  # of a constraint, for all particles together, between two forwards: half a millisecond each


def astar(
    kids: Texts = 3, longest: Steps = 64, reward: FileName = "", rows: Annotated[int, Range(1, 8000)] = 4000
) -> Method:
    """Steps are lines, marked by a reward or by how likely they are; it draws, so it wants a temperature above 0."""
    return search.AStar(kids, _marked(reward), search.Border(("\n",), longest), rows)


def beam(
    width: Texts = 4,
    alpha: Annotated[float, Range(-100, 100)] = 1.0,
    length: Annotated[str, Choice(tuple(search.LENGTH))] = "power",
    patience: Annotated[str, Choice(tuple(search.PATIENCE))] = "likely",
    rows: Budget = 0,
) -> Method:
    """Beam search with lengths weighed as transformers does, or as `length=gnmt`."""
    return search.Beam(
        width, part("length", length, search.LENGTH)(alpha), part("patience", patience, search.PATIENCE), rows
    )


def _marked(reward: str) -> search.Mark:
    """Marks by the function that FILE.py:NAME means, else by how likely a piece of text is."""
    return search.Graded(search.reward_of(reward)) if reward else search.LikelihoodMark()


def cautious(
    trials: Texts = 10, low: Weight = 0.01, high: Weight = 1.5, longest: Steps = 64, rows: Budget = 0
) -> Method:
    """Cautious next-token prediction; it draws, so it wants a temperature above 0."""
    border = search.Border(PAUSES, longest)
    return search.Branch(
        search.Cautious(trials, low, high), search.LikelihoodMark(), border, rows=rows, texts=trials + 1
    )


def chaotic(
    entropy: Annotated[float, Range(0, 1000, endless=True)] = 1.0,
    ratio: Annotated[float, Range(0, 1000, endless=True)] = 0.5,
    top: Texts = 3,
    weight: Annotated[float, Range(-1000, 1000)] = 2.0,
    longest: Steps = 64,
    reward: FileName = "",
    rows: Budget = 0,
) -> Method:
    """Self-evaluation by the ready-made question for chat models, or by an evaluator that is FILE.py:NAME."""
    mark = search.Leaning(_marked(reward) if reward else search.JudgeMark(question=ANSWER), weight)
    return search.Branch(search.Chaotic(entropy, ratio, top), mark, search.Border((), longest), 1, rows, texts=top + 1)


def diverse(
    groups: Texts = 4,
    width: Texts = 1,
    apart: Weight = 0.5,
    alpha: Annotated[float, Range(-100, 100)] = 1.0,
    length: Annotated[str, Choice(tuple(search.LENGTH))] = "power",
    patience: Annotated[str, Choice(tuple(search.PATIENCE))] = "likely",
    rows: Budget = 0,
) -> Annotated[Method, Product(64, "groups", "width")]:
    """`groups` beam searches of `width` beams each."""
    return search.Diverse(
        groups,
        width,
        apart,
        part("length", length, search.LENGTH)(alpha),
        part("patience", patience, search.PATIENCE),
        rows,
    )


def foresight(
    rollouts: Texts = 8,
    steps: Few = 4,
    tau: Annotated[float, Range(0, 1e9)] = 0.05,
    longest: Steps = 64,
    reward: FileName = "",
    rows: Budget = 0,
) -> Method:
    """Steps are lines, marked by a reward or by how likely they are; it wants a temperature above 0, since it draws."""
    return search.Foresight(rollouts, steps, tau, _marked(reward), search.Border(("\n",), longest), rows)


def mcts(
    kids: Texts = 3,
    rollouts: Annotated[int, Range(1, 4096)] = 256,
    width: Annotated[int, Range(1, 16)] = 1,
    base: Annotated[float, Range(0.001, 1e9)] = 10.0,
    explore: Annotated[float, Range(0, 1e6)] = 4.0,
    enough: Annotated[float, Range(-1e9, 1e9)] = 0.0,
    reward: FileName = "",
    rows: Annotated[int, Range(1, 8000)] = 4000,
) -> Annotated[Method, Product(8192, "kids", "rollouts")]:
    """Planning for a reward that is FILE.py:NAME, or else for likely texts; `enough` ends it, 0 is never enough."""
    function = search.reward_of(reward) if reward else None
    return search.Mcts(function, kids, rollouts, width, base, explore, enough or math.inf, rows)


def neurologic(
    words: Annotated[str, FreeText(256)] = "",
    width: Annotated[int, Range(1, 32)] = 4,
    ahead: Annotated[str, Choice(("greedy", "beam", "sample"))] = "greedy",
    steps: Annotated[int, Range(0, 64)] = 5,
    alpha: Weight = 0.25,
    prune: Annotated[int, Range(1, 1000)] = 50,
    tolerance: Annotated[int, Range(0, 64)] = 2,
    penalty: Annotated[float, Range(-100, 100)] = 0.2,
    rows: Budget = 0,
) -> Annotated[Method, Product(4096, "width", "width", "words")]:
    """Beams for keywords, as in words=dog/dogs+ball+!cat, the last never to be written; 0 steps is NeuroLogic's own."""
    known: dict[str, search.Ahead] = {
        "greedy": search.Greedy(steps),
        "beam": search.Beamed(steps),
        "sample": search.Sampled(steps),
    }
    look = part("lookahead", ahead, known)
    clauses = [tuple(clause.split("/")) for clause in words.split("+")] if words else []
    for clause in clauses:
        alone = len(clause) == 1 or not any(phrase.startswith("!") for phrase in clause)
        expect(alone, "neurologic:words", "/".join(clause), "what is never to be written in a clause of its own: !cat")
    never = tuple(clause[0][1:] for clause in clauses if clause[0].startswith("!"))
    said = tuple(clause for clause in clauses if not clause[0].startswith("!"))
    demand = constrain.Keywords(said) if said else None
    length = search.Power(penalty)
    return search.Neurologic(width, look, alpha, prune, tolerance, length, rows=rows, demand=demand, never=never)


def rewarded(
    reward: FileName = "",
    beta: Annotated[float, Range(1e-9, 1e6)] = 1.0,
    partial: FileName = "",
    ahead: Annotated[int, Range(0, 64)] = 0,
    steps: Annotated[int, Range(0, 4096)] = 0,
    particles: Texts = 8,
    power: Annotated[float, Range(0.001, 1000)] = 1.0,
    block: Steps = 8,
    moves: Annotated[int, Range(0, 64)] = 0,
    back: Few = 1,
    resample: Annotated[str, Choice(tuple(search.RESAMPLE))] = "systematic",
    threshold: Weight = 0.5,
    rows: Budget = 0,
) -> Annotated[Method, Product(256, "particles", "ahead"), Product(1024, "particles", "back")]:
    """Particles for a reward that is FILE.py:NAME; with `ahead`, so many rollouts say who is gone on with."""
    again = part("resampling", resample, search.RESAMPLE)
    wanted: constrain.UnboundPotential = constrain.Potential()
    if reward:
        wanted = search.Rewarded(search.reward_of(reward), beta, search.reward_of(partial) if partial else None)
    twist: search.Twist = search.LookaheadTwist(ahead, steps) if ahead else search.PrefixTwist()
    full = constrain.FullMask(power)
    return search.Smc(particles, full, wanted, again, threshold, block, moves, rows, back, twist)


def several(
    count: Texts = 8,
    choose: Annotated[str, Choice(("likely", "agreement"))] = "likely",
    reward: FileName = "",
    rows: Budget = 0,
) -> Method:
    """The best of `count` texts by a reward, or else the most likely, or the one that agrees most with the others."""
    agreeing = choose == "agreement"
    expect(not (agreeing and reward), "several:choose", choose, "likely beside a reward, which chooses by itself")
    mark = search.Agreement() if agreeing else _marked(reward)
    border = search.Border((), search.FOREVER)
    return search.Branch(search.Several(count), mark, border, rows=rows, texts=count + 1)


def smc(
    particles: Texts = 8,
    propose: Annotated[str, Choice(("masked", "recursive", "geometric", "adaptive"))] = "masked",
    power: Annotated[float, Range(0.001, 1000)] = 1.0,
    resample: Annotated[str, Choice(tuple(search.RESAMPLE))] = "stratified",
    threshold: Weight = 0.5,
    block: Steps = 1,
    moves: Annotated[int, Range(0, 64)] = 0,
    back: Few = 1,
    checks: Annotated[int, Range(0, CHECKS)] = 0,
    draft: Annotated[float, Range(0, 0.99)] = 0.0,
    rows: Budget = 0,
) -> Annotated[Method, Product(1024, "particles", "back"), Product(CHECKS, "particles", "checks")]:
    """Particles for the request's constraint, and for p(text)^power if that is not 1; `draft` has a model propose.

    `checks` bounds how often the constraint is asked for one token; 0 shares out a bound among the particles.
    """
    recursive = constrain.Recursive(checks or CHECKS // particles)
    geometric = constrain.Geometric(refusals=checks or CHECKS // particles)
    known: dict[str, constrain.Propose] = {
        "masked": constrain.FullMask(power),
        "recursive": recursive,
        "geometric": geometric,
        "adaptive": constrain.AdaptiveRejection(recursive, geometric),
    }
    proposal = part("proposal", propose, known)
    expect(power == 1 or propose == "masked", "smc:power", power, "1, unless propose=masked, which alone knows powers")
    expect(power == 1 or not draft, "smc:power", power, "1 beside a draft model that proposes")
    again = part("resampling", resample, search.RESAMPLE)
    wanted = constrain.Potential()
    return search.Smc(particles, proposal, wanted, again, threshold, block, moves, rows, back, draft=draft)


def stochastic(width: Texts = 4, rows: Budget = 0) -> Method:
    """`width` different texts; the first is handed out."""
    return search.Stochastic(width, rows)
