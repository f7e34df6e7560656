"""The parts of `fuzz.py`: what is drawn, what must hold, and what is called."""

# SPDX-License-Identifier: BSD-3-Clause
