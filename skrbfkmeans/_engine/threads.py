"""Threads of one call: how many, what each works on, and the limit on BLAS.

Rows are cut into strips. The cut depends on the shape of the data and never on the
number of threads, each strip is worked on by one thread alone, and partial results are
added in the order of the strips: so every number comes out the same, to the last bit,
for any number of threads.
"""

# SPDX-License-Identifier: BSD-3-Clause

import collections
import contextlib
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait

from .._sklearn import effective_n_threads, threadpool_controller

# Multiplications; smaller strips do not repay handing them to a thread.
STRIP_WORK = 2**20

# Strips a pass; more would only lengthen the sum of their partial results.
MAX_STRIPS = 64

# Numbers in the partial sums of all strips together: 8 MB of float64.
MAX_PARTIAL = 2**20

# Multiplications a call of a compiled function; Ctrl-C is heard only between calls.
PIECE_WORK = 2**29

# Multiplications; what a row costs besides its distances.
ROW_WORK = 32

# Strips; a pass over fewer is over before another thread has woken up.
FEW_STRIPS = 24


class SingleThreadedBLAS:
    """Hold BLAS to one thread while any thread of ours is inside.

    Counts its users, so that runs which overlap in time leave the limit as
    the first of them found it.
    """

    def __init__(self):
        self._lock, self._users = threading.Lock(), 0

    def reset(self):
        """Forget the users; a forked child does not have them."""
        if self._users > 0:
            self._restore()
        self._lock, self._users = threading.Lock(), 0

    def _restore(self):
        with contextlib.suppress(Exception):  # as in `limit_blas`
            self._limiter.restore_original_limits()
            give_up_control()

    def __enter__(self):
        with self._lock:
            if self._users == 0:
                self._limiter = limit_blas()
            self._users += 1

    def __exit__(self, *exception):
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._restore()


class NoLimit:
    """Stands in for the limit on BLAS where none can be set."""

    def restore_original_limits(self):
        """Nothing has been changed."""


def limit_blas():
    """Limit BLAS, and nothing else, to one thread; also in this thread alone.

    Where the libraries of an installation cannot be inspected there is no limit:
    results are the same, and some passes slower.
    """
    try:
        blas = threadpool_controller().select(user_api="blas")
        limiter = blas.limit(limits=1)
        give_up_control()
    except Exception:  # whatever an odd library may raise
        return NoLimit()
    return limiter


def count_threads():
    """OpenMP's limit on threads; 1 where it cannot be told."""
    try:
        return max(1, effective_n_threads())
    except Exception:  # as above
        return 1


def give_up_control():
    """Let other threads set the limit of BLAS again.

    From version 3.8 on, threadpoolctl obeys only the thread that first set it,
    until a ``with`` block of that thread ends, or the thread.
    """
    blas = threadpool_controller().select(user_api="blas")
    with blas.limit(limits=None):
        pass


single_threaded_blas = SingleThreadedBLAS()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=single_threaded_blas.reset)


class Threads:
    """The threads of one call, and the buffers of each.

    Use it as a context manager: the pool and the limit on BLAS live inside.

    Parameters
    ----------
    n : int, default=None
        Number of threads; by default OpenMP's limit at the time.
    """

    def __init__(self, n=None):
        self.n, self._pool, self._buffers = n, None, {}

    def __enter__(self):
        # first: to limit a BLAS that is built on OpenMP limits all of OpenMP
        self.n = self.n or count_threads()
        single_threaded_blas.__enter__()
        return self

    def __exit__(self, *exception):
        try:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
            self._buffers.clear()
        finally:
            single_threaded_blas.__exit__(*exception)

    def buffers(self, make, *sizes):
        """What ``make(*sizes)`` has made for this thread, once."""
        key = threading.get_ident(), make, *sizes
        if key not in self._buffers:
            self._buffers[key] = make(*sizes)
        return self._buffers[key]

    def run(self, work, strips, heavy=False):
        """Call ``work(s, start, stop)`` for each piece of all strips, on all threads.

        On this thread alone if there are few strips, unless they are `heavy`.
        """
        turns = collections.deque(range(len(strips)))  # its pops are atomic
        stopped = False

        def loop():
            nonlocal stopped
            try:
                while turns:
                    try:
                        s = turns.popleft()
                    except IndexError:  # another thread has taken the last
                        return
                    for start in strips[s]:
                        if stopped:
                            return
                        work(s, start, min(start + strips[s].step, strips[s].stop))
            except BaseException:  # Ctrl-C among them
                stopped = True
                raise

        is_shared = heavy or len(strips) >= FEW_STRIPS
        n_helpers = min(self.n, len(strips)) - 1 if is_shared else 0
        if n_helpers > 0 and self._pool is None:
            self._pool = ThreadPoolExecutor(self.n - 1, initializer=limit_blas)
        helpers = []
        try:
            for _ in range(n_helpers):
                helpers.append(self._pool.submit(loop))
        except RuntimeError:  # there are no more threads, or the interpreter ends
            self._pool.shutdown()
            self._pool, self.n = None, 1
        try:
            loop()
            if helpers:
                wait(helpers)
        finally:
            stopped = True  # Ctrl-C may come while only helpers are at work
            if helpers:
                wait(helpers)
        for helper in helpers:
            helper.result()


def cut(start, stop, row_work, partial_size=1, n_most=MAX_STRIPS):
    """Cut the rows from start to stop into strips.

    Parameters
    ----------
    start, stop : int
        The first row, and the one after the last.
    row_work : int
        Multiplications a row, besides `ROW_WORK`.
    partial_size : int, default=1
        Numbers in the partial sums of a strip.
    n_most : int, default=MAX_STRIPS
        Most strips.

    Returns
    -------
    strips : list of range
        The rows of each strip, in steps of a piece: few enough for Ctrl-C to be heard
        in time.
    """
    row_work += ROW_WORK
    n_worth = (stop - start) * row_work // STRIP_WORK
    n = min(n_worth, stop - start, n_most, MAX_PARTIAL // max(partial_size, 1))
    n = max(n, 1)
    bounds = [start + (stop - start) * s // n for s in range(n + 1)]
    piece = max(PIECE_WORK // row_work, 1)
    return [range(*pair, piece) for pair in itertools.pairwise(bounds)]
