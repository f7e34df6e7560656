"""Every compiled function: arrays and scalars in, arrays filled.

Each file is a topic. Functions that only other compiled functions call are not
listed here; import them from their file.

Rows come as `data`, the tuple ``(X,)`` of a 2-D array, or ``(values, indices,
indptr)`` of a CSR matrix with sorted indices. The compiler drops the branch for the
tuple of another length. `weights` of size 0 stands for ones.

A block is some rows whose scores are computed together and stay in cache; a lane is
the place of one of them. A strip is a fixed range of rows with sums of its own.

What a function calls is compiled again with it, wherever it stands: so few call
others, and the cache on disk asks for the contents of this whole folder; see `jit`.
No function has more than nine arguments. Arrays of one type and length are rows of one
array, with names for their numbers: each array that a function is handed costs time
to compile, and references to it are counted at each call.
"""

# SPDX-License-Identifier: BSD-3-Clause

from .centers import fill_codebook, follow
from .distances import distance_rows, label_distance_rows
from .e_step import APART, FALLEN, LOWER, MOVED, UPPER, hold_rows, pick_rows, share_rows
from .entmax import as_argument, entmax_rows
from .nearest import UNDERFLOW, label_rows
from .responsibilities import compress_rows, responsibility_rows
from .seeding import BLOCK, claim_rows, gain_rows, square_rows, try_columns
from .settling import settle_rows, warm_rows
from .softmax import LOG_ROUNDING, exp_in_place, softmax_rows
from .sums import (
    CHANGED,
    HELD,
    INERTIA,
    MEASURED,
    N_TOTALS,
    OBJECTIVE,
    PICKED,
    SOFT_WEIGHT,
    SUPPORT,
    add_up,
    moment_rows,
    moments_about,
)
