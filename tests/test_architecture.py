"""The layer diagram of ARCHITECTURE.md, and the house style's sizes, as assertions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "kvcache": {"core"},
    "costmodel": {"core"},
    "grammar": {"core"},
    "scheduler": {"core", "kvcache", "costmodel"},
    "telemetry": {"core", "costmodel"},
    "kernels": {"core", "costmodel", "floorline"},  # of the last, the compiled module alone
    "engine": {"core", "kvcache", "costmodel", "grammar", "scheduler", "kernels"},
    "server": {"core", "costmodel", "grammar", "telemetry", "lab"},
    "loadgen": {"core", "costmodel"},  # sees the server over HTTP only
    "lab": {"core", "costmodel", "loadgen"},  # starts servers as processes
    "floorline": {"server", "loadgen"},  # starts the commands
}
TOOLS: dict[str, set[str]] = {  # beside the product, which imports none of them
    "bench": set(MAY_IMPORT),
    "deploy": set(),
    "docs": {"core", "server", "telemetry", "deploy"},
}
HOME_OF: dict[str, set[str]] = {  # heavy third parties, and the one place each may appear
    "grafana_foundation_sdk": {"deploy"},
    "torch": {"engine"},
    "transformers": {"engine"},
    "safetensors": {"engine"},
    "gguf": {"engine"},
    "huggingface_hub": {"engine"},
    "llguidance": {"grammar"},
    "prometheus_client": {"telemetry"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "h11": {"server"},
    "tokenizers": {"server"},
    "jinja2": {"server"},
    "msgspec": {"core", "engine", "lab", "loadgen", "server"},
    "numpy": {"costmodel", "telemetry", "engine", "grammar", "kernels"},
    "httpx": {"loadgen"},
    "plotly": {"loadgen", "lab"},
    "rich": {"lab"},
}
FOLDERS: dict[str, list[str]] = {  # inside a package, from the top down: imports go downward only
    "costmodel": ["planning", ""],
    "engine": [
        *("", "load", "step", "forward", "prepare"),
        *("checkpoint", "tokenizer", "unpack", "headers", "machine"),
    ],
    "lab": ["", "experiments", "plan", "ask", "measure"],
    "loadgen": ["", "show", "report", "run", "load"],
    "server": [
        *("cli", "routes", "http", "", "answers", "text", "templates"),
        *("engines", "contract", "schema", "limits"),
    ],
    "telemetry": ["", "series", "why", "books", "bill", "spent", "engine"],
}
MAX_FOLDER_FILES, MAX_FOLDER_LINES = 12, 1400
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_STEP_LINES = 300, 50, 15
MAX_WALK_STAGES = 20
FILES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))
TOOL_FILES = sorted(path for tool in TOOLS for path in (ROOT / tool).rglob("*.py"))
DOCS = [ROOT / "ARCHITECTURE.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def imported_roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported_modules(path)}


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    roots = imported_roots(path) - {package}
    assert roots & {*MAY_IMPORT, *TOOLS, "tests"} <= MAY_IMPORT[package]
    assert all(package in HOME_OF[root] for root in roots & set(HOME_OF))
    if package == "core" and path.name != "wire.py":
        assert "msgspec" not in roots


@pytest.mark.parametrize("path", TOOL_FILES, ids=name_of)
def test_a_tool_imports_what_it_is_for(path: Path) -> None:
    tool = path.relative_to(ROOT).parts[0]
    roots = imported_roots(path) - {tool}
    assert roots & {*MAY_IMPORT, *TOOLS, "tests"} <= TOOLS[tool]


def folder_of(module: str) -> str:
    """Give the folder, inside its package, of a module or a package's folder."""
    parts = module.split(".")[1:]
    at_file = ROOT.joinpath(*module.split(".")).with_suffix(".py").exists()
    return "/".join(parts[:-1] if at_file else parts)


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_s_folders_import_downward(package: str) -> None:
    order = FOLDERS[package]
    for path in (ROOT / package).rglob("*.py"):
        home = str(path.parent.relative_to(ROOT / package)).strip(".")
        assert home in order, f"{package}/{home} has no place in FOLDERS"
        for module in imported_modules(path):
            if module.partition(".")[0] == package:
                assert order.index(folder_of(module)) >= order.index(home), f"{path}: {module}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_folder_is_seen_at_a_glance(package: str) -> None:
    for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MAX_FOLDER_FILES, folder
        lines = sum(len(path.read_text().splitlines()) for path in files)
        assert lines <= MAX_FOLDER_LINES, f"{folder}: {lines} lines"


@pytest.mark.parametrize("path", FILES + TOOL_FILES, ids=name_of)
def test_a_file_fits_in_the_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES
    for node in functions(path):
        assert lines_of(node) <= MAX_FUNCTION_LINES, node.name


def test_a_step_reads_like_a_sentence() -> None:
    (step,) = [node for node in functions(ROOT / "engine/loop.py") if node.name == "step"]
    assert lines_of(step) <= MAX_STEP_LINES


def test_every_name_that_the_docs_give_exists() -> None:
    """Docs that name code break the build when the code moves."""
    hops = [hop for doc in DOCS for hop in re.findall(r"`([\w/]+\.py):([\w.]+)`", doc.read_text())]
    assert hops
    for file, dotted in hops:
        scope: ast.AST = ast.parse((ROOT / file).read_text())
        for name in dotted.split("."):
            found = [node for node in ast.iter_child_nodes(scope) if name in names_of(node)]
            assert found, f"{file}:{dotted}"
            scope = found[0]


def test_the_walk_of_a_request_is_short() -> None:
    _, _, section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The walk of one request")
    numbers = re.findall(r"^\| (\d+) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert numbers == [str(row + 1) for row in range(len(numbers))]
    assert 0 < len(numbers) <= MAX_WALK_STAGES


def names_of(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return {getattr(node, "name", "")}


def test_a_public_class_name_stands_once() -> None:
    seen: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                seen.setdefault(node.name, []).append(name_of(path))
    twice = {name: homes for name, homes in seen.items() if len(homes) > 1}
    assert not twice, f"give one of each a name of its own: {twice}"


UNTYPED = "dict[str, Any]"  # says neither which keys there are nor what they hold
EDGES = {  # where JSON of any shape comes in or goes out
    "server/contract", "server/http", "server/routes", "server/answers", "server/templates",
    "server/schema",
}  # fmt: skip
UNTYPED_LEFT = {  # package: how often it stands outside of EDGES. It may only fall
    "core": 2,
    "engine": 6,
    "lab": 3,
    "loadgen": 29,
    "server": 2,
}


def test_untyped_dictionaries_only_become_fewer() -> None:
    found = dict.fromkeys(UNTYPED_LEFT, 0)
    for path in FILES:
        if name_of(path.parent) not in EDGES and (count := path.read_text().count(UNTYPED)):
            package = path.relative_to(ROOT).parts[0]
            found[package] = found.get(package, 0) + count
    more = {name: n for name, n in found.items() if n > UNTYPED_LEFT.get(name, 0)}
    assert not more, f"give these a typed record instead of {UNTYPED}: {more} of {UNTYPED_LEFT}"
    fewer = {name: n for name, n in found.items() if n < UNTYPED_LEFT.get(name, 0)}
    assert not fewer, f"fewer now: write {fewer} into UNTYPED_LEFT, so that it stays so"
