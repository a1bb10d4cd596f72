"""The rules of docs/architecture.md that a program can check; the floors themselves are contracts in pyproject.toml.

Sizes keep a file readable in one sitting, the allow-list keeps `core` pure, hygiene keeps the text about the project.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "lycosa"
FILE_LINES_MAX = 500
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 70

ADAPTERS = {"frontiers", "fetchers", "proxies", "sources", "sinks", "records", "caches", "indexes", "queues"}

# The part of the standard library that only computes: no clock, file, socket, chance or environment.
# fmt: off
PURE_STANDARD_LIBRARY = {
    "__future__", "abc", "array", "base64", "binascii", "bisect", "calendar", "codecs", "collections", "colorsys",
    "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "email.utils.parsedate_to_datetime",
    "enum", "fnmatch", "fractions",
    "functools", "gzip", "hashlib", "heapq", "hmac", "html", "http.cookies", "io", "ipaddress", "itertools", "json",
    "keyword", "math", "numbers", "operator", "re", "reprlib", "shlex", "statistics", "string", "struct", "textwrap",
    "types", "typing", "unicodedata", "urllib.parse", "warnings", "xml.etree.ElementTree", "zlib",
}
# fmt: on
COMPILED_THAT_ONLY_COMPUTE = {
    "ada_url",
    "bencode2",
    "fastbloom_rs",
    "msgspec",
    "protego",
    "rbloom",
    "selectolax",
    "xxhash",
}
CORE_MAY_IMPORT = PURE_STANDARD_LIBRARY | COMPILED_THAT_ONLY_COMPUTE | {"lycosa.core"}
# What the allowed modules hold that is not pure after all.
IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "breakpoint", "__import__"}
IMPURE_METHODS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("io", "open")}

NOT_OURS = re.compile(r"TODO|FIXME|XXX\b|/home/|/root/")
BINARY = {".png", ".ico", ".gz", ".woff2", ".zst"}


def sources(root: Path = PACKAGE) -> list[Path]:
    return sorted(root.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the full dotted names a module imports, wherever it does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; write the whole name"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def under(full_name: str, allowed: set[str]) -> bool:
    parts = full_name.split(".")
    return any(".".join(parts[:n]) in allowed for n in range(1, len(parts) + 1))


def impurities(source: str) -> list[str]:
    """Return what a module of core may not contain."""
    tree = ast.parse(source)
    found = [f"line {line}: imports {what}" for line, what in imports(tree) if not under(what, CORE_MAY_IMPORT)]
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            found.append(f"line {node.lineno}: async")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"line {node.lineno}: calls {node.func.id}()")
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if (owner, node.attr) in IMPURE_METHODS:
                found.append(f"line {node.lineno}: uses {owner}.{node.attr}")
    return found


@pytest.mark.parametrize("path", sources(PACKAGE / "core"), ids=name)
def test_core_is_pure(path: Path):
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import time as t",
        "from urllib import request",
        "import urllib.request",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.now()",
        "from lycosa.infra.clock import Clock",
        "from lycosa import ports",
        "def f():\n    import random",
        "async def f(): pass",
        "print(1)",
    ],
)
def test_the_purity_check_bites(source: str):
    assert impurities(source)


@pytest.mark.parametrize(
    "source", ["from urllib.parse import quote", "from urllib import parse", "import lycosa.core.url"]
)
def test_the_purity_check_lets_computation_pass(source: str):
    assert impurities(source) == []


@pytest.mark.parametrize("path", sources(), ids=name)
def test_sizes(path: Path):
    text = path.read_text(encoding="utf-8")
    too_long = [f"{text.count(chr(10))} lines in the file"] if text.count("\n") > FILE_LINES_MAX else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            limit = CLASS_LINES_MAX if isinstance(node, ast.ClassDef) else FUNCTION_LINES_MAX
            too_long += [f"{node.name}: {lines} lines, at most {limit}"] if lines > limit else []
    assert too_long == []


@pytest.mark.parametrize("path", sources(), ids=name)
def test_a_module_with_code_starts_with_its_contract(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not tree.body or ast.get_docstring(tree), f"{name(path)}: no docstring"


def test_only_the_composition_root_imports_adapters():
    wrong = []
    for path in sources():
        package = module(path).split(".")
        floor = package[1] if len(package) > 1 else ""
        for line, what in imports(ast.parse(path.read_text(encoding="utf-8"))):
            target = what.split(".")
            if target[0] == "lycosa" and len(target) > 1 and target[1] in ADAPTERS and floor not in {target[1], "app"}:
                wrong.append(f"{name(path)}:{line} imports {what}")
    assert wrong == []


def hidden_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what is imported for the type checker only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports(ast.Module(node.body, []))


def test_no_import_of_our_own_is_for_the_type_checker_only():
    """A heavy library may wait until it is needed, and so may the public names; elsewhere it would hide a knot."""
    hidden = [
        f"{name(path)}:{line} {what}"
        for path in sources()
        if path != PACKAGE / "__init__.py"
        for line, what in hidden_imports(ast.parse(path.read_text(encoding="utf-8")))
        if what.startswith("lycosa")
    ]
    assert hidden == []


def test_no_utils():
    assert [name(path) for path in sources() if re.search(r"util|helper|common|misc", path.stem)] == []


REQUIRED = re.compile(r"[\[<>=~! ]")


def test_every_dependency_is_used_and_every_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {REQUIRED.split(line)[0].replace("-", "_") for line in project["dependencies"]}
    imported = {
        what.split(".")[0] for path in sources() for _, what in imports(ast.parse(path.read_text(encoding="utf-8")))
    }
    # httptools: uvicorn takes it when it is there, nobody imports it.
    third_party = imported - sys.stdlib_module_names - {"lycosa"}
    extras = {"PIL", "hiredis", "redis"}
    assert "pillow" in project["optional-dependencies"]["images"][0]
    assert "redis" in project["optional-dependencies"]["redis"][1]
    third_party -= extras
    assert third_party <= declared, "imported, but not in pyproject.toml"
    assert declared <= third_party | {"httptools"}, "in pyproject.toml, but imported nowhere"


def test_every_dependency_is_explained_and_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    pinned = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
    told = " ".join(re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE))
    needed = [REQUIRED.split(line)[0] for line in [*project["dependencies"], *extras["images"], *extras["redis"]]]
    assert [each for each in needed if each not in told] == []
    others = [REQUIRED.split(line)[0] for line in [*extras["dev"], *extras["bench"]]]
    pins = set(re.findall(r"^([^=]+)==", pinned, re.MULTILINE))
    assert {*needed, *others} - pins == set()


def tree_of_the_design() -> dict[str, set[str]]:
    """Return the files and folders that the tree in docs/architecture.md names, by the folder they are in."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("```\nlycosa/\n", 1)[1].split("\ntests/  ", 1)[0]
    told: dict[str, set[str]] = {"": set()}
    for entry in re.split(r"^[├└]── ", tree, flags=re.MULTILINE)[1:]:
        head = re.match(r"(?:\w+/ +)*", entry)
        assert head is not None
        names = set(re.findall(r"\b(\w+)(?:\.py\b|/\W)", entry[head.end() :]))
        folders = re.findall(r"(\w+)/", head[0])
        told.update(dict.fromkeys(folders, names))
        told[""] |= set(folders) or names
    return told


def test_the_tree_of_the_design_names_the_files_that_there_are():
    told = tree_of_the_design()
    del told["cli"]  # one file a verb
    for folder, names in told.items():
        inside = (PACKAGE / folder).iterdir()
        there = {path.stem for path in inside if (path.suffix == ".py" or path.is_dir()) and path.stem[0] != "_"}
        assert names == there, f"lycosa/{folder}: in the tree on one side, in the package on the other"


def committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [each for each in listed.stdout.split("\0") if each]
    paths = [path for path in map(ROOT.joinpath, names) if path.is_file() and path.suffix not in BINARY]
    return [path for path in paths if path != Path(__file__)]


def test_text_is_clean():
    """Read like the project's own: no left-over notes, no paths of one machine, no registry hosts, no stray blanks."""
    wrong = []
    for path in committed():
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.split("\n"), 1):
            if NOT_OURS.search(line) or (line != line.rstrip() and path.suffix != ".md"):
                wrong.append(f"{name(path)}:{number}: {line[:80]!r}")
        if text and not text.endswith("\n"):
            wrong.append(f"{name(path)}: no newline at the end")
    assert wrong == []


LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def test_links_between_the_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{name(path)}: {target}"
        for path in documents
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []
