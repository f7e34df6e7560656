"""Tells scikit-learn's callbacks how a fit gets on.

The tasks of a fit are its starts, those of a start its temperatures, and those of a
temperature its iterations. scikit-learn has callbacks from version 1.9 on; with an
older one, or where none are set, nothing is done.
"""

# SPDX-License-Identifier: BSD-3-Clause


class FitTask:
    """A fit that callbacks are told about.

    Parameters
    ----------
    estimator : RBFKMeans
        The estimator that is being fitted.
    n_starts : int
        Number of starts.
    **data
        What the callbacks may look at: X, y and metadata.
    """

    def __init__(self, estimator, n_starts, **data):
        self.estimator, self.data = estimator, data
        self._context = estimator._init_callback_context(max_subtasks=n_starts)
        self._begin(self._context)

    def start(self, n_temperatures, fitted):
        """The next start; `fitted` makes attributes of centres, sigma and inertia."""
        return StartTask(self, n_temperatures, fitted)

    def end(self):
        """Tell that all is done: the estimator is fitted."""
        self._end(self._context, dict)

    def _begin(self, context):
        context.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def _end(self, context, attributes):
        return context.call_on_fit_task_end(
            estimator=self.estimator, **self.data, reconstruction_attributes=attributes
        )


class StartTask:
    """One start of a fit, temperature by temperature.

    A callback that asks to stop after an iteration ends the iterations at this
    temperature, after a temperature it ends the run, and after a start the fit.
    """

    def __init__(self, fit, n_temperatures, fitted):
        self._fit, self._fitted = fit, fitted
        self._context = fit._context.subcontext("start", max_subtasks=n_temperatures)
        self._temperature, self._sigma, self._state = None, None, None
        fit._begin(self._context)

    def begin_iteration(self, sigma):
        """Tell that an iteration begins. Returns whether the run shall stop instead."""
        if sigma != self._sigma:
            if self._end_temperature():
                return True
            self._sigma = sigma
            self._temperature = self._context.subcontext(
                "temperature", max_subtasks=None
            )
            self._fit._begin(self._temperature)
        self._iteration = self._temperature.subcontext("iteration")
        self._fit._begin(self._iteration)
        return False

    def end_iteration(self, centers, sigma, inertia):
        """Tell that an iteration ended. Returns whether its temperature shall too."""
        self._state = centers, sigma, inertia
        return self._fit._end(self._iteration, self._attributes)

    def end(self):
        """Tell that the start ended. Returns whether the fit shall, too."""
        self._end_temperature()
        return self._fit._end(self._context, self._attributes)

    def _end_temperature(self):
        if self._temperature is None:
            return False
        temperature, self._temperature, self._sigma = self._temperature, None, None
        return self._fit._end(temperature, self._attributes)

    def _attributes(self):
        return self._fitted(*self._state)
