"""NumPy twins of the compiled functions: slow, short and plainly right."""

# SPDX-License-Identifier: BSD-3-Clause

from types import SimpleNamespace

import numpy as np


def entmax(z, alpha):
    """Entmax of the last axis: softmax, or bisection on the threshold tau."""
    z = z - z.max(axis=-1, keepdims=True)
    if alpha == 1.0:
        p = np.exp(z)
        return p / p.sum(axis=-1, keepdims=True)
    u, power = (alpha - 1.0) * z, 1.0 / (alpha - 1.0)
    low, high = np.full_like(z[..., :1], -1.0), np.zeros_like(z[..., :1])
    for _ in range(60):
        tau = 0.5 * (low + high)
        enough = (np.maximum(u - tau, 0.0) ** power).sum(-1, keepdims=True) >= 1.0
        low, high = np.where(enough, tau, low), np.where(enough, high, tau)
    p = np.maximum(u - low, 0.0) ** power
    return p / p.sum(axis=-1, keepdims=True)


def tsallis_entropy(p, alpha):
    """Entropy of the last axis; 0 log 0 is 0."""
    if alpha == 1.0:
        return -np.sum(p * np.log(np.where(p > 0.0, p, 1.0)), axis=-1)
    return np.sum(p - p**alpha, axis=-1) / (alpha * (alpha - 1.0))


def largest_entropy(k, alpha):
    """Entropy of the uniform distribution over k."""
    return tsallis_entropy(np.full(k, 1.0 / k), alpha)


def squared_distances(X, centers):
    """(x - c)^2, summed over features, in float64."""
    X, centers = np.asarray(X, np.float64), np.asarray(centers, np.float64)
    return np.stack([((X - c) ** 2).sum(axis=1) for c in centers], axis=1)


def responsibilities(X, centers, sigma, alpha):
    """Entmax of -d^2 / (2 sigma^2); at sigma 0, one for the first nearest."""
    d2 = squared_distances(X, centers)
    if sigma == 0.0:
        return np.eye(len(centers))[d2.argmin(axis=1)]
    return entmax((d2.min(axis=1, keepdims=True) - d2) / (2.0 * sigma**2), alpha)


def free_energy(X, centers, sigma, alpha, weights):
    """Free energy and its gradient."""
    d2 = squared_distances(X, centers)
    r = responsibilities(X, centers, sigma, alpha)
    values = (r * d2).sum(axis=1) - 2.0 * sigma**2 * tsallis_entropy(r, alpha)
    shares = weights[:, np.newaxis] * r
    differences = centers[np.newaxis] - np.asarray(X, np.float64)[:, np.newaxis]
    gradient = 2.0 * (shares[:, :, np.newaxis] * differences).sum(axis=0)
    return weights @ values, gradient


def em_step(X, centers, sigma, alpha, weights):
    """Sums that the M-step needs; softmax shares below exp(-36) are rounding."""
    r = responsibilities(X, centers, sigma, alpha)
    d2 = squared_distances(X, centers)
    values = (r * d2).sum(axis=1) - 2.0 * sigma**2 * tsallis_entropy(r, alpha)
    least = np.exp(-36.0) * r.max(axis=1, keepdims=True) if alpha == 1.0 else 0.0
    support = (r > least).sum(axis=1)
    return SimpleNamespace(
        sums=(weights[:, np.newaxis] * r).T @ np.asarray(X, np.float64),
        masses=weights @ r,
        free_energy=weights @ values,
        soft_weight=weights @ (support > 1),
        support=weights @ support,
        labels=d2.argmin(axis=1),
    )


def m_step(centers, step, learning_rate=1.0):
    """Centres moved towards the weighted means; those without mass stay."""
    moved = centers.copy()
    for j in np.flatnonzero(step.masses > 1e-12 * step.masses.sum()):
        moved[j] += learning_rate * (step.sums[j] / step.masses[j] - centers[j])
    return moved


def potentials(X, weights, closest, candidates):
    """Weighted sum of squared distances with each candidate as one more centre."""
    return weights @ np.minimum(closest[:, None], squared_distances(X, candidates))


def lloyd(X, centers, weights, max_iter=300):
    """K-means until the labels repeat, without relocation: centres and labels."""
    labels = None
    for _ in range(max_iter):
        step = em_step(X, centers, 0.0, 2.0, weights)
        if labels is not None and np.array_equal(labels, step.labels):
            break
        labels, centers = step.labels, m_step(centers, step)
    return centers, labels


