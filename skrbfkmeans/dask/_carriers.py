"""Who carries calls to chunks: Dask's own scheduler, or the workers of a cluster.

Both have ``map(function, *args)``, which calls ``function(chunk, *args)`` for every
chunk and returns a list, and ``sum(add, function, *args)``, which returns what ``add``
makes of that list.
"""

# SPDX-License-Identifier: BSD-3-Clause

import asyncio
import itertools
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial

import dask.threaded
import numpy as np
from dask.core import get, get_dependencies, istask
from dask.highlevelgraph import HighLevelGraph

from .._engine.threads import single_threaded_blas

# Answers that are added up at a time, by one task.
SUMMANDS = 8

# Tasks a pass with Dask's own scheduler, at most: enough for many threads, and always
# the same number, so that sums are added in the same order.
TASKS = 32

# Share of a worker's memory; if its chunks take more, not all of them stay there.
FITTING = 0.5

# Share of a worker's memory; then those that are asked together take no more.
TOGETHER = 0.1

# Bytes; larger arguments are sent to each worker once, and not with each question.
LARGE = 2**16

# Times that a pass is made before a loss is taken for final.
ATTEMPTS = 4

# Seconds between two looks at whether there are still workers.
LOOK = 2.0

# Seconds without any worker after which a pass gives up.
PATIENCE = 60.0


