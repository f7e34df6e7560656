"""Print the oldest dependencies that pyproject.toml allows, as pip takes them.

With ``--python`` print the oldest Python instead.
"""

# SPDX-License-Identifier: BSD-3-Clause

import sys
import tomllib
from pathlib import Path


def main():
    """Print what is asked for."""
    file = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    if sys.argv[1:] == ["--python"]:
        print(project["requires-python"].removeprefix(">="))
    else:
        print(*(bound.replace(">=", "==") for bound in project["dependencies"]))


if __name__ == "__main__":
    main()
