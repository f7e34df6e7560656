"""Every compiled function: arrays and scalars in, arrays filled.

Each file is a topic. Functions that only other compiled functions call are not
listed here; import them from their file.

Rows come as two arguments, of which one is None: a 2-D array X, or `csr`, the
``(data, indices, indptr)`` of a sparse matrix with sorted indices. The compiler
drops the branch that asks for the one that is None.

What a function calls is compiled again with it, wherever it stands. So the cache on
disk asks for the contents of this whole folder; see `jit`.
"""

# SPDX-License-Identifier: BSD-3-Clause

from .centers import fill_codebook, follow
from .distances import distance_rows, label_distance_rows
from .e_step import (
    CHANGED,
    INERTIA,
    MEASURED,
    N_TOTALS,
    OBJECTIVE,
    PICKED,
    SOFT_WEIGHT,
    SUPPORT,
    hold_rows,
    pick_rows,
    share_rows,
)
from .entmax import as_argument, entmax_rows
from .nearest import UNDERFLOW, label_rows
from .responsibilities import responsibility_rows
from .seeding import BLOCK, claim_rows, gain_rows, square_rows, try_columns
from .settling import settle_rows
from .softmax import LOG_ROUNDING, exp_in_place, softmax_rows
from .sums import add_up, moment_rows, moments_about
