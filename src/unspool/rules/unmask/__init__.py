"""Rules that fill canvases: which holes come next, in which blocks, by which looks, and what is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...loops.denoise_state import DenoiseState as DenoiseState
    from ...loops.unmasker import Blocks as Blocks, FixedBlocks as FixedBlocks
    from ...loops.unmasker import Remask as Remask, Unmask as Unmask, View as View
    from .adaptive import Adaptive as Adaptive
    from .ancestral import Ancestral as Ancestral
    from .annealed import SCHEDULES as SCHEDULES, Annealed as Annealed
    from .cached_dual import CachedDual as CachedDual
    from .cached_prefix import CachedPrefix as CachedPrefix
    from .certainty import CERTAINTIES as CERTAINTIES, Certainty as Certainty
    from .checked import CheckedUnmask as CheckedUnmask
    from .clocked import Clocked as Clocked
    from .confident import Confident as Confident
    from .context import Context as Context
    from .cooling import Cooling as Cooling
    from .credited import Credited as Credited
    from .cycle import Cycle as Cycle
    from .delayed import Delayed as Delayed
    from .dynamic import Dynamic as Dynamic
    from .early import Early as Early
    from .edit import Edit as Edit
    from .end_token import Endless as Endless, Late as Late
    from .entropy_bound import EntropyBound as EntropyBound
    from .explore import TriedCandidates as TriedCandidates, Explore as Explore
    from .factor import Factor as Factor
    from .filtered import Filter as Filter, Filtered as Filtered
    from .foreseen import Foreseen as Foreseen
    from .guided import Guided as Guided
    from .hierarchy import Hierarchy as Hierarchy
    from .interval import Interval as Interval
    from .lave import Lave as Lave
    from .leading import Leading as Leading
    from .local import Local as Local
    from .renoise import Capped as Capped, Even as Even, Looped as Looped, Noise as Noise, Rescaled as Rescaled
    from .one_by_one import one as one
    from .peaked import Peaked as Peaked
    from .quota import Quota as Quota
    from .redundant import Redundant as Redundant
    from .renoise import Doubtful as Doubtful, Renoise as Renoise, Reverse as Reverse, Unchanged as Unchanged
    from .resample import Resample as Resample
    from .sliding import Near as Near, Sliding as Sliding
    from .routing import ROUTES as ROUTES, AboveCost as AboveCost, AboveSure as AboveSure, Bandit as Bandit
    from .routing import Hysteresis as Hysteresis
    from .softened import Settled as Settled, Softened as Softened
    from .stable import Stable as Stable
    from .timed import Timed as Timed
    from .windowed import Windowed as Windowed

__getattr__, __dir__ = lazily(__name__)
