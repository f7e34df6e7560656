"""Entmax and its entropy, of one row of numbers at a time."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit

# An `alpha` of None is 1.5, the default: a kernel that is called with None compiles
# what that needs and no more.


def as_argument(alpha):
    """Alpha as kernels want it."""
    return None if alpha == 1.5 else alpha


@jit(inner=True)
def entmax_row(y, n, alpha, p):
    """Entmax of ``y[:n]``, whose largest is 0, into ``p[:n]``."""
    if alpha is None:
        entmax15_row(y, n, p)
    elif alpha == 1.0:
        for j in range(n):
            p[j] = np.exp(y[j])
    elif alpha == 2.0:
        sparsemax_row(y, n, p)
    else:
        entmax_any_row(y, n, alpha, p)
    total = 0.0
    for j in range(n):
        total += p[j]
    for j in range(n):
        p[j] /= total


@jit(inner=True)
def entmax15_row(y, n, p):
    """Entmax with alpha = 1.5, exactly: p = max(y / 2 - tau, 0)^2.

    ``sqrt(sum p)`` is convex in tau, so Newton's steps towards 1 approach from
    the left and never lose a member of the support; once the closed form of
    the members found keeps them all, it is the solution.
    """
    tau = -1.0
    while True:
        count, total, square, least = 0, 0.0, 0.0, 0.0
        for j in range(n):
            u = 0.5 * y[j]
            if u > tau:
                count += 1
                total += u
                square += u * u
                least = min(least, u)
        mean = total / count
        scatter = square - mean * total
        if scatter < 1.0:
            closed = mean - np.sqrt((1.0 - scatter) / count)
            if closed < least:
                tau = closed
                break
        slope = total - count * tau
        norm = np.sqrt(square - tau * (total + slope))
        step = (norm - 1.0) * norm / slope
        if not tau + step > tau:
            break
        tau += step
    for j in range(n):
        margin = 0.5 * y[j] - tau
        p[j] = margin * margin if margin > 0.0 else 0.0


@jit(inner=True)
def sparsemax_row(y, n, p):
    """Entmax with alpha = 2, exactly: p = max(y - tau, 0).

    The threshold of all candidates is too low; raising it to that of the
    candidates above it ends, after finitely many steps, at the solution.
    """
    tau = -1.0
    while True:
        count, total = 0, 0.0
        for j in range(n):
            if y[j] > tau:
                count += 1
                total += y[j]
        raised = (total - 1.0) / count
        if not raised > tau:
            break
        tau = raised
    for j in range(n):
        p[j] = max(y[j] - tau, 0.0)


@jit(inner=True)
def entmax_any_row(y, n, alpha, p):
    """Entmax with any alpha > 1, to the last useful bit.

    Written as p = (1 + (alpha - 1) (y - s))^{1 / (alpha - 1)}, which tends to
    exp(y - s) as alpha tends to 1 and loses no digits there. Newton's method
    on the norm of p, kept inside a shrinking bracket of s.
    """
    a1 = alpha - 1.0
    low, high = 0.0, -np.expm1(-a1 * np.log(n)) / a1
    s = low
    for _ in range(200):
        total, slope = 0.0, 0.0
        for j in range(n):
            t = a1 * (y[j] - s)
            if t > -1.0:
                logarithm = np.log1p(t)
                value = np.exp(logarithm / a1)
                total += value
                slope += value * np.exp(-logarithm)
        if total >= 1.0:
            low = s
        else:
            high = s
        if total > 0.0:
            log_total = np.log(total)
            step = np.expm1(a1 * log_total) / a1 * np.exp((2.0 - alpha) * log_total)
            s_next = s + step / slope
        else:
            s_next = high
        if not low < s_next < high:
            s_next = 0.5 * (low + high)
        if s_next == s or not low < s_next < high:
            break
        if abs(s_next - s) <= 1e-17 * (1.0 + s):
            break
        s = s_next
    for j in range(n):
        t = a1 * (y[j] - s)
        p[j] = np.exp(np.log1p(t) / a1) if t > -1.0 else 0.0


@jit(inner=True)
def entropy_row(p, n, alpha):
    """Tsallis entropy of ``p[:n]``, which sums to one; Shannon's at alpha 1."""
    total = 0.0
    if alpha is None:
        for j in range(n):
            total += p[j] * np.sqrt(p[j])
        return (1.0 - total) / 0.75
    if alpha == 2.0:
        for j in range(n):
            total += p[j] * p[j]
        return (1.0 - total) / 2.0
    for j in range(n):
        if p[j] > 0.0:
            if alpha == 1.0:
                total -= p[j] * np.log(p[j])
            else:
                total -= p[j] * np.expm1((alpha - 1.0) * np.log(p[j]))
    return total if alpha == 1.0 else total / (alpha * (alpha - 1.0))


@jit
def entmax_rows(Z, alpha, P):
    """Entmax of each row of Z, whose entries may be minus infinity."""
    n, k = Z.shape
    y = np.empty(k)
    p = np.empty(k)
    members = np.empty(k, np.int64)
    limit = -2.0
    if alpha is not None:
        limit = -np.inf if alpha == 1.0 else -1.0 / (alpha - 1.0)
    for i in range(n):
        largest = -np.inf
        for j in range(k):
            largest = max(largest, Z[i, j])
        count = 0
        for j in range(k):
            P[i, j] = 0.0
            difference = Z[i, j] - largest
            if difference > limit:
                y[count] = difference
                members[count] = j
                count += 1
        entmax_row(y, count, alpha, p)
        for c in range(count):
            P[i, members[c]] = p[c]
