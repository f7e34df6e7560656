"""The one decorator of the compiled functions.

Kernels run without the GIL, compile at first use, and keep their machine code
on disk wherever that is possible. Where it is not (a read-only installation,
an import from a zip file, a full disk) they are compiled in memory instead.
"""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import os

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
    """Turn on numba's cache on disk, unless there is no place for it."""
    if not os.path.isfile(dispatcher.py_func.__code__.co_filename):
        return  # imported from a zip file: numba would fail at the first call
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # "no locator available": no directory can be written
        return
    cache = dispatcher._cache
    for name in ("load_overload", "save_overload"):
        setattr(cache, name, _forgiving(cache, getattr(cache, name)))


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
