"""The inputs of `survive.py`, on which k-means of today goes wrong, one by one."""

# SPDX-License-Identifier: BSD-3-Clause

import pytest
import survive

from skrbfkmeans import RBFKMeans

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("case", survive.CASES, ids=lambda case: case.__name__)
def test_the_estimator_is_right_where_kmeans_may_go_wrong(case):
    assert survive.outcome(case, RBFKMeans) == "right"


def test_each_case_tells_the_table_what_it_tries():
    sentences = [case.__doc__ for case in survive.CASES]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
