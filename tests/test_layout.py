"""The layers of the package, as its imports show them."""

# SPDX-License-Identifier: BSD-3-Clause

import ast
from pathlib import Path

import pytest

import skrbfkmeans

ROOT = Path(skrbfkmeans.__file__).parent

MODULES = {
    ".".join(("skrbfkmeans", *path.relative_to(ROOT).with_suffix("").parts)): path
    for path in ROOT.rglob("*.py")
}
MODULES = {name.removesuffix(".__init__"): path for name, path in MODULES.items()}


def imports_of(name):
    """Modules and names that a module imports, inside its functions too."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(
                [*above, node.module or ""] if node.level else [node.module]
            )
            found |= {f"{base.rstrip('.')}.{alias.name}" for alias in node.names}
    return found


def modules_of(name):
    """Modules of the package that a module imports, each the most exact known."""
    found = set()
    for imported in imports_of(name):
        if imported not in MODULES:
            imported = imported.rpartition(".")[0]
        if imported in MODULES and imported != name:
            found.add(imported)
    return found


GRAPH = {name: modules_of(name) for name in MODULES}


def test_the_imports_inside_functions_are_seen():
    assert "skrbfkmeans._engine.kernels" in {
        module.removesuffix(".entmax") for module in GRAPH["skrbfkmeans.entmax"]
    }
    assert "skrbfkmeans._engine.rows" in GRAPH["skrbfkmeans._engine.units"]


@pytest.mark.parametrize(
    ("layer", "above"),
    [
        ("_engine", ("_run", "_rbfkmeans", "_callbacks", "_checks", "schedules")),
        ("_engine", ("dask", "torch", "energy", "inspection")),
        ("_run", ("_rbfkmeans", "dask", "torch", "energy", "inspection")),
    ],
)
def test_no_layer_imports_what_stands_above_it(layer, above):
    above = tuple(f"skrbfkmeans.{name}" for name in above)
    upward = [
        (name, imported)
        for name, found in GRAPH.items()
        if name.startswith(f"skrbfkmeans.{layer}")
        for imported in found
        if imported.startswith(above)
    ]
    assert upward == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_module_imports_itself_by_way_of_others(name):
    seen, ahead = set(), [name]
    while ahead:
        for imported in GRAPH[ahead.pop()] - seen:
            assert imported != name
            seen.add(imported)
            ahead.append(imported)


def test_optional_packages_are_imported_in_their_own_folders_alone():
    for name in MODULES:
        roots = {imported.partition(".")[0] for imported in imports_of(name)}
        for package, home in (("dask", "dask"), ("torch", "torch")):
            is_home = name.startswith(f"skrbfkmeans.{home}")
            assert is_home or package not in roots, name


def test_private_names_of_scikit_learn_are_imported_by_one_module_alone():
    at_fault = [
        (name, imported)
        for name in MODULES
        for imported in imports_of(name)
        if imported.startswith("sklearn.") and "._" in imported
    ]
    assert {name for name, _ in at_fault} == {"skrbfkmeans._sklearn"}


def test_four_private_modules_are_left_at_the_root():
    private = {path.stem for path in ROOT.glob("_*.py")} - {"__init__"}
    assert private == {"_rbfkmeans", "_checks", "_callbacks", "_sklearn"}
