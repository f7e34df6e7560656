"""What the paper behind the package claims, measured: soft k-means against k-means.

F. Arredondo, Ucan Puc and Astengo Noguez, "K-Means as a Radial Basis function Network:
a Variational and Gradient-based Equivalence", arXiv:2603.04625 (2026), say that soft
centres collapse onto those of k-means as the temperature falls: faster than any power
with softmax, in proportion to it with entmax, and monotonically. Here soft k-means is
started from a fixed point of k-means at many temperatures, on four sets of data with
several seeds. What comes of it is drawn, tabled, and judged in words that follow from
the numbers. Run it with ``python benchmarks/paper.py [--out paper] [--seeds 12]
[--quick]``; it writes six figures, and the table and the words to ``paper.txt``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import textwrap
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from skrbfkmeans import RBFKMeans, energy

# Alpha, and how it looks.
STYLES = {
    1.0: {"label": "softmax", "color": "#009E73", "linestyle": "-"},
    1.5: {"label": "entmax-1.5", "color": "#0072B2", "linestyle": "--"},
    2.0: {"label": "sparsemax", "color": "#D55E00", "linestyle": "-."},
}

# Temperatures: of soft k-means, in hardening temperatures (for softmax, that of
# sparsemax); of the softmax of single rows and of what is timed, in spreads.
MULTIPLES = 2.0 ** np.arange(-3.0, 8.25, 0.5)
COLD, TIMED = 2.0 ** np.arange(-13.0, 1.0), 2.0 ** np.arange(-4.0, 4.0)

# Distances above this are not rounding; other differences below it are.
RESOLVED = ROUNDING = 1e-12

# Most iterations of a soft fit; slopes that count as about 1.
MOST, ABOUT_ONE = 600, (0.8, 1.25)

# Sets of data, with numbers of clusters.
DATA = {"blobs": 4, "two moons": 4, "spiral": 6, "circles": 6}


def drawn(name, n, seed):
    """Rows of a set of data: points, of one half or the other, with noise."""
    rng, half = np.random.default_rng(seed), np.arange(n) % 2
    if name == "blobs":
        middles = rng.normal(scale=4.0, size=(4, 2))
        return middles[np.arange(n) % 4] + rng.normal(size=(n, 2))
    u = rng.uniform(size=n)
    angle, radius, noise = {
        "two moons": (np.pi * (u + half), 1.0, 0.1),
        "spiral": (np.pi * (3.0 * np.sqrt(u) + half), np.sqrt(u), 0.03),
        "circles": (2.0 * np.pi * u, 1.0 - 0.5 * half, 0.05),
    }[name]
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    if name == "two moons":
        X += np.outer(half, [1.0, 0.5])
    return X + rng.normal(scale=noise, size=(n, 2))


# --- k-means, in NumPy; and the package's soft k-means ---


def squared_distances(X, centers):
    """Of each row to each centre."""
    return np.sum((X[:, np.newaxis] - centers) ** 2, axis=2)


def inertia(X, centers):
    """J, the sum of the squared distances to the nearest centre."""
    return squared_distances(X, centers).min(axis=1).sum()


def least_gap(X, centers):
    """Gamma, the least gap of a row between its two smallest squared distances."""
    return np.diff(np.sort(squared_distances(X, centers))[:, :2]).min()


def soft_fit(X, start, sigma, alpha, max_iter=MOST):
    """Soft k-means at one temperature, from given centres, until rounding."""
    model = RBFKMeans(len(start), init=start, schedule=float(sigma), alpha=alpha)
    return model.set_params(refine=None, max_iter=max_iter, tol=1e-26).fit(X)


def fixed_point(X, k, seed):
    """A warm start at a fixed point of k-means, and what k-means makes of it.

    They may differ in the last bit: a mean about the mean itself is rounded anew.
    """
    model = RBFKMeans(k, schedule=0.0, refine=None, max_iter=MOST, random_state=seed)
    start = model.fit(X).cluster_centers_
    return start, soft_fit(X, start, 0.0, 1.5).cluster_centers_


def em_path(X, start, sigma, alpha, n_iter=200):
    """Centres before and after each EM iteration."""
    path = [start]
    for _ in range(n_iter):
        R = energy.responsibilities(X, path[-1], sigma, alpha=alpha)
        masses = R.sum(axis=0)[:, np.newaxis]
        path.append(np.divide(R.T @ X, masses, out=path[-1].copy(), where=masses > 0))
    return np.array(path)


# --- what is measured ---


def largest_with(holds, low, high):
    """The largest float at which a condition holds, as it does at low, not at high."""
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def band(X, centers, sigmas, alpha):
    """Place of F between J (0) and J - 2 n sigma^2 H_max (1); least slack, in J."""
    J, k = inertia(X, centers), len(centers)
    h = np.log(k) if alpha == 1 else (1 - k ** (1 - alpha)) / (alpha * (alpha - 1))
    F = np.array([energy.free_energy(X, centers, s, alpha=alpha) for s in sigmas])
    widths = 2.0 * len(X) * sigmas**2 * h
    return (J - F) / widths, min(np.min(J - F), np.min(F - J + widths)) / J


def step_difference(X, start, alpha, spread):
    """Gradient step from EM step, at the spread, or cold EM step from Lloyd's."""
    options = {"alpha": alpha, "return_gradient": True}
    gradient = energy.free_energy(X, start, spread, **options)[1]
    masses = energy.responsibilities(X, start, spread, alpha=alpha).sum(axis=0)
    descended = start - gradient / (2.0 * masses[:, np.newaxis])
    labels = squared_distances(X, start).argmin(axis=1)
    lloyd = [X[labels == j].mean(axis=0) for j in range(len(start))]
    cold = 0.999 * np.sqrt(least_gap(X, start) * (alpha - 1.0 or 1e-3) / 2.0)
    pairs = (descended, spread), (lloyd, cold)
    ems = [(soft_fit(X, start, s, alpha, 1).cluster_centers_, a) for a, s in pairs]
    return max(np.abs(em - step).max() / spread for em, step in ems)


