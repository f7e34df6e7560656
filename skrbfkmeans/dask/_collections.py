"""Rows and weights in Dask collections: what is allowed, and their chunks."""

# SPDX-License-Identifier: BSD-3-Clause

import dask
import numpy as np
from dask.array import Array


def blocks_of(X):
    """The chunks of a collection of rows, as delayed objects."""
    check_is_table(X)
    if isinstance(X, Array):
        return list(in_full_rows(X).to_delayed().ravel())
    return list(X.to_delayed())


def check_is_table(X):
    """Raise a ValueError if a Dask collection is no 2-D array and no data frame."""
    if isinstance(X, Array):
        if X.ndim != 2:
            raise ValueError(f"X must be a 2-D Dask array; its shape is {X.shape}.")
    elif _is_series(X):
        frame = "to_frame()" if X.name is None else f"frame[[{X.name!r}]]"
        raise ValueError(
            "X must be a Dask array or data frame; it is a series. For one feature, "
            f"give it a frame of one column, such as {frame}."
        )
    elif not (_is_of_pandas(X) and X.ndim == 2):
        raise ValueError(f"X must be a Dask array or data frame; it is {_kind_of(X)}.")


def check_is_column(weights):
    """Raise a ValueError if a Dask collection is no 1-D array and no series."""
    if isinstance(weights, Array):
        if weights.ndim != 1:
            raise ValueError(
                f"sample_weight must be a 1-D Dask array; its shape is {weights.shape}."
            )
    elif not _is_series(weights):
        raise ValueError(
            "sample_weight must be a 1-D Dask array or a series; it is "
            f"{_kind_of(weights)}."
        )


def _is_of_pandas(X):
    """Whether a Dask collection is a frame, a series or an index."""
    return (
        hasattr(X, "to_delayed") and hasattr(X, "_meta") and hasattr(X, "npartitions")
    )


def _is_series(X):
    """Whether a Dask collection is one column, or an index."""
    return _is_of_pandas(X) and X.ndim == 1 and hasattr(X, "name")


def _kind_of(X):
    """What a collection is, in words."""
    return f"a {type(X).__module__}.{type(X).__name__}"


def in_full_rows(X):
    """An array with all features in one chunk."""
    return X.rechunk({1: -1}) if X.ndim > 1 and X.numblocks[1] > 1 else X


def weights_of(X, blocks, sample_weight, compute):
    """The weights that go with each of the chunks of X."""
    if sample_weight is None or np.isscalar(sample_weight):
        return [sample_weight] * len(blocks)
    if not dask.is_dask_collection(sample_weight):
        return _cut(np.asarray(sample_weight), blocks, X, compute)
    check_is_column(sample_weight)
    if isinstance(sample_weight, Array) and isinstance(X, Array):
        sizes = X.chunks[:1] + sample_weight.chunks
        if not np.isnan(np.concatenate(sizes)).any():
            if sample_weight.shape != X.shape[:1]:
                raise ValueError(
                    f"sample_weight.shape == {sample_weight.shape}, expected "
                    f"{X.shape[:1]}!"
                )
            sample_weight = sample_weight.rechunk(X.chunks[:1])
    weights = list(np.ravel(sample_weight.to_delayed()))
    if len(weights) != len(blocks):
        raise ValueError(
            f"sample_weight has {len(weights)} chunks, but X has {len(blocks)}, and "
            "their sizes are not known: give it the chunks or partitions of X."
        )
    return weights


def _cut(weights, blocks, X, compute):
    """Weights in memory, cut as the chunks of X are."""
    sizes = X.chunks[0] if isinstance(X, Array) else (np.nan,)
    if np.isnan(sizes).any():
        sizes = compute([dask.delayed(_n_rows)(block) for block in blocks])[0]
    if weights.shape != (sum(sizes),):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected {(sum(sizes),)}!"
        )
    return np.split(weights, np.cumsum(sizes)[:-1])


def _n_rows(block):
    return block.shape[0]


def dtype_of(X):
    """The precision of results for X, as far as is known without computing."""
    check_is_table(X)
    dtypes = [X.dtype] if isinstance(X, Array) else list(X.dtypes)
    is_numpy = all(isinstance(dtype, np.dtype) for dtype in dtypes)
    is_single = is_numpy and np.result_type(*dtypes) == np.float32
    return np.dtype(np.float32 if is_single else np.float64)
