"""What is told of a run: history, path, printed lines and callbacks."""

# SPDX-License-Identifier: BSD-3-Clause

from collections import defaultdict

import numpy as np


class Journal:
    """Notes each iteration of a run, and tells those who want to know.

    Parameters
    ----------
    settings : Settings
        How the run is made.
    task : StartTask or None
        Told of each iteration, and asked whether to go on.

    Attributes
    ----------
    history : dict of str to list
        One entry an iteration.
    """

    def __init__(self, settings, task):
        self._settings, self._task = settings, task
        self.history = defaultdict(list)

    def begin(self, sigma, centers):
        """Tell that an iteration begins. Returns whether the run shall stop instead."""
        if self._task is not None and self._task.begin_iteration(sigma):
            return True
        if self._settings.store_path:
            self.history["centers"].append(centers)
        return False

    def end(self, sigma, step, shift, centers, weight):
        """Note an iteration. Returns whether its temperature shall end with it.

        `step` is what its E-step found, `centers` are those after it, and `weight` is
        that of all rows.
        """
        entry = {
            "sigma": sigma,
            "free_energy": step.free_energy,
            "inertia": step.inertia,
            "shift": shift,
            "soft_fraction": step.soft_weight / weight,
            "support": step.support / weight,
            "swaps_tried": 0,
            "swaps_kept": 0,
        }
        if self.history["sigma"] and self.history["sigma"][-1] != sigma:
            self._print_temperature()
        for name, value in entry.items():
            self.history[name].append(value)
        return self._task is not None and self._task.end_iteration(
            centers, sigma, step.inertia
        )

    def close(self):
        """Tell that the run has ended."""
        self._print_temperature()

    def _print_temperature(self):
        """Print one line about the temperature that has just ended."""
        if not self._settings.verbose:
            return
        sigmas = np.array(self.history["sigma"])
        n_iter = int(np.argmin(np.append(sigmas[::-1] == sigmas[-1], False)))
        print(
            f"sigma {sigmas[-1]:.4g}: {n_iter} iterations, "
            f"free energy {self.history['free_energy'][-1]:.6g}, "
            f"soft {100 * self.history['soft_fraction'][-1]:.1f} %"
        )