def measured(name, n, alpha, seed, multiples):
    """Soft k-means from the warm start of one seed at all temperatures."""
    X, k = drawn(name, n, seed), DATA[name]
    start, fixed = fixed_point(X, k, seed)
    spread, gamma = np.sqrt(inertia(X, fixed) / X.size), least_gap(X, fixed)
    finite = alpha if alpha > 1.0 else 2.0
    unit = min(energy.hardening_sigma(X, c, alpha=finite) for c in (start, fixed))

    def is_one_hot(sigma):
        R = energy.responsibilities(X, fixed, sigma, alpha=alpha)
        return np.count_nonzero(R) == len(X)

    def distance(model):
        moves = model.cluster_centers_ - fixed
        return np.sqrt(np.mean(np.sum(moves**2, axis=1))) / spread

    s, sigmas = SimpleNamespace(alpha=alpha), multiples * unit
    models = [soft_fit(X, start, sigma, alpha) for sigma in sigmas]
    s.distances = np.array([distance(model) for model in models])
    s.settled = np.array([model.n_iter_ < MOST for model in models])
    s.constant = np.max(s.distances * spread / sigmas)
    if alpha > 1.0:
        s.frozen = s.distances[multiples <= 1.0]
        s.hardening = np.sqrt((alpha - 1.0) * gamma / 2.0) / spread
        hottest = largest_with(is_one_hot, 0.0, 100.0 * spread)
        same = largest_with(
            lambda t: distance(soft_fit(X, start, t, alpha, 100)) == 0.0,
            unit * (1.0 - 1e-6), unit * (1.0 + 1e-6),
        )  # fmt: skip
        s.hottest, s.same = hottest / spread, same / unit - 1.0

    beyond = s.distances > RESOLVED
    first = models[np.argmax(beyond)].cluster_centers_
    again = soft_fit(X, first, 0.0, alpha)
    s.jumps = distance(again) > RESOLVED
    s.gains = s.jumps and again.inertia_ < (1.0 - ROUNDING) * inertia(X, fixed)
    known = beyond[:-1] & s.settled[:-1] & s.settled[1:]
    s.falls = np.any(known & (s.distances[1:] < 0.99 * s.distances[:-1]))
    below = beyond & (sigmas <= energy.critical_sigma(X, k, alpha=alpha))
    s.slope, s.coldest, s.rate = slopes(sigmas[below], s.distances[below], gamma)
    apart = X[np.random.default_rng(seed).choice(len(X), size=k, replace=False)]
    s.in_band, slack = band(X, fixed, sigmas, alpha)
    s.slack = min(slack, band(X, apart, sigmas, alpha)[1])
    s.steps = step_difference(X, apart, alpha, spread)
    return s


