"""A training step of the layer next to the same written with plain softmax.

Prints the time of forward and backward of the free energy, for alpha 1, 1.5, 2 and
another, divided by that of responsibilities by `torch.softmax`, from the same rows and
centres in float32: once with distances by `torch.cdist`, once by a product of
matrices, which loses digits far from the origin. Medians of interleaved runs, at half
the temperature of the clusters, at that, and at twice that. Then, for growing batches
and numbers of centres and features, the bytes that a step keeps for its backward pass,
and by how much the resident set grows at its highest, both also in units of a batch x
centres matrix.

Run it with ``python benchmarks/layer.py [--repeats 51] [--threads 1]``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import threading

import torch
from iteration import resident
from timing import interleaved

from skrbfkmeans.torch import RBFKMeansLayer

ALPHAS = 1.0, 1.5, 2.0, 1.25
TEMPERATURES = 0.5, 1.0, 2.0
# Matrices so large that the system gets them back, and the peak can be seen.
MEMORY = [
    (16384, 1000, 64), (32768, 1000, 64), (16384, 2000, 64), (16384, 1000, 256)
]  # fmt: skip


def plain_softmax(x, centers, sigma, distances):
    """The loss as it is usually written: expected squared distance, less entropy."""
    d2 = distances(x, centers)
    r = torch.softmax(-d2 / (2.0 * sigma**2), dim=-1).detach()
    return (r * d2 + 2.0 * sigma**2 * torch.special.xlogy(r, r)).sum(dim=-1).mean()


def by_cdist(x, centers):
    return torch.cdist(x, centers).square()


def by_product(x, centers):
    squares = x.square().sum(dim=1, keepdim=True) + centers.square().sum(dim=1)
    return squares - 2.0 * x @ centers.T


def problem(batch, k, d):
    """Overlapping clusters of unit variance, and their centres."""
    centers = torch.randn(k, d) * 3.0 / d**0.25
    x = centers[torch.randint(k, (batch,))] + torch.randn(batch, d)
    return x.requires_grad_(), centers.requires_grad_()


def layer_of(centers, alpha, sigma):
    layer = RBFKMeansLayer(*centers.shape, alpha=alpha, sigma=sigma)
    layer.centers.data.copy_(centers)
    return layer


def times(batch, k, d, sigma, repeats):
    x, centers = problem(batch, k, d)
    layers = [layer_of(centers, alpha, sigma) for alpha in ALPHAS]

    def step(loss, parameter):
        def run():
            x.grad = parameter.grad = None
            loss().backward()

        return run

    plain = by_cdist, by_product
    losses = [
        lambda distances=distances: plain_softmax(x, centers, sigma, distances)
        for distances in plain
    ]
    steps = [step(loss, centers) for loss in losses]
    steps += [
        step(lambda layer=layer: layer.free_energy(x), layer.centers)
        for layer in layers
    ]
    seconds = interleaved(steps, repeats)
    for distances, reference in zip(plain, seconds, strict=False):
        ratios = ", ".join(
            f"alpha {alpha} {ours / reference:.2f}"
            for alpha, ours in zip(ALPHAS, seconds[len(plain) :], strict=True)
        )
        name = f"plain softmax {distances.__name__}"
        print(f"  sigma {sigma}, {name} {1e3 * reference:.1f} ms: {ratios}")


def memory(batch, k, d):
    """Bytes kept for the backward pass, each storage once, inputs left out."""
    x, centers = problem(batch, k, d)
    layer, storages = layer_of(centers, 1.5, 1.0), {}
    inputs = {
        x.untyped_storage().data_ptr(),
        layer.centers.untyped_storage().data_ptr(),
    }

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in inputs:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = layer.free_energy(x)
    del value
    storages = sum(storages.values())
    matrix = 4 * batch * k
    print(
        f"  batch {batch}, k = {k}, d = {d}: {storages / matrix:.2f} matrices of "
        f"{matrix / 2**20:.0f} MiB kept, {peak(layer, x) / matrix:.1f} at the peak"
    )


def peak(layer, x):
    """Growth of the resident set during a step, at its highest."""
    highest, done = [resident()], threading.Event()

    def watch():
        while not done.wait(0.001):
            highest[0] = max(highest[0], resident())

    start, watcher = resident(), threading.Thread(target=watch)
    watcher.start()
    layer.free_energy(x).backward()
    done.set()
    watcher.join()
    return highest[0] - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    batch, k, d = 4096, 100, 64
    print(f"Forward and backward, batch {batch}, k = {k}, d = {d}:")
    for sigma in TEMPERATURES:
        times(batch, k, d, sigma, options.repeats)
    print("Memory of a step, besides rows and centres:")
    for case in MEMORY:
        memory(*case)


if __name__ == "__main__":
    main()
