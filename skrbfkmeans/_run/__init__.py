"""One fit, on any rows: where the centres start, how they cool, and where they go."""

# SPDX-License-Identifier: BSD-3-Clause