def slopes(sigmas, distances, gamma):
    """Log-log slopes: fitted; coldest; and that over exp(-gamma / (2 sigma^2))'s."""
    if len(sigmas) < 2:
        return np.nan, np.nan, np.nan
    x, y = np.log(sigmas), np.log(distances)
    rise, rises = y[1] - y[0], np.diff(-gamma / (2.0 * sigmas[:2] ** 2))
    return np.polyfit(x, y, 1)[0], rise / (x[1] - x[0]), rise / rises[0]


def costs(n, alpha, seed):
    """Seconds of an iteration in those of a hard one, and mean support, by sigma."""
    rng = np.random.default_rng(seed)
    X = rng.normal(scale=2.0, size=(32, 8))[np.arange(n) % 32] + rng.normal(size=(n, 8))
    start = X[rng.choice(n, size=32, replace=False)]
    seconds, supports = [], []
    for sigma in [0.0, 0.0, *TIMED]:  # the first warms up; clusters have spread 1
        begin = time.perf_counter()
        model = soft_fit(X, start, sigma, alpha, 20)
        seconds.append((time.perf_counter() - begin) / model.n_iter_)
        supports.append(model.history_["support"].mean())
    return np.array(seconds[2:]) / seconds[1], supports[2:]


def softmax_errors(name, n, seed, dtype):
    """By sigma, of naive and our softmax: share of NaN rows, error of the others."""
    X = drawn(name, n, seed)
    centers = fixed_point(X, DATA[name], seed)[1]
    spread = np.sqrt(inertia(X, centers) / X.size)
    X, centers, found = X.astype(dtype), centers.astype(dtype), []
    D = squared_distances(X.astype(np.float64), centers.astype(np.float64))
    D -= D.min(axis=1, keepdims=True)
    for sigma in (COLD * spread).astype(dtype):
        with np.errstate(under="ignore", invalid="ignore"):
            exact = np.exp(-D / (2.0 * np.float64(sigma) ** 2))
            naive = np.exp(-squared_distances(X, centers) / (2.0 * sigma * sigma))
            exact, naive = (E / E.sum(axis=1, keepdims=True) for E in (exact, naive))
        for R in naive, energy.responsibilities(X, centers, float(sigma), alpha=1):
            lost = np.isnan(R).any(axis=1)
            error = np.nan if lost.all() else np.abs(R - exact)[~lost].max()
            found.append((lost.mean(), error))
    return np.reshape(found, (len(COLD), 2, 2))


# --- in a table and in words ---


def values(runs, name):
    """An attribute of those runs that have it, as an array."""
    return np.array([getattr(s, name) for s in runs if hasattr(s, name)])


def span(numbers, form=".2f"):
    """Median and range, as text."""
    known = np.asarray(numbers)[np.isfinite(numbers)]
    if known.size == 0:
        return "-"
    return f"{np.median(known):{form}} [{known.min():{form}}, {known.max():{form}}]"


def count(flags):
    """How many of how many, as text."""
    return f"{np.count_nonzero(flags)}/{np.size(flags)}" if np.size(flags) else "-"


LEGEND = """
hardening  sqrt((alpha - 1) gamma / 2), in spreads of the clusters
not 0      distances from k-means, at or below it, that are not exactly 0
slope      of log distance against log sigma, up to the critical temperature
coldest    slope between the two coldest distances above rounding
jumps      runs whose first distance is from another fixed point of k-means
falls      runs in which the distance falls by 1 % or more where sigma rises
slack      least distance of F from the ends of its band, in J
Medians with [ranges], or counts, over the seeds."""


