"""What `load` is given wrongly is refused in words before a model is read."""

import pytest

from unspool.api.loader import load
from unspool.core.errors import BadRequest

DRAFTS = "expected a loaded model, the name of one, a drafter's folder, layers:N, mtp, or None."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ranks": "2"}, "ranks is '2'; expected a whole number of processes from 1 on."),
        ({"ranks": 2.0}, "ranks is 2.0; expected a whole number of processes from 1 on."),
        ({"ranks": True}, "ranks is True; expected a whole number of processes from 1 on."),
        ({"ranks": 0}, "ranks is 0; expected a whole number of processes from 1 on."),
        (
            {"draft": 3},
            f"draft is 3; {DRAFTS}",
        ),
        (
            {"draft": ["smollm2"]},
            f"draft is ['smollm2']; {DRAFTS}",
        ),
        ({"heads": 5}, "heads is 5; expected the path of a file of heads, or None."),
        ({"kv_cache_tokens": "9"}, "kv_cache_tokens is '9'; expected a whole number of tokens from 1 on, or None."),
    ],
)
def test_what_has_the_wrong_type_is_refused_in_words(given, said):
    with pytest.raises(BadRequest) as refused:
        load("there is no such model", **given)
    assert str(refused.value) == said
