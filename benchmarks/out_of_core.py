"""More rows than memory: a fit to a file of 5 GB, and what it keeps in memory.

The file is mapped, so its pages come and go as the system likes. What counts is what
the process allocates beyond them, which Linux calls anonymous memory; the peak of it
during the fit is printed, less what was there before. Fits are those that a user gets
by default, swaps included, unless ``--unrefined`` leaves them out; ``--scale`` makes
the values larger. Run it with ``python benchmarks/out_of_core.py [--file rows.f4]
[--rows 10000000] [--features 128]``; the file is made if it is not there, and stays.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import threading
from pathlib import Path
from time import perf_counter

import numpy as np

from skrbfkmeans import RBFKMeans

PIECE = 100_000


def make(path, n, d, scale, n_clusters=100):
    """Write rows around some centres, as float32, piece by piece."""
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=2.0, size=(n_clusters, d)).astype(np.float32)
    with path.open("wb") as file:
        for start in range(0, n, PIECE):
            labels = rng.integers(n_clusters, size=min(PIECE, n - start))
            noise = rng.standard_normal((len(labels), d), dtype=np.float32)
            (np.float32(scale) * (centers[labels] + noise)).tofile(file)


def anonymous_memory():
    """Bytes of memory of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("this needs Linux, which tells the memory of a process")


class Peak:
    """The most anonymous memory while a block runs, beyond what there was before."""

    def __enter__(self):
        self.before = self.bytes = anonymous_memory()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *exception):
        self._done.set()
        self._watcher.join()

    def _watch(self):
        while not self._done.wait(0.02):
            self.bytes = max(self.bytes, anonymous_memory())

    @property
    def megabytes(self):
        return (self.bytes - self.before) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--file", type=Path, default="rows.f4")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--unrefined", action="store_true", help="try no swaps")
    parser.add_argument("--fit-only", action="store_true")
    options = parser.parse_args()
    n, d, k = options.rows, options.features, options.clusters
    if not options.file.exists() or options.file.stat().st_size != 4 * n * d:
        make(options.file, n, d, options.scale)
    X = np.memmap(options.file, dtype=np.float32, mode="r", shape=(n, d))
    refine = None if options.unrefined else "auto"
    model = RBFKMeans(k, refine=refine, random_state=0)
    model.fit(X[: 20 * k])  # compiles what it needs
    print(
        f"{n:,} x {d} float32, {X.nbytes / 1e9:.1f} GB, values up to "
        f"{np.abs(X[:PIECE]).max():.1g}, {k} clusters"
    )
    calls = {
        "fit": lambda: model.fit(X),
        "predict": lambda: model.predict(X),
        "score": lambda: model.score(X),
        "partial_fit": lambda: [
            model.partial_fit(X[start : start + PIECE]) for start in range(0, n, PIECE)
        ],
    }
    for name, call in calls.items():
        if options.fit_only and name != "fit":
            continue
        with Peak() as peak:
            begin = perf_counter()
            call()
            seconds = perf_counter() - begin
        print(f"{name:<12}{seconds:>8.1f} s{peak.megabytes:>8.0f} MB", flush=True)


if __name__ == "__main__":
    main()
