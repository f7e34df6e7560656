"""Check that the built site has every page and file that it links to.

Links to other sites are not followed. The pages that notebooks link to, from the
representation of an estimator, must be there too.
"""

# SPDX-License-Identifier: BSD-3-Clause

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from skrbfkmeans import RBFKMeans
from skrbfkmeans._sklearn import SITE
from skrbfkmeans.dask import RBFKMeans as DaskRBFKMeans
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

ESTIMATORS = [RBFKMeans, DaskRBFKMeans, Constant, Cosine, Cyclic, Geometric, Linear]


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = set(), {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        """Take note of what a tag points to, and of what can point to it."""
        attributes = dict(attributes)
        self.anchors |= {attributes.get("id"), attributes.get("name")}
        self.links |= {attributes.get("href"), attributes.get("src")} - {None}


def broken_links(site):
    """Yield each page with a link of it that leads nowhere."""
    pages = {
        path.resolve(): Page(path)
        for path in site.rglob("*.html")
        if "_static" not in path.parts
    }
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            target = target.resolve()
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            is_there = target.exists()
            if is_there and target in pages and not link.startswith("#"):
                is_there = anchor in pages[target].anchors
            if not is_there:
                yield f"{path.relative_to(site.resolve())}: {link}"
    for estimator in ESTIMATORS:
        link = estimator()._get_doc_link()
        if not (site / link.removeprefix(f"{SITE}/")).exists():
            yield f"{estimator.__name__}: {link}"


if __name__ == "__main__":
    broken = list(broken_links(Path(sys.argv[1])))
    print(*broken, f"{len(broken)} broken links", sep="\n")
    sys.exit(bool(broken))