def table(found):
    """A line for each set of data and alpha."""
    lines = [["data", "alpha", *(x[:9].strip() for x in LEGEND.split("\n")[1:-1])]]
    for (name, alpha), runs in found.items():
        spans = [span(values(runs, x)) for x in ("slope", "coldest")]
        counts = [count(values(runs, x)) for x in ("jumps", "falls")]
        hard = [span(values(runs, "hardening")), count(values(runs, "frozen") != 0.0)]
        slack = f"{values(runs, 'slack').min():.0e}"
        lines.append([name, f"{alpha:g}", *hard, *spans, *counts, slack])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [[c.rjust(w) for c, w in zip(r, widths, strict=True)] for r in lines]
    return "\n".join([*map("  ".join, rows), LEGEND])


def words(found, expense, errors):
    """Where the measured behaviour agrees with the claims, and where it differs."""
    every = [s for runs in found.values() for s in runs]
    soft, sparse = ([s for s in every if (s.alpha > 1) == a] for a in (False, True))
    coldest, fitted = values(soft, "coldest"), values(soft, "slope")
    cold, slope = np.concatenate(values(sparse, "frozen")), values(sparse, "slope")
    about = (slope >= ABOUT_ONE[0]) & (slope <= ABOUT_ONE[1])
    off = np.abs(values(sparse, "hottest") / values(sparse, "hardening") - 1.0).max()
    same, slack = values(sparse, "same"), values(every, "slack")
    steps, unsettled = values(every, "steps").max(), ~values(every, "settled")
    by_data, falls = {name: [] for name in DATA}, {alpha: [] for alpha in STYLES}
    for (name, alpha), runs in found.items():
        by_data[name] += [s.slope for s in runs if alpha > 1.0]
        falls[alpha] += [s.falls for s in runs]
    by_data = "; ".join(f"{name} {span(x)}" for name, x in by_data.items())
    falls = "; ".join(f"{STYLES[a]['label']} {count(x)}" for a, x in falls.items())
    price = "; ".join(
        f"{STYLES[alpha]['label']} {span(seconds[:, TIMED == 1.0])}, with "
        f"{np.median(support[:, TIMED == 1.0]):.1f} of 32 responsibilities"
        for alpha, (seconds, support) in expense.items()
    )
    digits = "; ".join(
        f"in {dtype}, the formula as it stands gives NaN from a sigma of "
        f"{COLD[np.any(e[:, :, 0, 0] > 0.0, axis=0)].max(initial=0.0):.2g} spreads "
        f"down, while ours is off by at most {np.nanmax(e[:, :, 1, 1]):.0e} and NaN in "
        f"{100.0 * e[:, :, 1, 0].mean():.0f} % of the rows"
        for dtype, e in errors.items()
    )
    claims = [("Softmax collapses faster than any power of sigma",
        np.all(coldest > fitted), f"The log-log slope at the coldest distances above "
        f"rounding is {span(coldest)}, {span(values(soft, 'rate'))} times that of "
        "exp(-gamma / (2 sigma^2)); a fit up to the critical temperature has "
        f"{span(fitted)}.",
    ), ("Entmax collapses as O(sigma)", not np.any(cold),
        "In the cold the distance is 0, below any power of sigma; at all temperatures "
        f"it is at most C sigma, with C = {span(values(sparse, 'constant'))}.",
    ), ("That slope is about 1", np.mean(about) >= 0.9,
        "Fitted from the first distance that is not 0 to the critical temperature, "
        f"slopes depend on the data: {by_data}. Of all, {count(about)} are between "
        f"{ABOUT_ONE[0]} and {ABOUT_ONE[1]}. In {count(values(sparse, 'jumps'))} runs "
        "the distance begins with a jump: the first soft fixed point above the "
        "hardening temperature belongs to another fixed point of k-means, in "
        f"{count(values(sparse, 'gains')[values(sparse, 'jumps')])} to one of lower "
        "inertia.",
    ), ("Entmax is k-means in the limit only", np.any(cold),
        f"At or below the hardening temperature, {count(cold == 0.0)} distances are 0 "
        "to the last bit. The hottest sigma with one-hot rows is "
        f"sqrt((alpha - 1) gamma / 2) up to a relative {off:.0e}; the hottest that "
        "gives the very centres of k-means is a relative "
        f"{same.min():.0e} to {same.max():.0e} above it.",
    ), ("The collapse is monotone", not np.any(values(every, "falls")),
        f"Runs in which the distance falls by 1 % or more from a temperature to the "
        f"next one above: {falls}. Fits "
        f"that had not settled, {100 * unsettled.mean():.1f} %, do not count.",
    ), ("J - 2 n sigma^2 H_max <= F <= J", np.all(slack > -ROUNDING),
        f"Violated in {count(slack <= -ROUNDING)} runs; least slack: "
        f"{slack.min():.0e} J.",
    ), ("A gradient step of 1 / (2 N_j) is an EM step, a cold one Lloyd's",
        steps < ROUNDING, f"Largest difference: {steps:.0e} spreads.",
    )]  # fmt: skip
    verdicts = {True: "AGREES", False: "DIFFERS"}
    return [
        *(f"{what}: {verdicts[bool(holds)]}. {why}" for what, holds, why in claims),
        f"Seconds of an iteration at the spread, in those of a hard one: {price}.",
        f"Softmax in finite precision: {digits}.",
    ]


