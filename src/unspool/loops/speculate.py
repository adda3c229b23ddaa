"""The one loop of left-to-right decoding: draft a tree, check it, keep what stands."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.asks import Check, Checked, Decoding, Done, Emit, Keep, Laws, Verify
from ..core.chance import Chance
from ..core.errors import BadRequest
from ..core.stop import Stop
from ..core.tree import NOBODY, NOTHING, ROOT
from ..core.verifier import decides_token_by_token, sample_match, states_wanted
from ..core.warp.warp import Prefix, Warp
from .drafter import Draft, Nothing, begun, check_drafter
from .plain import write_on


@dataclass(frozen=True)
class Speculate:
    """Draft a tree, score it once, keep the verified path and one token more.

    What follows is exact about the law after all warps if the verifier is. With nothing drafted this is plain decoding,
    and while a source rests it is exactly that.

    Cost: one forward of the target per round, over the drafted nodes and the last token.
    """

    draft: Draft = Nothing()  # noqa: RUF009  (frozen)
    verify: Verify = sample_match
    budget: int = 8

    def __post_init__(self) -> None:
        check_composition(self.draft, self.verify)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail = stop.start()
        prefix = Prefix.of(text, warp, stop.left(tail))
        source, states = begun(self.draft, prefix), states_wanted(self.verify)
        while True:
            while rest := source.rest(prefix):
                prefix, (_, reason, tail, trim) = yield from write_on(prefix, chance, stop, tail, rest, source.ahead)
                if reason:
                    return Done(prefix.text[len(text) :], reason, trim)
            tree, last, depth = NOTHING, NOBODY, prefix.left - 1  # a draft past the end would be for nothing
            if depth > 0:
                nodes = int(min(self.budget, depth + stop.spare))
                tree, last = stop.prune(tail, (yield from source.propose(prefix, nodes, chance)).within(depth))
                if not len(tree) and source.rest(prefix):
                    continue  # it has looked, and lies down again
            checked: Checked = yield Check(tree, prefix, self.verify, chance, source.want + states, last)
            (node, token), scored, scores = checked
            path = tree.path(node)
            kept, reason, tail, trim = stop.cut(tail, (*tree.tokens(path), token))
            parents = [ROOT, *path][: len(kept)]
            before, after = Laws(scored.raw, parents), Laws(scored.law, parents)
            yield Emit(kept, before, after, drafted=tree.guesses, accepted=min(len(path), len(kept)))
            prefix = prefix.then(kept)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)
            yield Keep(tree, (node,), (token,))
            source.learn(prefix, tree, scores)


def check_composition(draft: Draft, verify: Verify) -> None:
    """Refuse what is no drafter or no verifier, and two that are not exact together."""
    check_drafter("speculate:draft", draft)
    if not callable(verify):
        raise BadRequest(
            f"speculate:verify={verify!r} cannot be used; expected a rule that is called with what was scored and "
            "with chance, and gives a Verdict, as sample_match and rejection do"
        )
    if draft.reuses_noise and not decides_token_by_token(verify):
        named = getattr(verify, "__name__", type(verify).__name__)
        raise BadRequest(
            f"{type(draft).__name__} under {named} would not be exact: it drafts with random numbers that are used"
            f" again in the next round, and {named} weighs a token by what was drafted after it. Use sample_match,"
            " race, rejection or another rule that is declared @token_by_token, or a drafter that draws anew in every"
            " round, such as Chain"
        )
