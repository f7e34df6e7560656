"""The pages of the site, as far as they can be checked without building it."""

# SPDX-License-Identifier: BSD-3-Clause

import inspect
import re
from pathlib import Path

import pytest
from sklearn.cluster import KMeans

from skrbfkmeans import RBFKMeans

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"
PROBA_SIGMA_IN_A_GRID = re.compile(r"proba_sigma[\"']\s*:")

pytestmark = pytest.mark.skipif(not DOC.exists(), reason="There is no doc here.")


@pytest.mark.parametrize("model", [KMeans, RBFKMeans])
def test_every_parameter_is_compared_with_that_of_kmeans(model):
    page = (DOC / "from_kmeans.rst").read_text(encoding="utf-8")
    table = page[page.index("Parameters\n---") : page.index("Attributes and methods")]
    for name in inspect.signature(model).parameters:
        assert f"* - ``{name}``\n" in table


@pytest.mark.parametrize(
    "name",
    [
        "n_jobs", "precompute_distances", "metric", "batch_size", "reassignment_ratio",
        "m", "covariance_type", "n_components",
    ],
)  # fmt: skip
def test_a_parameter_of_a_relative_is_told_with_what_to_do_instead(name):
    page = (DOC / "from_kmeans.rst").read_text(encoding="utf-8")
    table = page[page.index("are a ``TypeError`` too") : page.index("Attributes and")]
    assert f"* - ``{name}``\n" in table
    with pytest.raises(TypeError, match=f"argument '{name}'"):
        RBFKMeans(**{name: 1})


def test_every_example_is_in_the_gallery():
    listed = (DOC / "conf.py").read_text(encoding="utf-8")
    for example in (DOC / "examples").glob("plot_*.py"):
        assert f'"{example.name}"' in listed


def test_the_authors_of_the_paper_are_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    authors = citation[citation.index("references:") :]
    given = re.findall(r"^ +(?:- )?given-names: (.+)$", authors, re.MULTILINE)
    family = re.findall(r'^ +(?:- )?family-names: "?(.+?)"?$', authors, re.MULTILINE)
    assert len(given) == 1  # those of the others are not known
    full = f"{given[0]} {family[0]}, {family[1]}, {family[2]}: *K-Means"
    short = f'{given[0][0]}. {family[0]}, {family[1]} and {family[2]}, "K-Means'
    for file, expected in {
        "README.rst": full,
        "doc/method.rst": short,
        "skrbfkmeans/_rbfkmeans.py": short,
        "skrbfkmeans/torch/_layer.py": short,
        "benchmarks/paper.py": short,
    }.items():
        text = " ".join((ROOT / file).read_text(encoding="utf-8").split())
        assert expected in text, file
        names = full.partition(":")[0], short.partition('"')[0]
        assert text.count(f"{family[0]}, ") == sum(text.count(n) for n in names), file


def test_every_python_file_names_its_licence():
    files = [
        file
        for folder in (".ci", "benchmarks", "doc", "skrbfkmeans", "tests")
        for file in (ROOT / folder).rglob("*.py")
        if not {"_build", "auto_examples", "generated"} & set(file.parts)
        and not any(part.startswith(".") for part in file.parts[len(ROOT.parts) + 1 :])
    ]
    assert len(files) > 50
    line = "# SPDX-License-Identifier: BSD-3-Clause"
    for file in files:
        assert line in file.read_text(encoding="utf-8").splitlines(), file


def test_no_page_searches_by_a_score_that_the_parameter_does_not_change():
    pages = [ROOT / "README.rst", *DOC.glob("*.rst"), *DOC.glob("examples/*.py")]
    grids = [
        p.name for p in pages if PROBA_SIGMA_IN_A_GRID.search(p.read_text("utf-8"))
    ]
    assert grids == ["plot_rbf_network.py"]  # by the score of a classifier