# --- in figures ---


def line(ax, x, runs, **style):
    """Median over runs, within a band from the least to the largest."""
    known = np.isfinite(runs).any(axis=0)
    x, runs = x[known], runs[:, known]
    ax.plot(x, np.nanmedian(runs, axis=0), **style)
    low, high = np.nanmin(runs, axis=0), np.nanmax(runs, axis=0)
    ax.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0.0)
    ax.set_xscale("log")


def draw_runs(plt, found, multiples, name, label):
    """An attribute against the temperature: panels for data, lines for alpha."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True)
    for (data, alpha), runs in found.items():
        ax = axes.flat[list(DATA).index(data)]
        line(ax, multiples, values(runs, name), marker=".", **STYLES[alpha])
        ax.axvline(1.0, color="0.6", linewidth=0.8)
        ax.set_title(data)
    axes[0, 0].legend(frameon=False)
    figure.supxlabel("σ / √((α−1)γ/2), for softmax σ / √(γ/2)")
    figure.supylabel(label)
    return figure


def draw_hardening(plt, found):
    """The hardening temperature that is measured against that of the formula."""
    figure, ax = plt.subplots(figsize=(5.4, 4.6))
    markers = {"blobs": "o", "two moons": "^", "spiral": "s", "circles": "x"}
    for (name, alpha), runs in found.items():
        style = {**STYLES[alpha], "linestyle": "", "markerfacecolor": "none"}
        style["label"] = f"{name}, {style['label']}"
        x, y = values(runs, "hardening"), values(runs, "hottest")
        if alpha > 1.0:
            ax.plot(x, y, marker=markers[name], **style)
    ax.axline((1.0, 1.0), slope=1.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set(xscale="log", yscale="log", xlabel="√((α−1)γ/2) / spread")
    ax.set_ylabel("hottest σ with one-hot rows / spread")
    ax.legend(frameon=False, fontsize="small")
    return figure


def draw_trajectories(plt, n):
    """Paths of the centres from random rows: k-means, and soft at the spread."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7.4))
    for ax, (name, k) in zip(axes.flat, DATA.items(), strict=True):
        X = drawn(name, n, 0)
        start = X[np.random.default_rng(1).choice(n, size=k, replace=False)]
        spread = np.sqrt(inertia(X, fixed_point(X, k, 0)[1]) / X.size)
        ax.plot(*X.T, ".", color="0.8", markersize=4)
        paths = [({"label": "k-means", "color": "black", "linestyle": ":"}, 0.0, 1.5)]
        paths += [(style, spread, alpha) for alpha, style in STYLES.items()]
        for style, sigma, alpha in paths:
            path = em_path(X, start, sigma, alpha)
            ax.plot(*path[:, 0].T, **style)
            ax.plot(*np.moveaxis(path[:, 1:], 2, 0), **{**style, "label": None})
            ax.plot(*path[-1].T, "o", color=style["color"], markersize=5)
        ax.plot(*start.T, "s", color="black", markerfacecolor="white", label="start")
        ax.set(title=name, aspect="equal", xticks=[], yticks=[])
    lines = axes[0, 0].get_legend_handles_labels()
    figure.legend(*lines, ncols=5, loc="outside lower center", frameon=False)
    return figure


