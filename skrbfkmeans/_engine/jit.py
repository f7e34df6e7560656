"""The one decorator of the compiled functions.

Kernels run without the GIL, compile at first use, and keep their machine code
on disk wherever that is possible. Where it is not (a read-only installation,
an import from a zip file, a full disk) they are compiled in memory instead.

Numba takes machine code for stale when the file of its function has changed. But
what a kernel calls, from another file, is part of its machine code too. So here it is
stale as soon as any file of the kernel's folder has changed, or this one.
"""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import hashlib
import os
from functools import lru_cache
from pathlib import Path

try:
    import numba
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "skrbfkmeans computes with numba, which cannot be imported; install it with "
        "'pip install numba'."
    ) from error

# Everything `fastmath=True` allows, except to assume that NaN and infinity
# never occur: the guards against them must survive.
FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})


def jit(function=None, *, fastmath=False, inner=False):
    """Compile a function of arrays and scalars.

    Parameters
    ----------
    function : callable
        The function. Types are inferred at each first call.
    fastmath : set of str, default=False
        LLVM's fast-math flags; False keeps IEEE arithmetic to the letter.
    inner : bool, default=False
        Whether only other compiled functions call it, so that it compiles
        sooner.

    Returns
    -------
    dispatcher : callable
        The compiled function.
    """
    if function is None:
        return lambda function: jit(function, fastmath=fastmath, inner=inner)
    dispatcher = numba.njit(
        function,
        nogil=True,
        fastmath=set(fastmath) if fastmath else False,
        error_model="numpy",
        no_cpython_wrapper=inner,
        no_cfunc_wrapper=True,
    )
    if not numba.config.DISABLE_JIT:
        _cache_if_possible(dispatcher)
    return dispatcher


def _cache_if_possible(dispatcher):  # pragma: no cover
    """Turn on numba's cache on disk, if there is a place for it and it is safe.

    It is safe if it can be made to see a change in any file of the folder. That takes
    names that numba does not promise; where they are not, there is no cache.
    """
    path = dispatcher.py_func.__code__.co_filename
    if not os.path.isfile(path):
        return  # imported from a zip file: numba would fail at the first call
    if not hasattr(dispatcher, "_cache"):
        return
    without = dispatcher._cache
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # "no locator available": no directory can be written
        return
    cache = dispatcher._cache
    try:
        index = cache._cache_file
        index._source_stamp = index._source_stamp, _hash_of_folder(Path(path).parent)
        for name in ("load_overload", "save_overload"):
            setattr(cache, name, _forgiving(cache, getattr(cache, name)))
    except (AttributeError, OSError):
        dispatcher._cache = without


@lru_cache
def _hash_of_folder(folder):  # pragma: no cover
    """Hash of the contents of all modules in a folder, and of this one."""
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(folder.glob("*.py"))]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.digest()


def _forgiving(cache, method):  # pragma: no cover
    """Let a cache that cannot be read or written count as a miss."""

    def attempt(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except OSError:
            return None
        except Exception:  # a damaged file: whatever unpickling may raise
            with contextlib.suppress(Exception):
                cache.flush()
            return None

    return attempt
