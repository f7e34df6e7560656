"""A few cases of `fuzz.py`, which tries as many as there is time for."""

# SPDX-License-Identifier: BSD-3-Clause

import fuzz
import pytest
from fuzzing.checks import FailedError, require

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("seed", range(40))
def test_a_random_case_keeps_every_promise(seed):
    fuzz.run_case(seed)


def test_a_promise_that_is_broken_is_named_with_its_numbers():
    with pytest.raises(FailedError, match=r"^too large: 2\.0, 1$"):
        require(2.0 < 1, "too large", 2.0, 1)
