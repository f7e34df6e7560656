"""Temperature schedules: how sigma falls while the centres settle.

A schedule is a small parameter object. It works in `GridSearchCV` through
``schedule__start`` and the like, clones and prints like an estimator, and
answers one call: `sigmas` gives the temperature of each iteration.

The temperatures are multiples of `unit`:

* ``"spread"``: the root of the mean, over rows and features, of the squared
  distance to the nearest initial centre. About the standard deviation of a
  cluster when the start is good. With several starts, that of the first.
* ``"critical"``: the temperature above which all centres meet at the mean,
  `skrbfkmeans.energy.critical_sigma`.
* ``"absolute"``: one, so the numbers are distances in the units of the data.

A schedule that hardens ends in the zero-temperature limit, plain k-means to
convergence. One that does not stays soft at its last temperature.
"""

# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator

from ._checks import PlainMessagesMixin, check_temperatures, shown
from ._sklearn import DocumentationLinkMixin, Interval, StrOptions

__all__ = ["Constant", "Cosine", "Cyclic", "Geometric", "Linear", "Schedule"]

UNITS = ("spread", "critical", "absolute")


class Schedule(PlainMessagesMixin, DocumentationLinkMixin, BaseEstimator):
    """Base class of all schedules.

    A schedule of your own derives from it, has `unit` and `harden`, and
    implements `multiples`.

    See Also
    --------
    Geometric : The schedule that ``schedule="auto"`` stands for.

    Examples
    --------
    >>> import numpy as np
    >>> from skrbfkmeans.schedules import Schedule
    >>> class Halving(Schedule):
    ...     unit, harden = "spread", True
    ...     def multiples(self):
    ...         return 0.5 ** np.arange(4)
    >>> Halving().sigmas(scale=2.0)
    array([2.  , 1.  , 0.5 , 0.25])
    """

    _parameter_constraints: dict = {
        "unit": [StrOptions(set(UNITS))],
        "harden": ["boolean"],
    }

    def multiples(self):
        """Temperature of each iteration, in multiples of `unit`.

        Returns
        -------
        multiples : array-like of shape (n_iterations,)
            The last one is kept until convergence.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement multiples().")

    def sigmas(self, scale=1.0):
        """Temperature of each iteration, in the units of the data.

        Parameters
        ----------
        scale : float, default=1.0
            The size of `unit`, in the units of the data.

        Returns
        -------
        sigmas : ndarray of shape (n_iterations,)
            Temperatures. The last one is kept until convergence; the
            zero-temperature limit that ends a hardening schedule is not listed.

        Raises
        ------
        ValueError
            If a parameter of the schedule has a value that is not allowed.
        """
        self._validate_params()
        name = f"{type(self).__name__}.multiples()"
        return scale * check_temperatures(self.multiples(), name)


_positive = [Interval(Real, 0, None, closed="neither")]
_count = [Interval(Integral, 1, None, closed="left")]


class _Ramp(Schedule):
    """From `start` down to `stop`; how, is a matter of the subclass."""

    _parameter_constraints: dict = {
        **Schedule._parameter_constraints,
        "start": _positive,
        "stop": _positive,
        "n_steps": _count,
        "n_iter": _count,
    }

    def __init__(
        self, start=1.0, stop=0.25, n_steps=3, *, n_iter=1, unit="spread", harden=True
    ):
        self.start = start
        self.stop = stop
        self.n_steps = n_steps
        self.n_iter = n_iter
        self.unit = unit
        self.harden = harden

    def multiples(self):
        """Temperature of each iteration, in multiples of `unit`.

        Returns
        -------
        multiples : ndarray of shape (n_steps * n_iter,)
            From `start` down to `stop`, each `n_iter` times.
        """
        if self.stop > self.start:
            raise ValueError(
                f"The 'stop' parameter of {type(self).__name__} must not exceed "
                f"'start'. Got start={shown(self.start)} and stop={shown(self.stop)} "
                "instead."
            )
        progress = np.arange(self.n_steps) / max(self.n_steps - 1, 1)
        return np.repeat(self._ramp(progress), self.n_iter)

    def _ramp(self, progress):
        """Temperatures at progress 0 to 1."""
        raise NotImplementedError


class Geometric(_Ramp):
    """Temperatures that fall by a constant factor.

    ``start * (stop / start) ** (t / (n_steps - 1))`` for t = 0, 1, ... With the
    default values it is what ``schedule="auto"`` stands for.

    Parameters
    ----------
    start : float, default=1.0
        First temperature, in multiples of `unit`.
    stop : float, default=0.25
        Last temperature, in multiples of `unit`; at most `start`.
    n_steps : int, default=3
        Number of temperatures. With 1, only `start` is used.
    n_iter : int, default=1
        Most EM iterations at each temperature but the last, which is kept
        until convergence.
    unit : {"spread", "critical", "absolute"}, default="spread"
        What a temperature of 1 means: the spread of the clusters at the start,
        the critical temperature, or the unit of the data.
    harden : bool, default=True
        Whether the schedule ends in the zero-temperature limit, so that the
        result is a fixed point of k-means. If False, the model stays soft at
        the last temperature.

    See Also
    --------
    Linear : Temperatures that fall by a constant difference.
    Cosine : Temperatures that fall slowly, fast, and slowly again.

    Examples
    --------
    >>> from skrbfkmeans.schedules import Geometric
    >>> Geometric().sigmas()
    array([1.  , 0.5 , 0.25])
    """

    def _ramp(self, progress):
        return self.start * (self.stop / self.start) ** progress


class Linear(_Ramp):
    """Temperatures that fall by a constant difference.

    ``start + (stop - start) * t / (n_steps - 1)`` for t = 0, 1, ...

    Parameters
    ----------
    start : float, default=1.0
        First temperature, in multiples of `unit`.
    stop : float, default=0.25
        Last temperature, in multiples of `unit`; at most `start`.
    n_steps : int, default=3
        Number of temperatures. With 1, only `start` is used.
    n_iter : int, default=1
        Most EM iterations at each temperature but the last, which is kept
        until convergence.
    unit : {"spread", "critical", "absolute"}, default="spread"
        What a temperature of 1 means: the spread of the clusters at the start,
        the critical temperature, or the unit of the data.
    harden : bool, default=True
        Whether the schedule ends in the zero-temperature limit, so that the
        result is a fixed point of k-means. If False, the model stays soft at
        the last temperature.

    See Also
    --------
    Geometric : Temperatures that fall by a constant factor.

    Examples
    --------
    >>> from skrbfkmeans.schedules import Linear
    >>> Linear(start=1.0, stop=0.25, n_steps=4).sigmas()
    array([1.  , 0.75, 0.5 , 0.25])
    """

    def _ramp(self, progress):
        return self.start + (self.stop - self.start) * progress


class Cosine(_Ramp):
    """Temperatures that fall slowly, fast, and slowly again.

    ``stop + (start - stop) * (1 + cos(pi * t / (n_steps - 1))) / 2`` for
    t = 0, 1, ...

    Parameters
    ----------
    start : float, default=1.0
        First temperature, in multiples of `unit`.
    stop : float, default=0.25
        Last temperature, in multiples of `unit`; at most `start`.
    n_steps : int, default=3
        Number of temperatures. With 1, only `start` is used.
    n_iter : int, default=1
        Most EM iterations at each temperature but the last, which is kept
        until convergence.
    unit : {"spread", "critical", "absolute"}, default="spread"
        What a temperature of 1 means: the spread of the clusters at the start,
        the critical temperature, or the unit of the data.
    harden : bool, default=True
        Whether the schedule ends in the zero-temperature limit, so that the
        result is a fixed point of k-means. If False, the model stays soft at
        the last temperature.

    See Also
    --------
    Geometric : Temperatures that fall by a constant factor.

    Examples
    --------
    >>> from skrbfkmeans.schedules import Cosine
    >>> Cosine(start=1.0, stop=0.5, n_steps=3).sigmas()
    array([1.  , 0.75, 0.5 ])
    """

    def _ramp(self, progress):
        wave = 0.5 * (1.0 + np.cos(np.pi * progress))
        return self.stop + (self.start - self.stop) * wave


class Cyclic(_Ramp):
    """Geometric cooling again and again, each time from a lower temperature.

    Cycle c starts at ``max(start * decay**c, stop)`` and cools to `stop` by a
    constant factor. Reheating lets the centres rearrange after they have
    settled for the first time.

    Parameters
    ----------
    start : float, default=1.0
        First temperature, in multiples of `unit`.
    stop : float, default=0.25
        Last temperature of each cycle, in multiples of `unit`; at most `start`.
    n_steps : int, default=3
        Number of temperatures of one cycle.
    n_iter : int, default=1
        Most EM iterations at each temperature but the very last, which is kept
        until convergence.
    n_cycles : int, default=2
        Number of cycles.
    decay : float, default=0.5
        Each cycle starts at this fraction of the start of the one before.
    unit : {"spread", "critical", "absolute"}, default="spread"
        What a temperature of 1 means: the spread of the clusters at the start,
        the critical temperature, or the unit of the data.
    harden : bool, default=True
        Whether the schedule ends in the zero-temperature limit, so that the
        result is a fixed point of k-means. If False, the model stays soft at
        the last temperature.

    See Also
    --------
    Geometric : One cycle.

    Examples
    --------
    >>> from skrbfkmeans.schedules import Cyclic
    >>> Cyclic(start=1.0, stop=0.25, n_steps=3, n_cycles=2).sigmas().round(3)
    array([1.   , 0.5  , 0.25 , 0.5  , 0.354, 0.25 ])
    """

    _parameter_constraints: dict = {
        **_Ramp._parameter_constraints,
        "n_cycles": _count,
        "decay": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self,
        start=1.0,
        stop=0.25,
        n_steps=3,
        *,
        n_iter=1,
        n_cycles=2,
        decay=0.5,
        unit="spread",
        harden=True,
    ):
        super().__init__(start, stop, n_steps, n_iter=n_iter, unit=unit, harden=harden)
        self.n_cycles = n_cycles
        self.decay = decay

    def _ramp(self, progress):
        starts = np.maximum(
            self.start * self.decay ** np.arange(self.n_cycles), self.stop
        )
        return np.concatenate(
            [start * (self.stop / start) ** progress for start in starts]
        )


class Constant(Schedule):
    """One temperature, kept until convergence.

    Parameters
    ----------
    start : float, default=1.0
        The temperature, in multiples of `unit`.
    n_iter : int, default=1
        EM iterations at the temperature before the zero-temperature limit, if
        `harden` is True; without effect otherwise.
    unit : {"spread", "critical", "absolute"}, default="spread"
        What a temperature of 1 means: the spread of the clusters at the start,
        the critical temperature, or the unit of the data.
    harden : bool, default=False
        Whether the zero-temperature limit follows, so that the result is a
        fixed point of k-means. If False, the model stays soft.

    See Also
    --------
    Geometric : Temperatures that fall by a constant factor.

    Examples
    --------
    >>> from skrbfkmeans.schedules import Constant
    >>> Constant(start=0.5).sigmas(scale=3.0)
    array([1.5])
    """

    _parameter_constraints: dict = {
        **Schedule._parameter_constraints,
        "start": _positive,
        "n_iter": _count,
    }

    def __init__(self, start=1.0, *, n_iter=1, unit="spread", harden=False):
        self.start = start
        self.n_iter = n_iter
        self.unit = unit
        self.harden = harden

    def multiples(self):
        """Temperature of each iteration, in multiples of `unit`.

        Returns
        -------
        multiples : ndarray of shape (n_iter,)
            `start`, `n_iter` times.
        """
        return np.full(self.n_iter, self.start)


# All kinds there are, the one that "auto" stands for first.
KINDS = (Geometric, Linear, Cosine, Cyclic, Constant)
