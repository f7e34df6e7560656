"""Benchmarks for asv, which compares commits: ``asv run`` in the folder above."""

# SPDX-License-Identifier: BSD-3-Clause
