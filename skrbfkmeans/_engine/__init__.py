"""Rows, arrays and threads: every pass over the data.

Read `rows` first, which lists the passes, then `steps`, which makes those of one run
cheap, then the compiled functions in `kernels`.
"""

# SPDX-License-Identifier: BSD-3-Clause
