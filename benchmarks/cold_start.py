"""What the first import and the first fit cost.

Times, each in processes of its own and interleaved: the import next to that of
scikit-learn's clustering; the first fit ever on a machine, which compiles; the
first fit of a later process, which reads the compiled code from disk; and the
same fit again, warm.

Run it with ``python benchmarks/cold_start.py [--repeats 5]``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

IMPORT = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

FIT = """
import time
import numpy as np
from sklearn.datasets import load_iris
from skrbfkmeans import RBFKMeans
X = load_iris().data
for _ in range(2):
    start = time.perf_counter()
    RBFKMeans(3, random_state=0).fit(X)
    print(time.perf_counter() - start)
"""


def seconds(code, cache):
    """Numbers that a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(line) for line in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    times = {name: [] for name in ("sklearn", "ours", "ever", "cached", "warm")}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for name, module in ("sklearn", "sklearn.cluster"), ("ours", "skrbfkmeans"):
                times[name] += seconds(IMPORT.format(module=module), cache)
            times["ever"].append(seconds(FIT, cache)[0])
            cached, warm = seconds(FIT, cache)
            times["cached"].append(cached)
            times["warm"].append(warm)
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"import sklearn.cluster     {median['sklearn']:8.3f} s")
    print(
        f"import skrbfkmeans         {median['ours']:8.3f} s, "
        f"ratio {median['ours'] / median['sklearn']:.2f}"
    )
    print(f"first fit on a machine     {median['ever']:8.3f} s")
    print(f"first fit of a process     {median['cached']:8.3f} s")
    print(f"warm fit (iris, k = 3)     {median['warm']:8.4f} s")


if __name__ == "__main__":
    main()
