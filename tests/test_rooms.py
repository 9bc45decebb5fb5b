"""Imports only point down, and what is cheap or pure stays so."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = {
    path.stem if path.suffix == ".py" else path.name
    for path in ROOT.iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
}

# Each room may import from those below it, and from none in its own line.
FLOORS = (
    {"reward"},
    {"resident", "run", "bank"},
    {"looks"},
    {"checks", "progress", "publish", "regrade", "stopping"},
    {"settings"},
    {"export"},
    {"rows"},
    {"report", "journal"},
    {"agree", "audits", "lines"},
    {"swarm"},
    {"ray_judge"},
    {"judge", "policy"},
    {"checkers"},
    {"trial"},
    {"data", "equal_cost"},
    {"spool"},
    {"formats"},
    {"sources"},
    {
        "toy",
        "decoder",
        "replies",
        "compare",
        "sandbox",
        "descriptors",
        "flags",
        "folder",
        "streams",
        "versions",
    }
    | {"stats", "power", "sequential"},
)


def imports(path: Path) -> set[str]:
    """Names of modules that a file imports when it runs, ours and others, by their first part."""
    tree = ast.parse(path.read_text("utf-8"))
    checked = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and {"TYPE_CHECKING", "__name__"}.intersection(ast.unparse(node.test).split())
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in checked:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # urllib.parse only takes addresses apart; what opens them is urllib.request.
            whole = node.module if node.module == "urllib.parse" else node.module.partition(".")[0]
            found.add(whole)
    return found


def files(room: str) -> list[Path]:
    single = ROOT / f"{room}.py"
    return [single] if single.exists() else sorted((ROOT / room).glob("*.py"))


def test_every_room_has_its_floor():
    assert sorted(room for floor in FLOORS for room in floor) == sorted(OURS)


@pytest.mark.parametrize("room", sorted(OURS))
def test_imports_only_point_down(room):
    below = {name for i, floor in enumerate(FLOORS) if room in floor for f in FLOORS[i + 1 :]
             for name in f}  # fmt: skip
    for path in files(room):
        up = (imports(path) & OURS) - below - {room}
        assert not up, f"{path.name} imports {up}"


def test_within_a_package_there_is_no_circle():
    for package in (path.parent for path in ROOT.glob("*/__init__.py")):
        needs = {}
        for path in package.glob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            needs[path.stem] = {
                node.module.partition(".")[2]
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module
                and node.module.startswith(f"{package.name}.")
            }  # fmt: skip
        done: set[str] = set()
        while len(done) < len(needs):
            ready = {name for name, wanted in needs.items() if wanted <= done} - done
            assert ready, f"a circle in {package.name}: {set(needs) - done}"
            done |= ready


def test_only_the_endpoint_and_the_data_set_reach_the_network():
    for room in OURS - {"policy", "sources"}:
        for path in files(room):
            reached = imports(path) & {"httpx2", "httpx", "openai", "requests", "urllib", "http"}
            assert not reached, path.name


def test_the_worker_imports_no_more_than_it_needs():
    """What a case costs is mostly its fork, and that grows with what the worker has imported."""
    ours = {"sandbox"}
    standard = {"_sitebuiltins", "_thread", "atexit", "builtins", "contextlib", "ctypes", "gc",
                "io", "re", "threading", "multiprocessing",
                "math", "mmap", "os", "resource", "signal", "struct", "sys", "time", "types",
                "typing", "collections", "__future__", "functools", "json"}  # fmt: skip
    for name in ("__init__", "worker", "drivers", "cage", "seccomp"):
        assert imports(ROOT / "sandbox" / f"{name}.py") <= ours | standard


@pytest.mark.parametrize("name", ["stats", "power", "sequential", "equal_cost"])
def test_statistics_are_pure(name):
    assert imports(ROOT / f"{name}.py") <= {"__future__", "collections", "dataclasses", "math",
                                            "numpy", "scipy", "stats"}  # fmt: skip
