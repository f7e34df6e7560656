"""The one clock of the speed benchmarks."""

# SPDX-License-Identifier: BSD-3-Clause

import statistics
import time


def interleaved(functions, repeats):
    """Median seconds of each function, run in turn."""
    times = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if repeat:  # the first round warms up
                seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in times]
