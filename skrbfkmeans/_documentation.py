"""Where the pages of this package are read."""

# SPDX-License-Identifier: BSD-3-Clause

SITE = "https://skrbfkmeans.readthedocs.io/en/stable"


class DocumentationLinkMixin:
    """Links the representation in a notebook to the page of the class."""

    _doc_link_module = "skrbfkmeans"
    _doc_link_template = SITE + "/generated/{estimator_module}.{estimator_name}.html"
