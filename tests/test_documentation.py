"""The pages of the site, as far as they can be checked without building it."""

# SPDX-License-Identifier: BSD-3-Clause

import inspect
from pathlib import Path

import pytest
from sklearn.cluster import KMeans

from skrbfkmeans import RBFKMeans

DOC = Path(__file__).parents[1] / "doc"

pytestmark = pytest.mark.skipif(not DOC.exists(), reason="There is no doc here.")


@pytest.mark.parametrize("model", [KMeans, RBFKMeans])
def test_every_parameter_is_compared_with_that_of_kmeans(model):
    page = (DOC / "from_kmeans.rst").read_text(encoding="utf-8")
    table = page[page.index("Parameters\n---") : page.index("Attributes and methods")]
    for name in inspect.signature(model).parameters:
        assert f"* - ``{name}``\n" in table


def test_every_example_is_in_the_gallery():
    listed = (DOC / "conf.py").read_text(encoding="utf-8")
    for example in (DOC / "examples").glob("plot_*.py"):
        assert f'"{example.name}"' in listed
