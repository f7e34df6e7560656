"""Random estimators on random inputs, and what must hold whatever they are.

Each case draws an estimator, rows and weights, fits, and then calls methods in
a random order, bad inputs among them. Everything is compared with the naive
twins of ``naive.py`` or with another way to the same answer. Prints the
seed and the reason of each case that fails, and exits with 1 if any did.

Run it with ``python tests/fuzz.py --minutes 10 --seed 0``, and one case
again, with its traceback, with ``python tests/fuzz.py --one CASE_SEED``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import collections
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from fuzzing.calls import SEQUENCE, fit, refit
from fuzzing.checks import (
    CALLS,
    FailedError,
    check_fit,
    check_outputs,
    frozen,
    require,
    same,
)
from fuzzing.draws import draw_data, draw_model, draw_shape
from fuzzing.ways import OTHER_WAYS

SECONDS = 120  # a case that takes longer hangs


def draw_case(seed):
    rng = np.random.default_rng(seed)
    n, d, k = draw_shape(rng)
    data = draw_data(rng, n, d)
    return rng, data, draw_model(rng, data, k)


def run_case(seed):
    """One estimator, one input and one sequence of calls."""
    rng, data, model = draw_case(seed)
    if not fit(model, data):
        return
    check_fit(model, data)
    check_outputs(model, data)
    state = frozen(vars(model), data.X, data.weights)
    for i in rng.choice(len(OTHER_WAYS), 2, replace=False):
        OTHER_WAYS[i](rng, model, data)
    require(same(state[0], vars(model)), "a method changes the model")
    for i in rng.integers(len(SEQUENCE), size=rng.integers(1, 4)):
        SEQUENCE[i](rng, model, data)
        if SEQUENCE[i] is refit:
            break
    require(same(state[1:], (data.X, data.weights)), "a method changes its input")


def hang(*_):
    raise FailedError(f"takes more than {SECONDS} seconds")


def described(seed):
    """What a case is, for those who want to see it again."""
    _, data, model = draw_case(seed)
    X = data.X
    return (
        f"{model}\nX: {type(X).__name__} {getattr(X, 'dtype', '')} {data.dense.shape}, "
        f"{data.kind}, largest {np.abs(data.dense).max():.3g}\n"
        f"weights: {type(data.weights).__name__}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int, metavar="CASE_SEED")
    options = parser.parse_args()
    if options.one is not None:
        print(described(options.one))
        run_case(options.one)
        print("passed")
        return
    rng = np.random.default_rng(options.seed)
    end = time.monotonic() + 60.0 * options.minutes
    n_cases, reasons = 0, collections.Counter()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, hang)
    while time.monotonic() < end:
        seed = int(rng.integers(2**32))
        n_cases += 1
        if hasattr(signal, "SIGALRM"):
            signal.alarm(SECONDS)
        try:
            run_case(seed)
        except Exception as error:
            reason = " ".join(str(error).split())[:160]
            if not isinstance(error, FailedError):
                place = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(place.filename).name}:{place.lineno}"
                reason = f"{type(error).__name__} {reason} [{place}]"
            reasons[reason.split(":")[0][:80]] += 1
            print(f"seed {seed}: {reason}", flush=True)
        finally:
            if hasattr(signal, "SIGALRM"):
                signal.alarm(0)
    for reason, count in reasons.most_common():
        print(f"{count:6d} failed: {reason}")
    print(
        f"{n_cases:,} inputs tried in {sum(CALLS.values()):,} calls, "
        f"{CALLS['bad input']:,} of them with bad input; "
        f"{sum(reasons.values()):,} failed"
    )
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    main()