def draw_cost(plt, expense):
    """Seconds of an iteration and support against the temperature."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    for alpha, (seconds, support) in expense.items():
        line(left, TIMED, seconds, **STYLES[alpha])
        line(right, TIMED, support, **STYLES[alpha])
    left.axhline(1.0, color="0.6", linewidth=0.8)
    left.set(xlabel="σ / spread", ylabel="seconds of an iteration / of a hard one")
    left.set_ylim(0.0)
    left.legend(frameon=False)
    right.set(xlabel="σ / spread", ylabel="responsibilities of a row that are not 0")
    right.set(yscale="log", yticks=(ticks := [1, 2, 4, 8, 16, 32]), yticklabels=ticks)
    right.minorticks_off()
    return figure


def draw_softmax(plt, errors):
    """NaN and errors of softmax, naive and ours, in both precisions."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    whose = ("naive", "#D55E00"), ("ours", "#0072B2")
    for (dtype, found), dash in zip(errors.items(), ("--", "-"), strict=True):
        for (who, colour), runs in zip(whose, np.moveaxis(found, 2, 0), strict=True):
            style = {"linestyle": dash, "label": f"{who}, {dtype}", "color": colour}
            line(left, COLD, 100.0 * runs[:, :, 0], **style)
            line(right, COLD, runs[:, :, 1], **style)
    left.set(xlabel="σ / spread", ylabel="rows that are NaN, %")
    left.legend(frameon=False)
    right.set(xlabel="σ / spread", ylabel="largest error of the other rows")
    right.set_yscale("symlog", linthresh=1e-18)
    right.set(ylim=(-2e-19, 1.0), yticks=[0.0, *10.0 ** np.arange(-16.0, 1.0, 4.0)])
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="paper", help="folder of what is written")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="2 seeds, few rows")
    options = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["figure.constrained_layout.use"] = True
    begin = time.perf_counter()
    n, n_timed, seeds, multiples = 200, 10_000, range(options.seeds), MULTIPLES
    if options.quick:
        n, n_timed, seeds, multiples = 80, 1000, range(2), MULTIPLES[:18:2]
    found, expense, errors = {}, {}, {}
    for name, alpha in product(DATA, STYLES):
        found[name, alpha] = [measured(name, n, alpha, s, multiples) for s in seeds]
    for alpha in STYLES:
        expense[alpha] = np.swapaxes([costs(n_timed, alpha, s) for s in seeds], 0, 1)
    for dtype in "float32", "float64":
        runs = [softmax_errors(name, n, s, dtype) for name, s in product(DATA, seeds)]
        errors[dtype] = np.array(runs)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    label, ends = "distance of the centres from k-means / spread", "(2nσ²$H_{\\max}$)"
    figures = {
        "collapse": draw_runs(plt, found, multiples, "distances", label),
        "hardening": draw_hardening(plt, found),
        "band": draw_runs(plt, found, multiples, "in_band", f"(J − F) / {ends}"),
        "trajectories": draw_trajectories(plt, n),
        "cost": draw_cost(plt, expense),
        "softmax": draw_softmax(plt, errors),
    }
    collapse = figures["collapse"].axes[0]
    collapse.set_yscale("symlog", linthresh=1e-16, linscale=0.6)
    collapse.set(ylim=(-3e-17, 20.0), yticks=[0.0, 1e-15, 1e-10, 1e-5, 1.0])
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    said = [textwrap.fill(text, 88) for text in words(found, expense, errors)]
    text = "\n\n".join([table(found), *said])
    (folder / "paper.txt").write_text(text + "\n", encoding="utf-8")
    print(f"{text}\n\n{time.perf_counter() - begin:.0f} seconds")


if __name__ == "__main__":
    main()
