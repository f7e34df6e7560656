"""Who carries calls to chunks: Dask's own scheduler, or the workers of a cluster.

Both have ``map(function, *args)``, which calls ``function(chunk, *args)`` for every
chunk and returns a list, and ``sum(add, function, *args)``, which returns what ``add``
makes of that list.
"""

# SPDX-License-Identifier: BSD-3-Clause

import asyncio
import sys
import time
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial

import dask
import numpy as np

# Answers are added up so many at a time.
AT_ONCE = 8

# Chunks that take more than this share of a worker's memory do not stay there all at
# once; then those asked together take at most so much of it.
FITTING, TOGETHER = 0.5, 0.1

# Arguments of more bytes than this are not sent with each question.
LARGE = 2**16

# A pass is made so many times before a loss is taken for final.
ATTEMPTS = 4

# A pass looks every so many seconds whether there is a worker at all, and gives up
# when there has been none for so many.
LOOK, PATIENCE = 2.0, 60.0


class OwnScheduler:
    """Carries calls to chunks that Dask's own scheduler computes for every pass.

    What the chunks remember is kept here in between.

    Parameters
    ----------
    chunks : list of Delayed
        The chunks.
    """

    def __init__(self, chunks):
        self._chunks, self._memories = chunks, [None] * len(chunks)

    def map(self, function, *args):
        """Call a function of each chunk; a list of what it returns."""
        return self._compute(function, args, list)

    def sum(self, add, function, *args):
        """Call a function of each chunk, and add up what it returns."""

        def combine(answers):
            return _add_up(answers, dask.delayed(add), 1)[0]

        return self._compute(function, args, combine)

    def _compute(self, function, args, combine):
        asked = [
            dask.delayed(partial(_ask, memory, function, args), nout=2)(chunk)
            for chunk, memory in zip(self._chunks, self._memories, strict=True)
        ]
        answers, memories = zip(*asked, strict=True)
        answer, self._memories = dask.compute(combine(answers), list(memories))
        return answer


def _ask(memory, function, args, chunk):
    """Call a function of a chunk that is new and remembers what it is told."""
    chunk.memory = memory
    return function(chunk, *args), chunk.memory


