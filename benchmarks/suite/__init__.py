"""Benchmarks for asv, which compares commits: ``asv run`` in the folder above."""
