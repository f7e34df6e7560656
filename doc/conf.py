"""How the site is built: python -m sphinx -W --keep-going doc doc/_build/html."""

# SPDX-License-Identifier: BSD-3-Clause

from docutils import nodes
from sphinx_gallery.sorting import ExplicitOrder

import skrbfkmeans

project = "skrbfkmeans"
author = "The skrbfkmeans developers"
copyright = "2026, the skrbfkmeans developers"
version = release = skrbfkmeans.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "examples", "**/*.txt"]
default_role = "literal"
nitpicky = True
autosummary_generate = True
autodoc_default_options = {"inherited-members": False}
numpydoc_show_class_members = False
numpydoc_validation_checks = set()  # .ci/docstrings.py checks them

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["skrbfkmeans.css"]
html_title = "skrbfkmeans"
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 5,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {  # pages that have none below them
    page: []
    for page in (
        "index", "quick_start", "from_kmeans", "paper", "benchmarks", "survives",
        "whats_new", "contributing",
    )
}  # fmt: skip

# One idea after the other, not in the order of the alphabet.
GALLERY = [
    "plot_one_fit.py",
    "plot_quantize_photo.py",
    "plot_ambiguous_digits.py",
    "plot_temperatures.py",
    "plot_trajectories.py",
    "plot_choose_k.py",
    "plot_pipeline_search.py",
    "plot_rbf_network.py",
    "plot_anomalies.py",
    "plot_text.py",
    "plot_cosine.py",
    "plot_moons_and_circles.py",
    "plot_missing_values.py",
    "plot_larger_than_memory.py",
    "plot_autoencoder.py",
]

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": ExplicitOrder(GALLERY),
    "doc_module": ("skrbfkmeans",),
    "backreferences_dir": "generated/backreferences",
    "matplotlib_animations": (True, "jshtml"),
    "capture_repr": (),
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}


# Pages of other packages, so that the site can be built without a network.
ELSEWHERE = {
    "sklearn.": "https://scikit-learn.org/stable/modules/generated/{}.html",
    "numpy.": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "scipy.": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
    "distributed.": "https://distributed.dask.org/en/stable/api.html",
    "matplotlib.": "https://matplotlib.org/stable/api/index.html",
}


def link_elsewhere(app, env, node, content):
    """Link a name that is not ours to the page of the package that has it."""
    target = node["reftarget"]
    for prefix, page in ELSEWHERE.items():
        if target.startswith(prefix):
            return nodes.reference("", "", content, refuri=page.format(target))
    return None


def setup(app):
    """Tell Sphinx who answers for names that it does not know."""
    app.connect("missing-reference", link_elsewhere)