class Workers:
    """Carries calls to chunks that stay with the workers of a cluster.

    A pass during which workers are lost is made again.

    Parameters
    ----------
    client : distributed.Client
        Whose workers.
    chunks : list of Delayed
        The chunks; from now on in the memory, or on the disks, of the workers.
    """

    def __init__(self, client, chunks):
        if getattr(client, "asynchronous", False):
            raise ValueError("client must not be asynchronous.")
        if client.status != "running":
            raise RuntimeError(f"The client is {client.status}.")
        self._client, self._chunks = client, client.compute(chunks)
        self._threads, self._sizes, self._groups = None, None, []
        self._insist(self._locate)

    def map(self, function, *args):
        """Call a function of each chunk; a list of what it returns."""

        def attempt():
            answers = [None] * len(self._chunks)
            parts = self._fetch(self._ask(None, function, args))
            for (_, numbers), part in zip(self._groups, parts, strict=True):
                for number, answer in zip(numbers, part, strict=True):
                    answers[number] = answer
            return answers

        return self._insist(attempt)

    def sum(self, add, function, *args):
        """Call a function of each chunk, and add up what it returns."""

        def attempt():
            answers = {}
            asked = self._ask(add, function, args)
            for (home, _), answer in zip(self._groups, asked, strict=True):
                answers.setdefault(home, []).append(answer)
            parts = []
            for home, some in answers.items():  # a few are not worth a message
                parts += _add_up(some, partial(self._submit, home, add), AT_ONCE)
            return add(self._fetch(parts))

        return self._insist(attempt)

    def _ask(self, add, function, args):
        """What each group of chunks answers, as futures."""
        self._locate()
        n_bytes = sum(getattr(arg, "nbytes", 0) for arg in args)
        if n_bytes > LARGE:  # each worker gets them but once
            args = self._spread(args)
        return [
            self._submit(
                home, _ask_each, [self._chunks[i] for i in numbers], args, function, add
            )
            for home, numbers in self._groups
        ]

    def _spread(self, args):
        """A future of the arguments that every worker has."""
        scatter = partial(
            self._client.scatter, [args], broadcast=True, hash=False, asynchronous=True
        )
        try:
            return self._client.sync(self._watch, scatter)[0]
        except (OSError, KeyError, ValueError) as error:  # a worker is gone
            raise LostError from error

    def _submit(self, home, function, *args):
        """Have a function called where the chunks are, and nowhere else."""
        return self._client.submit(function, *args, workers=[home], pure=False)

    def _locate(self):
        """Find out where the chunks are, if workers came or went."""
        threads = self._client.sync(self._count_threads)
        if threads == self._threads:
            return
        self._groups = []
        self._wait(self._chunks)
        for chunk in self._chunks:
            if chunk.status == "error":
                raise chunk.exception()
        holders = self._client.who_has(self._chunks)
        homes = {}
        for number, chunk in enumerate(self._chunks):
            here = sorted(set(holders.get(chunk.key, ())) & set(threads))
            if not here:
                raise LostError
            homes.setdefault(here[0], []).append(number)
        self._groups = list(homes.items())  # for `_watch` to see that they are there
        if self._sizes is None:
            sizes = self._client.map(sys.getsizeof, self._chunks, pure=False)
            self._sizes = self._fetch(sizes)
        limits = self._fetch([self._submit(home, _memory_limit) for home in homes])
        self._groups = [
            (home, group)
            for (home, numbers), limit in zip(homes.items(), limits, strict=True)
            for group in _in_groups(numbers, self._sizes, threads[home], limit)
        ]
        self._threads = threads

    def _fetch(self, futures):
        """What the futures come to."""
        gather = partial(self._client.gather, futures, asynchronous=True)
        return self._client.sync(self._watch, gather)

    def _wait(self, futures):
        """Wait until the futures are there, or failed."""
        from distributed import wait

        self._client.sync(self._watch, partial(wait, futures))

    async def _watch(self, begin):
        """Wait for something, but not for workers that are gone.

        Without this, a task that only a lost worker may do would be waited for, and
        an answer that was lost on its way, too.
        """
        last_seen = time.monotonic()
        with self._client.as_current():
            task = asyncio.ensure_future(begin())
        try:
            while not (await asyncio.wait([task], timeout=LOOK))[0]:
                threads = await self._count_threads()
                if any(home not in threads for home, _ in self._groups):
                    raise LostError
                if threads:
                    last_seen = time.monotonic()
                elif time.monotonic() - last_seen > PATIENCE:
                    raise RuntimeError(
                        f"The client has had no workers for {PATIENCE:.0f} seconds."
                    )
            return await task
        finally:
            task.cancel()

    async def _count_threads(self):
        """The workers there are, and the number of threads of each."""
        try:
            return await self._client.nthreads()
        except OSError as error:
            raise RuntimeError("The scheduler cannot be reached any more.") from error

    def _insist(self, attempt):
        """Make a pass, again if workers are lost."""
        from distributed import KilledWorker

        for n_left in reversed(range(ATTEMPTS)):
            try:
                return attempt()
            except (LostError, KilledWorker, CancelledError) as error:
                self._threads, self._groups = None, []
                is_final = any(
                    chunk.status in ("cancelled", "error") for chunk in self._chunks
                )
                if n_left == 0 or is_final:
                    raise RuntimeError(
                        "Workers were lost, and with them chunks of X or of "
                        "sample_weight that could not be computed anew."
                    ) from error
                time.sleep(0.1 * LOOK)


class LostError(Exception):
    """A worker is gone that held chunks."""


def _memory_limit():
    """Bytes that the worker of this task may take."""
    from distributed import get_worker

    return get_worker().memory_manager.memory_limit or np.inf


def _in_groups(numbers, sizes, n_threads, memory_limit):
    """Chunks of one worker that are asked together, all at once in its memory.

    A group for each thread if they fit; else as many as they need.
    """
    size = sum(sizes[i] for i in numbers)
    limit = size / n_threads
    if size > FITTING * memory_limit:
        limit = min(limit, TOGETHER * memory_limit)
    groups, filled = [], np.inf
    for i in numbers:
        if filled + 0.5 * sizes[i] > limit:
            groups.append([])
            filled = 0.0
        groups[-1].append(i)
        filled += sizes[i]
    return groups


def _ask_each(chunks, args, function, add):
    """A list of what some chunks answer, or what `add` makes of it."""
    answers = [function(chunk, *args) for chunk in chunks]
    return answers if add is None else add(answers)


def _add_up(answers, add, n_most):
    """Add up answers, so many at a time, until there are at most so many."""
    answers = list(answers)
    while len(answers) > n_most:
        answers = [
            add(answers[i : i + AT_ONCE]) for i in range(0, len(answers), AT_ONCE)
        ]
    return answers


@contextmanager
def without_a_thread():
    """Leave the thread of a task to others: those that the task will wait for."""
    from distributed import get_worker, rejoin, secede

    try:
        get_worker()
    except ValueError:  # this is no task
        yield
        return
    secede()
    try:
        yield
    finally:
        rejoin()
