"""Seconds of fits and predictions, and their memory, on one thread."""

# SPDX-License-Identifier: BSD-3-Clause

import os
import subprocess
import sys
import tempfile

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_sample_image
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans


def blobs(n, d, k):
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=4.0 / d**0.25, size=(k, d))
    return centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))


DATA = {
    "iris": (lambda: load_iris().data, 3),
    "digits": (lambda: load_digits().data, 10),
    "photo": (lambda: load_sample_image("china.jpg").reshape(-1, 3)[::4] / 255.0, 64),
    "blobs 100,000 x 2": (lambda: blobs(100_000, 2, 100), 100),
    "blobs 50,000 x 64": (lambda: blobs(50_000, 64, 100), 100),
    "blobs 10,000 x 784": (lambda: blobs(10_000, 784, 10), 10),
}


class OneThread:
    """Data, a start and a fitted model; everything is compiled beforehand."""

    params = list(DATA)
    param_names = ["data"]

    def setup(self, name):
        make, self.k = DATA[name]
        self.X = make()
        self.limits = threadpool_limits(1)
        some = np.random.default_rng(0).choice(len(self.X), self.k, replace=False)
        self.init = self.X[some]
        self.model = RBFKMeans(self.k, random_state=0).fit(self.X)
        self.model.predict_proba(self.X[:10])

    def teardown(self, name):
        self.limits.restore_original_limits()


class Fit(OneThread):
    """Fits."""

    def time_default(self, name):
        RBFKMeans(self.k, random_state=0).fit(self.X)

    def time_hard_from_rows(self, name):
        RBFKMeans(self.k, schedule=0.0, init=self.init, tol=0.0).fit(self.X)

    def time_annealed_from_rows(self, name):
        RBFKMeans(self.k, init=self.init, tol=0.0).fit(self.X)

    def time_softmax_from_rows(self, name):
        RBFKMeans(self.k, alpha=1.0, init=self.init, max_iter=20).fit(self.X)

    def peakmem_default(self, name):
        RBFKMeans(self.k, random_state=0).fit(self.X)

    def track_inertia(self, name):
        return RBFKMeans(self.k, random_state=0).fit(self.X).inertia_


class Predict(OneThread):
    """What a fitted model answers."""

    def time_predict(self, name):
        self.model.predict(self.X)

    def time_predict_proba(self, name):
        self.model.predict_proba(self.X)

    def time_score(self, name):
        self.model.score(self.X)


class Start:
    """The first fit on a machine, which compiles, and that of a later process."""

    timeout = 300
    number, repeat, warmup_time = 1, (1, 3, 60.0), 0.0

    code = """
from sklearn.datasets import load_iris
from skrbfkmeans import RBFKMeans
RBFKMeans(3, random_state=0).fit(load_iris().data)
"""

    def setup(self):
        self.cache = tempfile.TemporaryDirectory()
        self.later = tempfile.TemporaryDirectory()
        self.run(self.later)

    def teardown(self):
        self.cache.cleanup()
        self.later.cleanup()

    def run(self, cache):
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache.name}
        subprocess.run([sys.executable, "-c", self.code], env=environment, check=True)

    def time_first_ever(self):
        self.run(self.cache)

    def time_later_process(self):
        self.run(self.later)
