"""Check the docstrings of all public objects against the rules in pyproject.toml.

``numpydoc lint`` reads source, so it flags what a class inherits and what a
function hides; this looks at the objects that a user can reach.
"""

# SPDX-License-Identifier: BSD-3-Clause

import inspect
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

from numpydoc.hooks.validate_docstrings import parse_config
from numpydoc.validate import Validator, validate

import skrbfkmeans


def public_objects():
    """Yield the full name of each public class, function and method."""
    for module in ["skrbfkmeans", *public_modules()]:
        contents = vars(import_module(module))
        for name in contents.get("__all__") or defined_in(module):
            obj = contents[name]
            if name.startswith("_") or not callable(obj):
                continue
            yield f"{module}.{name}"
            if inspect.isclass(obj):
                for method, value in inspect.getmembers(obj):
                    if not method.startswith("_") and is_written_here(value):
                        yield f"{module}.{name}.{method}"


def public_modules():
    """Yield the public modules whose dependencies are installed."""
    for info in pkgutil.iter_modules(skrbfkmeans.__path__, "skrbfkmeans."):
        if info.name.rpartition(".")[2].startswith("_"):
            continue
        try:
            import_module(info.name)
        except ImportError as error:
            print(f"{info.name} is left out: {error}")
        else:
            yield info.name


def defined_in(module):
    """Return the names that a module without ``__all__`` defines itself."""
    return [
        name
        for name, value in vars(import_module(module)).items()
        if getattr(value, "__module__", None) == module
    ]


def is_written_here(member):
    """Tell whether a member of a class is a method or property of ours."""
    function = getattr(member, "fget", member)
    is_routine = inspect.isfunction(function) or inspect.ismethod(function)
    return is_routine and function.__module__.startswith("skrbfkmeans")


def main():
    """Print what is wrong and return how much it is."""
    checks = parse_config(Path(__file__).parents[1])["checks"]
    names = list(public_objects())
    n_findings = 0
    for name in names:
        report = validate(name)
        is_method = inspect.isclass(Validator._load_obj(name.rpartition(".")[0]))
        for code, message in report["errors"]:
            if code in checks or (code == "EX01" and not is_method):
                n_findings += 1
                print(
                    f"{report['file']}:{report['file_line']}: {name}: {code} {message}"
                )
    print(f"{len(names)} public objects, {n_findings} findings")
    return n_findings


if __name__ == "__main__":
    sys.exit(min(main(), 1))