class OwnScheduler:
    """Carries calls to chunks that Dask's own scheduler computes for every pass.

    Chunks that share no work with others are asked in turn by a few tasks, each of
    which computes one of its chunks at a time: a task of Dask takes longer than a small
    chunk. What the chunks remember is kept here in between.

    Parameters
    ----------
    chunks : list of Delayed
        The chunks.
    """

    def __init__(self, chunks):
        graph = HighLevelGraph.merge(*(chunk.__dask_graph__() for chunk in chunks))
        graph, keys = dict(graph), [chunk.key for chunk in chunks]
        parts = [_part_of(graph, key) for key in keys]
        users = Counter(itertools.chain.from_iterable(parts))
        data = {key for key in users if _is_data(graph[key])}
        numbers = range(len(chunks))
        alone = [i for i in numbers if all(users[k] == 1 for k in parts[i] - data)]
        size = max(1, -(-len(alone) // TASKS))
        groups = [alone[i : i + size] for i in range(0, len(alone), size)]
        self._together = [
            (group, [({k: graph[k] for k in parts[i]}, keys[i]) for i in group])
            for group in groups
        ]
        self._others = {i: keys[i] for i in set(numbers).difference(alone)}
        shared = set().union(*(parts[i] for i in self._others))
        self._shared = {key: graph[key] for key in shared}
        self._memories = [None] * len(chunks)

    def map(self, function, *args):
        """Call a function of each chunk; a list of what it returns."""
        answers = [None] * len(self._memories)
        for group, some in self._ask(function, args, None):
            for number, answer in zip(group, some, strict=True):
                answers[number] = answer
        return answers

    def sum(self, add, function, *args):
        """Call a function of each chunk, and add up what it returns."""
        parts = [part for _, some in self._ask(function, args, add) for part in some]
        return _add_up(parts, add, 1)[0]

    def _ask(self, function, args, add):
        """What each task answers, and which chunks it has asked, by their order."""
        ask = partial(_ask_anew, function=function, args=args)
        graph, groups = dict(self._shared), {}
        for group, some in self._together:
            memories = [self._memories[i] for i in group]
            key = f"ask-{group[0]}-{uuid.uuid4().hex}"
            graph[key] = (partial(_ask_in_turn, some, memories, ask, add),)
            groups[key] = group
        for number, chunk in self._others.items():
            key = f"ask-{number}-{uuid.uuid4().hex}"
            graph[key] = (partial(_ask_one, self._memories[number], ask), chunk)
            groups[key] = [number]
        keys = sorted(groups, key=groups.get)
        schedule = dask.base.get_scheduler() or dask.threaded.get
        answers = []
        for key, (some, memories) in zip(keys, schedule(graph, keys), strict=True):
            for number, memory in zip(groups[key], memories, strict=True):
                self._memories[number] = memory
            answers.append((groups[key], some))
        return answers


def _part_of(graph, key):
    """The keys of all that a key of a graph is made of, its own among them."""
    found, open_ends = {key}, [key]
    while open_ends:
        more = get_dependencies(graph, open_ends.pop()) - found
        found |= more
        open_ends += more
    return found


def _is_data(node):
    """Whether a node of a graph has been computed, so that sharing it costs nothing."""
    if hasattr(node, "dependencies"):  # since 2024.12 nodes are objects
        return type(node).__name__ == "DataNode"
    return not istask(node)


def _ask_in_turn(parts, memories, ask, add):
    """Compute some chunks, one after the other, and ask each.

    Returns a list of their answers, or of their sum, and what they remember.
    """
    answers, remembered = [], []
    with single_threaded_blas:  # once for all
        for (graph, key), memory in zip(parts, memories, strict=True):
            answer, memory = ask(memory, get(graph, key))
            answers.append(answer)
            remembered.append(memory)
            if add is not None and len(answers) == SUMMANDS:
                answers = [add(answers)]
    if add is not None:
        answers = [add(answers)]
    return answers, remembered


def _ask_one(memory, ask, chunk):
    """The same for one chunk that shares work with others."""
    answer, memory = ask(memory, chunk)
    return [answer], [memory]


def _ask_anew(memory, chunk, function, args):
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
        # None is new at first: Dask, or the user, has chosen where the chunks are.
        self._seen = set(client.sync(self._count_threads))
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
                parts += _add_up(some, partial(self._submit, home, add), SUMMANDS)
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
        except (OSError, KeyError, ValueError) as error:
            if self._has_lost_one():
                raise LostError from error
            raise

    def _has_lost_one(self):
        """Whether a worker of the last look is gone; it may take a while to be seen."""
        end = time.monotonic() + LOOK
        while not set(self._threads or ()) - set(
            self._client.sync(self._count_threads)
        ):
            if time.monotonic() > end:
                return False
            time.sleep(0.1 * LOOK)
        return True

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
        homes = self._find_homes(threads)
        self._groups = list(homes.items())  # for `_watch` to see that they are there
        if self._sizes is None:
            sizes = self._client.map(sys.getsizeof, self._chunks, pure=False)
            self._sizes = self._fetch(sizes)
        if newcomers := set(threads).difference(self._seen, homes):
            for home, number in _to_move(homes, newcomers, self._sizes, threads):
                # it stays there, and can be computed anew elsewhere
                self._chunks[number] = self._client.submit(
                    _itself, self._chunks[number], workers=[home],
                    allow_other_workers=True, pure=False,
                )  # fmt: skip
            self._wait(self._chunks)
            homes = self._find_homes(threads)
            self._groups = list(homes.items())
        self._seen = set(threads)
        limits = self._fetch([self._submit(home, _memory_limit) for home in homes])
        self._groups = [
            (home, group)
            for (home, numbers), limit in zip(homes.items(), limits, strict=True)
            for group in _in_groups(numbers, self._sizes, threads[home], limit)
        ]
        self._threads = threads

    def _find_homes(self, threads):
        """The worker that is asked for each chunk, and the numbers of its chunks."""
        holders, homes = self._client.who_has(self._chunks), {}
        for number, chunk in enumerate(self._chunks):
            here = sorted(set(holders.get(chunk.key, ())) & set(threads))
            if not here:
                raise LostError
            homes.setdefault(here[0], []).append(number)
        return homes

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


def _itself(chunk):
    """A chunk, for the worker that is asked to keep it."""
    return chunk


def _to_move(homes, newcomers, sizes, threads):
    """Chunks to move to workers that have none, as pairs of worker and number.

    From those that have most for each of their threads, as long as the worker that
    gets one has less with it than the other has had. All others stay where they are:
    what a chunk remembers does not travel.
    """
    homes = {home: list(numbers) for home, numbers in homes.items()}
    homes |= {home: [] for home in newcomers}
    loads = {home: sum(sizes[i] for i in numbers) for home, numbers in homes.items()}

    def load(home, more=0):
        return (loads[home] + more) / threads[home], home

    moves = []
    while True:
        source, target = max(homes, key=load), min(sorted(newcomers), key=load)
        number = homes[source][-1]
        size = sizes[number]
        if source in newcomers or load(target, size)[0] >= load(source)[0]:
            return moves
        moves.append((target, number))
        homes[target].append(homes[source].pop())
        loads[source], loads[target] = loads[source] - size, loads[target] + size


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
    """Add up answers, `SUMMANDS` at a time, until at most `n_most` are left."""
    answers = list(answers)
    while len(answers) > n_most:
        answers = [
            add(answers[i : i + SUMMANDS]) for i in range(0, len(answers), SUMMANDS)
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
