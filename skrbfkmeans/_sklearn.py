"""What this package takes from scikit-learn beyond its public names.

Private names may move with any release of scikit-learn, so they are imported here and
nowhere else, under names of our own.
"""

# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import _fit_context as fit_context
from sklearn.utils._openmp_helpers import (
    _openmp_effective_n_threads as effective_n_threads,
)
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils._set_output import _get_output_config as get_output_config
from sklearn.utils.parallel import _get_threadpool_controller as threadpool_controller
from sklearn.utils.validation import (
    _check_feature_names as check_feature_names,
)
from sklearn.utils.validation import (
    _check_n_features as check_n_features,
)
from sklearn.utils.validation import (
    _check_sample_weight as check_sample_weight,
)

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # callbacks came with scikit-learn 1.9

    class CallbackSupportMixin:
        """Stands in for what scikit-learn does not have yet."""


__all__ = [
    "SITE",
    "CallbackSupportMixin",
    "DocumentationLinkMixin",
    "Interval",
    "StrOptions",
    "check_feature_names",
    "check_n_features",
    "check_sample_weight",
    "copy_output_config",
    "effective_n_threads",
    "fit_context",
    "get_output_config",
    "threadpool_controller",
]

# Where the pages of this package are read.
SITE = "https://skrbfkmeans.readthedocs.io/en/stable"


def copy_output_config(source, target):
    """Let `transform` of one estimator return the container that another's does."""
    if hasattr(source, "_sklearn_output_config"):
        target._sklearn_output_config = dict(source._sklearn_output_config)


class DocumentationLinkMixin:
    """Links the representation in a notebook to the page of the class."""

    _doc_link_module = "skrbfkmeans"
    _doc_link_template = SITE + "/generated/{estimator_module}.{estimator_name}.html"
