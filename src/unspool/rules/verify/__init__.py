"""Rules that decide how much of a draft stands. Each is a function of the scored tree and chance."""

from .blended import Blended as Blended
from .block import block as block
from .conditional import Conditional as Conditional
from .greedy import greedy as greedy
from .kseq import kseq as kseq
from .lenient import Lenient as Lenient
from .mixture import Mixture as Mixture
from .multipath import multipath as multipath
from .race import race as race
from .rejection import rejection as rejection
from .rollback import Rollback as Rollback
from .top_beta import TopBeta as TopBeta
from .traversal import traversal as traversal
from .typical import Typical as Typical
from .walk import walk as walk
from .zeroing import zeroing as zeroing