def anneal(X, centers, sigmas, alpha, weights, learning_rate, max_iter, tol):
    """Every iteration's history, without relocation and parting, and the centres."""
    position, last, history = 0, len(sigmas) - 1, []
    labels, was_hard, at_means, former_shift = None, False, False, np.inf
    for _ in range(max_iter):
        sigma = sigmas[position]
        step = em_step(X, centers, sigma, alpha, weights)
        hard = step.soft_weight == 0.0
        as_kmeans = hard and (sigma == 0.0 or (was_hard and position == last))
        rate = 1.0 if as_kmeans else learning_rate
        moved = m_step(centers, step, rate)
        shift = np.linalg.norm(moved - centers)
        settled = shift**2 <= tol and shift <= former_shift
        if hard:
            settled = at_means and np.array_equal(labels, step.labels)
        total = weights.sum()
        soft_fraction, support = step.soft_weight / total, step.support / total
        sigma_now = 0.0 if as_kmeans else sigma
        history.append((sigma_now, step.free_energy, shift, soft_fraction, support))
        centers, labels, was_hard = moved, step.labels, hard
        at_means = hard and rate == 1.0
        if settled and position == last:
            break
        if hard and np.all(np.diff(sigmas[position:]) <= 0.0):
            position = last
        elif settled:  # on to the next other temperature
            while position < last and sigmas[position + 1] == sigma:
                position += 1
        position = min(position + 1, last)
        former_shift = shift if sigmas[position] == sigma else np.inf
    return np.array(history), centers


def critical_sigma(X, k, alpha, weights):
    """Root of k^(alpha - 1) times the largest variance."""
    covariance = np.cov(X.T, aweights=weights, ddof=0).reshape(X.shape[1], -1)
    return np.sqrt(k ** (alpha - 1.0) * np.linalg.eigvalsh(covariance)[-1])


def hardening_sigma(X, centers, alpha):
    """Root of (alpha - 1) / 2 times the least gap of the two smallest d^2."""
    d2 = np.sort(squared_distances(X, centers), axis=1)
    return np.sqrt((alpha - 1.0) * (d2[:, 1] - d2[:, 0]).min() / 2.0)


def halve(X, weights):
    """Best cut along the principal axis: what it saves, and the two means."""
    shifted = X - np.average(X, axis=0, weights=weights)
    heights = shifted @ np.linalg.eigh((shifted.T * weights) @ shifted)[1][:, -1]
    order, cuts = np.argsort(heights), []
    for cut in range(1, len(X)):
        halves = order[:cut], order[cut:]
        masses = np.array([weights[half].sum() for half in halves])
        levels = [np.average(heights[half], weights=weights[half]) for half in halves]
        saved_along = masses.prod() / masses.sum() * (levels[0] - levels[1]) ** 2
        a, b = (np.average(X[half], axis=0, weights=weights[half]) for half in halves)
        saved = masses.prod() / masses.sum() * np.sum((a - b) ** 2)
        cuts.append((saved_along, saved, a, b))
    return max(cuts, key=lambda cut: cut[0])[1:]


def removal_cost(X, weights, centers, j, masses):
    """Cost of the rows of centre j at the next, or of all at one that follows."""
    d2 = squared_distances(X, centers)
    d2_others, others = np.delete(d2, j, axis=1), np.delete(np.arange(len(centers)), j)
    moves = np.sum((centers[others] - centers[j]) ** 2, axis=1)
    merged = masses[j] * masses[others] / (masses[j] + masses[others]) * moves
    return min(weights @ (d2_others.min(axis=1) - d2[:, j]), merged.min())


def settle(X, centers, sigma, alpha, weights, stride):
    """A soft step with some rows, then Lloyd: centres, labels and inertia."""
    some = slice(None, None, stride)
    step = em_step(X[some], centers, sigma, alpha, weights[some])
    centers, labels = lloyd(X, m_step(centers, step), weights)
    return centers, labels, em_step(X, centers, 0.0, 2.0, weights).free_energy


def absorb(X, weights, centers, masses, sigma, alpha):
    """Move the centres towards the means of a batch, in place, and grow the masses."""
    shares = responsibilities(X, centers, sigma, alpha) * weights[:, np.newaxis]
    own = shares.sum(axis=0)
    masses += own
    for j in np.flatnonzero(own > 0.0):
        mean = shares[:, j] @ X / own[j]
        centers[j] += own[j] / masses[j] * (mean - centers[j])
