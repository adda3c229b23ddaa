"""Where a nucleus ends: at exact borders, and on unrounded scores of real size, as transformers has it."""

import math

import pytest
import torch

from unspool.core.law import NEVER, Law
from unspool.core.warp import Epsilon, Eta, MinP, Temperature, TopK, TopNSigma, TopP, Typical

SIZE = 49_152


def support(law):
    return (law.scores > NEVER).nonzero().flatten().tolist()


def dyadic(counts):
    """A law in which counts[k] tokens have exactly the probability 2^-k."""
    p = torch.tensor([2.0**-k for k, count in counts.items() for _ in range(count)], dtype=torch.float64)
    assert float(p.sum()) == 1
    law = Law(p.log())
    law.__dict__["p"] = p  # a softmax of logarithms would be off by a last bit, and the borders with it
    return law


# Few tokens, and so many that they are not sorted; each border stands exactly at the end of a level.
EXACT = [{1: 1, 2: 1, 3: 2}, {2: 2, 3: 4}, {10: 512, 11: 512, 12: 1024}, {9: 128, 10: 512, 11: 512}]


@pytest.mark.parametrize("counts", EXACT)
def test_a_nucleus_of_exactly_the_mass_is_enough(counts):
    law, end, mass = dyadic(counts), 0, 0.0
    for k, count in counts.items():
        end, mass = end + count, mass + count * 2.0**-k
        if mass < 1:
            assert support(TopP(mass)(None, law)) == list(range(end))
            assert support(TopP(math.nextafter(mass, 0))(None, law)) == list(range(end))
            assert len(support(TopP(math.nextafter(mass, 1))(None, law))) > end


def test_single_tokens_at_an_exact_border():
    law = dyadic({1: 1, 2: 1, 3: 1, 4: 2})
    for kept, p in enumerate((0.5, 0.75, 0.875), 1):
        assert support(TopP(p)(None, law)) == list(range(kept))


FLAT, USUAL, SHARP = 0.05, 1.5, 5.0


def scores(spread, seed):
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed)) * spread


@pytest.mark.parametrize("spread", [FLAT, USUAL, SHARP])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_top_p_is_the_head_of_a_full_sort(spread, p):
    """Unrounded scores of a whole vocabulary: no two are equal, so that a border is one token wide."""
    for seed in range(2):
        law = Law(scores(spread, seed))
        masses, order = law.p.double().sort(descending=True, stable=True)
        count = int((masses.cumsum(0) < p * masses.sum()).sum()) + 1  # a float32 softmax does not sum to 1
        assert support(TopP(p)(None, law)) == sorted(order[:count].tolist())


PROCESSORS = [
    (TopP(0.5), "TopPLogitsWarper", 0.5),
    (TopP(0.9), "TopPLogitsWarper", 0.9),
    (TopK(50), "TopKLogitsWarper", 50),
    (MinP(0.1), "MinPLogitsWarper", 0.1),
    (Typical(0.9), "TypicalLogitsWarper", 0.9),
    (Epsilon(3e-5), "EpsilonLogitsWarper", 3e-5),
    (Eta(3e-4), "EtaLogitsWarper", 3e-4),
    (Temperature(0.7), "TemperatureLogitsWarper", 0.7),
]


@pytest.mark.parametrize(("warp", "name", "value"), PROCESSORS, ids=lambda given: str(given))
@pytest.mark.parametrize("spread", [FLAT, USUAL, SHARP])
def test_truncations_keep_what_transformers_keeps(warp, name, value, spread):
    """But for what rounding in their float32 sums of 49,152 numbers moves over a border: a few tokens of no mass."""
    transformers = pytest.importorskip("transformers")
    given = scores(spread, 3)
    theirs = getattr(transformers, name)(value)(torch.zeros(1, 1, dtype=torch.long), given[None].clone())[0]
    ours = warp(None, Law(given)).scores
    differ = (theirs > NEVER) != (ours > NEVER)
    assert float(Law(given).p[differ].sum()) < 2e-4
    both = (theirs > NEVER) & (ours > NEVER)
    torch.testing.assert_close(ours[both], theirs[both])


def test_sigma_is_that_of_all_scores():
    given = torch.tensor([4.0, 3.0, 2.0, 1.0, NEVER], dtype=torch.float64)
    sigma = math.sqrt(1.25)  # of the four, not of a sample of four
    for n, kept in ((1.0 / sigma - 1e-9, 1), (1.0 / sigma + 1e-9, 2), (2.0 / sigma + 1e-9, 3)):
        assert len(support(TopNSigma(n)(None, Law(given)))) == kept
