"""An encoder and its clusters, trained together: handwritten digits, ten clusters.

Accuracy (clusters matched to digits one to one) and normalised mutual information, in
percent, over seeds: the mean, the spread and the worst. The gain is that in accuracy
over the same autoencoder followed by k-means, seed by seed. The labels of the digits
score the rows of this table and are used for nothing else. "Plain" has neither
distorted images nor neighbours; "free energy" has no sharpened targets. Run it with
``python benchmarks/digits.py [--seeds 10] [--out FILE]``; it needs PyTorch.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
from copy import deepcopy
from time import perf_counter

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR

from skrbfkmeans.schedules import Geometric
from skrbfkmeans.torch import RBFKMeansLayer

K = 10
N_CODES = 10
ALONE, JOINT = 200, 100  # epochs
X, y = load_digits(return_X_y=True)
X /= 16.0
IMAGES = torch.as_tensor(X, dtype=torch.float32)


def neighbours(k):
    """The nearest rows of each row in the space of pixels, itself the first."""
    if k == 1:
        return torch.arange(len(X))[:, None]
    search = NearestNeighbors(n_neighbors=k).fit(X)
    return torch.as_tensor(search.kneighbors(X, return_distance=False))


class Autoencoder(nn.Module):
    """64 pixels, a few codes of variance one, 64 pixels."""

    def __init__(self, width=256):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, N_CODES), nn.BatchNorm1d(N_CODES, affine=False),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(N_CODES, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64),
        )  # fmt: skip

    @torch.no_grad()
    def codes(self, near):
        """Codes of all images, each averaged over the neighbours of the image.

        Its squared distances to two centres differ by as much as those of neighbours do
        on average, so this is to assign by averaged squared distances.
        """
        self.encoder.eval()
        codes = self.encoder(IMAGES)
        self.encoder.train()
        return codes[near].mean(dim=1)


def distorted(images):
    """Images turned by up to 20 degrees, moved by half a pixel, scaled and slanted."""
    angle, scale, slant, right, down = 2.0 * torch.rand(5, len(images)) - 1.0
    angle, scale = 0.35 * angle, 1.0 + 0.2 * scale
    cos, sin = scale * angle.cos(), scale * angle.sin()
    rows = (cos, 0.2 * slant - sin, right / 8.0), (sin, cos, down / 8.0)
    maps = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
    shape = len(images), 1, 8, 8
    grid = functional.affine_grid(maps, shape, align_corners=False)
    moved = functional.grid_sample(images.view(shape), grid, align_corners=False)
    return moved.view(-1, 64)


def train(model, n_epochs, near, plain=False, layer=None, sharpen=2.0):
    """Train the autoencoder; with a layer, its centres together with it."""
    wanted = IMAGES[near].mean(dim=1)
    parameters = list(model.parameters()) + list(layer.parameters() if layer else [])
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    decay = CosineAnnealingLR(optimizer, n_epochs)
    for epoch in range(n_epochs):
        if layer:
            codes = model.codes(near)
            layer.measure_(codes).set_progress_(epoch / n_epochs)
            targets = sharpened(layer, codes)
        for batch in torch.randperm(len(IMAGES)).split(256)[:-1]:
            images = IMAGES[batch]
            codes = model.encoder(images if plain else distorted(images))
            errors = (model.decoder(codes) - wanted[batch]).square()
            loss = errors.sum(dim=1).mean()
            if layer:
                energy = layer.free_energy(codes)
                d2 = (codes[:, None] - layer.centers).square().sum(dim=2)
                excess = (targets[batch] * d2).sum(dim=1).mean() - energy
                loss = loss + (energy + sharpen * excess) / N_CODES
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        decay.step()


@torch.no_grad()
def sharpened(layer, codes):
    """Responsibilities, squared, over the mass of the centre, as shares again.

    Raises an error if a centre has lost nine tenths of its fair share of the rows.
    """
    r = layer(codes)
    mass = r.sum(dim=0)
    if mass.min() < 0.1 * len(r) / len(mass):
        raise RuntimeError(f"a centre has lost its rows: masses {mass.tolist()}")
    shares = r.square() / mass
    return shares / shares.sum(dim=1, keepdim=True)


def kmeans(rows, seed):
    return KMeans(K, n_init=10, random_state=seed).fit(np.asarray(rows, np.float64))


def joint(model, near, seed, alpha=1.5, **options):
    """Start from the clusters of k-means, go on with both; labels."""
    schedule = Geometric(start=2.0, stop=1.0, n_steps=20, harden=False)
    layer = RBFKMeansLayer(K, N_CODES, alpha=alpha, sigma=schedule)
    start = kmeans(model.codes(near), seed).cluster_centers_
    layer.centers.data.copy_(torch.as_tensor(start))
    train(model, JOINT, near, layer=layer, **options)
    return layer.predict(model.codes(near)).numpy()


def after(model, near, seed, **options):
    """Go on for as many epochs without clusters, then k-means; labels."""
    train(model, JOINT, near, **options)
    return kmeans(model.codes(near), seed).labels_


def run(seed):
    """Name, labels and seconds of each way to cluster; training is part of the time."""

    def timed(name, function, *arguments, before=0.0, **options):
        torch.manual_seed(seed)
        begin = perf_counter()
        labels = function(*arguments, **options)
        return name, labels, before + perf_counter() - begin

    own, near = neighbours(1), neighbours(10)
    blurred = X[near.numpy()].mean(axis=1)
    ward = AgglomerativeClustering(K).fit_predict
    yield timed("KMeans, pixels", lambda: kmeans(X, seed).labels_)
    yield timed("KMeans, neighbours' mean", lambda: kmeans(blurred, seed).labels_)
    yield timed("Ward, pixels", ward, X)
    for plain, rows in (True, own), (False, near):
        torch.manual_seed(seed)
        begin = perf_counter()
        model = Autoencoder()
        train(model, ALONE, rows, plain)
        ways = {
            "autoencoder, then KMeans": (after, {}),
            "joint, free energy": (joint, {"sharpen": 0.0}),
        }
        if plain:
            ways = {f"plain {name}": way for name, way in ways.items()}
        else:
            ways["joint, softmax"] = joint, {"alpha": 1.0}
            ways["joint, entmax-1.5"] = joint, {}
        before = perf_counter() - begin
        for name, (way, options) in ways.items():
            copy = deepcopy(model)
            options = {"before": before, "plain": plain, **options}
            yield timed(name, way, copy, rows, seed, **options)


def scores(labels):
    table = np.zeros((K, K))
    np.add.at(table, (labels, y), 1.0)
    accuracy = table[linear_sum_assignment(-table)].sum() / len(y)
    return 100.0 * accuracy, 100.0 * normalized_mutual_info_score(y, labels)


def report(results):
    """The table, a line for each way."""
    row = "{:<32}{:>13}{:>7}{:>13}{:>7}{:>9}{:>13}".format
    yield row("", "accuracy", "worst", "NMI", "worst", "seconds", "gain")
    for name, found in results.items():
        gain = ""
        if name.endswith("then KMeans"):
            base = found
        elif "joint" in name:
            gains = np.subtract(found, base)[:, 0]
            gain = f"{gains.mean():+.1f} ± {gains.std():.1f}"
        (accuracy, nmi, seconds), spread = np.mean(found, axis=0), np.std(found, axis=0)
        worst = [f"{value:.1f}" for value in np.min(found, axis=0)]
        cells = f"{accuracy:.1f} ± {spread[0]:.1f}", worst[0]
        cells += f"{nmi:.1f} ± {spread[1]:.1f}", worst[1]
        yield row(name, *cells, f"{seconds:.1f}", gain)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=argparse.FileType("w"), help="write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)  # so small matrices gain nothing from more
    results = {}
    for seed in range(options.seeds):
        for name, labels, seconds in run(seed):
            results.setdefault(name, []).append((*scores(labels), seconds))
    table = "\n".join(report(results))
    print(table)
    if options.out:
        print(table, file=options.out)


if __name__ == "__main__":
    main()
