"""Rules that fill canvases: which holes come next, in which blocks, by which looks, and what is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...loops.denoise_state import DenoiseState as DenoiseState
    from ...loops.remask import Remask as Remask
    from ...loops.unmask_blocks import Blocks as Blocks
    from ...loops.unmask_blocks import FixedBlocks as FixedBlocks
    from ...loops.unmasker import Unmask as Unmask
    from ...loops.view import View as View
    from .adaptive import Adaptive as Adaptive
    from .ancestral import Ancestral as Ancestral
    from .annealed import SCHEDULES as SCHEDULES
    from .annealed import Annealed as Annealed
    from .cached_dual import CachedDual as CachedDual
    from .cached_prefix import CachedPrefix as CachedPrefix
    from .certainty import CERTAINTIES as CERTAINTIES
    from .certainty import Certainty as Certainty
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
    from .end_token import Endless as Endless
    from .end_token import Late as Late
    from .entropy_bound import EntropyBound as EntropyBound
    from .explore import Explore as Explore
    from .factor import Factor as Factor
    from .filtered import Filter as Filter
    from .filtered import Filtered as Filtered
    from .foreseen import Foreseen as Foreseen
    from .guided import Guided as Guided
    from .hierarchy import Hierarchy as Hierarchy
    from .interval import Interval as Interval
    from .lave import Lave as Lave
    from .local import Local as Local
    from .noise import Capped as Capped
    from .noise import Even as Even
    from .noise import Looped as Looped
    from .noise import Noise as Noise
    from .noise import Rescaled as Rescaled
    from .one_by_one import one as one
    from .peaked import Peaked as Peaked
    from .quota import Quota as Quota
    from .redundant import Redundant as Redundant
    from .renoise import Doubtful as Doubtful
    from .renoise import Renoise as Renoise
    from .renoise import Reverse as Reverse
    from .resample import Resample as Resample
    from .sliding import Near as Near
    from .sliding import Sliding as Sliding
    from .softened import Settled as Settled
    from .softened import Softened as Softened
    from .stable import Stable as Stable
    from .timed import Timed as Timed
    from .unchanged import Unchanged as Unchanged
    from .windowed import Windowed as Windowed

__getattr__, __dir__ = lazily(__name__)
