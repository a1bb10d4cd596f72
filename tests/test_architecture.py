"""The rules of docs/architecture.md that a program can check. import-linter checks the layers, see pyproject.toml.

Sizes keep files and folders readable, an allow-list keeps every `core` pure, systems use each other through their
ports, and the folders of the tests mirror those of the package.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import lycosa
from tests.conftest import LONGEST, ROOT

PACKAGE = ROOT / "lycosa"
FILE_LINES_MAX = 500
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 18

# The folders of the package that are not systems. All others are, including future ones.
NO_SYSTEMS = {"app", "cli", "config", "core", "html", "infra"}

# The part of the standard library that cores may use: it only computes, without clock, file, socket, randomness or
# environment.
# fmt: off
PURE_STANDARD_LIBRARY = {
    "__future__", "array", "base64", "binascii", "bisect", "codecs", "collections", "contextlib", "dataclasses",
    "datetime", "difflib", "email.utils.parsedate_to_datetime", "enum", "fnmatch", "functools", "hashlib", "heapq",
    "hmac", "html", "io", "ipaddress", "itertools", "json", "math", "operator", "re", "typing", "unicodedata",
    "urllib.parse", "zlib",
}
# fmt: on
LIBRARIES_THAT_ONLY_COMPUTE = {
    "ada_url",
    "msgspec",
    "protego",
    "rbloom",
    "selectolax",
    "snowballstemmer",
    "webencodings",
    "xxhash",
}
PURE = PURE_STANDARD_LIBRARY | LIBRARIES_THAT_ONLY_COMPUTE
SHARED_CORE = {"lycosa.core", "lycosa.html", "lycosa.http.core"}
# Parts of Python and of the allowed modules that are not pure.
IMPURE_BUILTINS = {"__builtins__", "__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
IMPURE = {
    "codecs.open",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "hashlib.file_digest",
    "io.FileIO",
    "io.open",
    "io.open_code",
}

NOT_OURS = re.compile(r"TODO|FIXME|XXX\b|/home/|/root/")
BINARY = {".png", ".ico", ".gz", ".woff2", ".zst", ".dict"}


def sources(root: Path = PACKAGE) -> list[Path]:
    return sorted(root.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(source: str) -> Sequence[ast.AST]:
    """Return all nodes of the syntax tree of a module; the first is the module."""
    return list(ast.walk(ast.parse(source)))


def nodes_of(path: Path) -> Sequence[ast.AST]:
    """Return all nodes of the syntax tree of a file."""
    return parsed(path.read_text(encoding="utf-8"))


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the full dotted names of all imports among these nodes, with their lines."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; write the whole name"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def names_of(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Return the full dotted names of imports, and of variables assigned from them, by their local names."""
    names = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            each = ((alias.asname or alias.name.split(".")[0], alias) for alias in node.names)
            names |= {local: alias.name if alias.asname else local for local, alias in each}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.Assign) and (full_name := dotted(node.value, names)):
            names |= {target.id: full_name for target in node.targets if isinstance(target, ast.Name)}
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """Return the full dotted name of an expression, "" if it was not imported."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def used(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the full dotted names of all imports of a module, and of their attributes that it uses."""
    yield from imports(nodes)
    names = names_of(nodes)
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner and (full_name := dotted(node, names)):
            yield node.lineno, full_name


def under(full_name: str, allowed: set[str]) -> bool:
    parts = full_name.split(".")
    return any(".".join(parts[:n]) in allowed for n in range(1, len(parts) + 1))


def core_of(path: Path) -> str:
    """Return the pure part of the package that contains a file, for example "lycosa.http.core", or ""."""
    parts = module(path).split(".")
    if parts[1:2] in (["core"], ["html"]):
        return ".".join(parts[:2])
    return ".".join(parts[:3]) if parts[2:3] == ["core"] else ""


def may_import(core: str) -> set[str]:
    """Return what a pure part may import: pure libraries, itself, and the layers below it."""
    below: dict[str, set[str]] = {
        "lycosa.core": set(),
        "lycosa.html": {"lycosa.core"},
        "lycosa.http.core": {"lycosa.core", "lycosa.html"},
    }
    return PURE | {core} | below.get(core, SHARED_CORE)


def impurities(source: str, core: str = "lycosa.core") -> list[str]:
    """Return the parts of a module that are not allowed in a core."""
    nodes = parsed(source)
    allowed = may_import(core)
    found = [f"line {line}: imports {imported}" for line, imported in imports(nodes) if not under(imported, allowed)]
    found += [
        f"line {line}: uses {imported}"
        for line, imported in used(nodes)
        if under(imported, IMPURE) or imported.endswith(".*")
    ]
    for node in nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            found.append(f"line {node.lineno}: async")
        if isinstance(node, ast.Name) and node.id in IMPURE_BUILTINS:
            found.append(f"line {node.lineno}: uses {node.id}")
    return found


@pytest.mark.parametrize("path", [path for path in sources() if core_of(path)], ids=name)
def test_core_is_pure(path: Path):
    assert impurities(path.read_text(encoding="utf-8"), core_of(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import time as t",
        "from urllib import request",
        "import urllib.request",
        "from datetime import datetime\nx = datetime.now()",
        "from datetime import datetime as D\nx = D.now()",
        "from datetime import datetime\nD = datetime\nx = D.now",
        "from datetime import date\nx = [date.today]",
        "import datetime\nx = datetime.datetime.now()",
        "import datetime as d\nx = d.datetime.now()",
        "import gzip\ngzip.open('x')",
        "import codecs\ncodecs.open('x')",
        "import io as i\ni.FileIO('x')",
        "from io import open as o",
        "from io import *",
        "from xml.etree import ElementTree\nElementTree.parse('x')",
        "f = open\nf('x')",
        "def f(read=open): pass",
        "__builtins__['open']('x')",
        "from lycosa.infra.clock import Clock",
        "from lycosa import infra",
        "from lycosa.http.core import model",
        "def f():\n    import random",
        "async def f(): pass",
        "print(1)",
    ],
)
def test_the_purity_check_finds_impure_code(source: str):
    assert impurities(source)


@pytest.mark.parametrize(
    "source",
    [
        "from urllib.parse import quote",
        "from urllib import parse",
        "import lycosa.core.url",
        "import datetime\nx = datetime.datetime.fromtimestamp(0, datetime.UTC)",
        "from io import BytesIO\nBytesIO().read()",
        "class A:\n    def open(self): self.now = self.open()",
    ],
)
def test_the_purity_check_accepts_pure_code(source: str):
    assert impurities(source) == []


def test_every_allowed_import_of_a_core_is_used():
    imported = {full_name for path in sources() if core_of(path) for _, full_name in imports(nodes_of(path))}
    assert {each for each in PURE if not any(under(full_name, {each}) for full_name in imported)} == set()


def test_a_core_may_import_shared_cores_and_no_other():
    assert impurities("from lycosa.http.core import url\nfrom lycosa.html import page", "lycosa.frontier.core") == []
    assert impurities("from lycosa.frontier.core import model", "lycosa.frontier.core") == []
    assert impurities("from lycosa.frontier.core import model", "lycosa.proxies.core")
    assert impurities("from lycosa.frontier import ports", "lycosa.frontier.core")


def test_every_core_is_checked_for_import_cycles():
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (acyclic,) = (each for each in linter["contracts"] if each["name"] == "No cycles between the modules of a core")
    assert set(acyclic["ancestors"]) == {core_of(path) for path in sources()} - {""}


@pytest.mark.parametrize("path", sources(), ids=name)
def test_files_classes_and_functions_are_not_too_long(path: Path):
    text = path.read_text(encoding="utf-8")
    too_long = [f"{text.count(chr(10))} lines in the file"] if text.count("\n") > FILE_LINES_MAX else []
    for node in parsed(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            limit = CLASS_LINES_MAX if isinstance(node, ast.ClassDef) else FUNCTION_LINES_MAX
            too_long += [f"{node.name}: {lines} lines, at most {limit}"] if lines > limit else []
    assert too_long == []


@pytest.mark.parametrize("path", sources(), ids=name)
def test_a_module_with_code_has_a_docstring(path: Path):
    tree = nodes_of(path)[0]
    assert isinstance(tree, ast.Module)
    assert not tree.body or ast.get_docstring(tree), f"{name(path)}: no docstring"


def folders() -> list[Path]:
    return sorted({path.parent for path in sources() if "templates" not in path.parts})


@pytest.mark.parametrize("folder", folders(), ids=name)
def test_a_folder_has_a_limited_number_of_modules(folder: Path):
    modules = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= FOLDER_MODULES_MAX, modules


# Functions that other systems may use without a port: they are pure, and use only data that a library ships.
OPEN_FUNCTIONS = {"lycosa.http.public_suffixes.is_suffix", "lycosa.http.public_suffixes.registrable"}


# Classes that may be imported without a port: by commands (`cli`), which use them, and by public modules, which export
# them. `lycosa` itself is covered by tests/test_exports.py.
OPEN_CLASSES = {
    "cli": {
        "lycosa.crawl.diagnostics.bug_log.Bug",
        "lycosa.crawl.events.stats.Snapshot",
        "lycosa.crawl.events.stats.Summary",
        "lycosa.crawl.spiders.spider.Spider",
    },
    "signals.py": {"lycosa.crawl.events.signals.SIGNALS", "lycosa.crawl.events.signals.Signal"},
}


def is_system(part: str) -> bool:
    """Return whether a part of the package is a system: not in NO_SYSTEMS, no public module and no public name."""
    other = part in {*NO_SYSTEMS, *lycosa.__all__} or part.startswith("__") or (PACKAGE / f"{part}.py").exists()
    return not other


def forbidden_uses(system: str, source: str) -> list[str]:
    """Return the uses of another system that bypass its ports and its core.

    Commands and public modules are not systems, but are checked in the same way.
    """
    found = []
    allowed = OPEN_FUNCTIONS | OPEN_CLASSES.get(system, set())
    for line, full_name in used(parsed(source)):
        package, part, *inside = [*full_name.split("."), ""]
        if package != "lycosa" or part in {"", system} or not is_system(part):
            continue
        if inside[0] not in {"core", "ports"} and not under(full_name, allowed):
            found.append(f"line {line}: takes {full_name}")
    return found


def outside_app() -> list[Path]:
    """Return all modules outside of app/, the only folder that creates adapters and services."""
    return [path for path in sources() if path.relative_to(PACKAGE).parts[0] not in {"app", "__init__.py"}]


@pytest.mark.parametrize("path", outside_app(), ids=name)
def test_systems_use_each_other_through_ports(path: Path):
    assert forbidden_uses(path.relative_to(PACKAGE).parts[0], path.read_text(encoding="utf-8")) == []


def test_every_class_that_may_bypass_the_ports_is_imported():
    for part, named in OPEN_CLASSES.items():
        place = PACKAGE / part
        paths = sources(place) if place.is_dir() else [place]
        found = {full_name for path in paths for _, full_name in imports(nodes_of(path))}
        assert named <= found


def test_the_check_of_systems_finds_violations():
    assert forbidden_uses("crawl", "from lycosa.frontier.memory import MemoryShelf")
    assert forbidden_uses("crawl", "from lycosa import frontier")
    assert forbidden_uses("crawl", "import lycosa.frontier")
    assert forbidden_uses("crawl", "import lycosa.frontier.memory as ports")
    assert forbidden_uses("crawl", "import lycosa.frontier.ports\nlycosa.frontier.memory.MemoryShelf()")
    assert forbidden_uses("crawl", "import lycosa.frontier.ports\nlycosa.frontier.ports.Frontier()") == []
    assert forbidden_uses("crawl", "from lycosa.hub.node import Node"), "a future system"
    assert forbidden_uses("cli", "def command():\n    from lycosa.search.site.app import build_site")
    assert forbidden_uses("pool.py", "from lycosa.proxies.memory.pool import LocalPool")
    assert forbidden_uses("cli", "from lycosa.crawl.spiders.spider import Spider") == []
    assert (
        forbidden_uses("cli", "import lycosa\nfrom lycosa import Request, signals\nfrom lycosa.queue import Queue")
        == []
    )
    assert forbidden_uses("infra", "from lycosa.http.curl.fetcher import CurlFetcher")
    assert (
        forbidden_uses("crawl", "from lycosa.frontier.ports import Frontier\nfrom lycosa.crawl.engine import visit")
        == []
    )


GETATTR_USES = {
    "app/crawl/live.py: custom_settings": "a target of the user: a URL or a spider",
    "app/crawl/runtime.py: handle_httpstatus_list": "a spider of the user may have one",
    "app/crawl/runtime.py: http_user": "a spider of the user may have one",
    "app/crawl/worker_main.py: state": "a spider that keeps state has one",
    "crawl/crawler.py: from_crawler": "a component of the user may have one",
    "crawl/crawler.py: from_settings": "a component of the user may have one",
    "crawl/diagnostics/user_errors.py: getall": "whatever a callback yielded",
    "crawl/diagnostics/user_errors.py: start": "a spider of the user, of whatever base class",
    "crawl/diagnostics/user_errors.py: xpath": "whatever a callback yielded",
    "crawl/engine/visit.py: response": "an exception of whatever class",
    "crawl/items/item_errors.py: model": "an error of one of pydantic's versions",
    "crawl/items/item_errors.py: title": "an error of one of pydantic's versions",
    "crawl/items/pipeline.py: before_commit": "a pipeline of the user may have one",
    "crawl/items/pipeline.py: process_item": "a pipeline of the user must have one",
    "crawl/items/pipeline.py: resume_from": "a pipeline of the user may have one",
    "crawl/middlewares/httpauth.py: http_auth_domain": "a spider of the user may have one",
    "crawl/middlewares/httpauth.py: http_pass": "a spider of the user may have one",
    "crawl/middlewares/httpauth.py: http_user": "a spider of the user may have one",
    "crawl/spiders/failure.py: response": "an exception of whatever class",
    "crawl/spiders/link_extractor.py: iter": "an element of lxml, or a text",
    "crawl/spiders/response.py: root": "what a callback follows: a URL, a link, a selected element",
    "crawl/spiders/response.py: url": "what a callback follows: a URL, a link, a selected element",
    "crawl/spiders/selectors.py: parser": "a `threading.local` object",
    "crawl/workers/threads.py: call": "a `threading.local` object",
}
"""The attributes that a crawl looks up dynamically, and on which objects. Ports are never probed: operations that only
some back ends have are a separate port. Special names (`__name__`, `__await__`, ...) are not listed."""


def attributes_looked_up(source: str) -> set[str]:
    """Return the attribute names given to getattr and hasattr, except special ones."""
    found = set()
    for node in parsed(source):
        match node:
            case ast.Call(ast.Name("getattr" | "hasattr"), [_, ast.Constant(str(attribute)), *_]):
                found.add(attribute)
    return {attribute for attribute in found if not attribute.startswith("__")}


def test_no_port_is_probed_for_attributes():
    assert attributes_looked_up("getattr(into, 'restart', None)\nhasattr(x, '__await__')\ngetattr(x, name)") == {
        "restart"
    }
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {attribute}"
        for folder in ("app", "crawl")
        for path in sources(PACKAGE / folder)
        for attribute in attributes_looked_up(path.read_text(encoding="utf-8"))
    }
    assert found == set(GETATTR_USES)


MIRRORED = (
    "core",
    "html",
    "config",
    "infra",
    "http",
    "storage",
    "queues",
    "frontier",
    "proxies",
    "search",
    "crawl",
    "dht",
    "app",
)
KINDS = {"contracts", "sim", "e2e", "durability"}
OTHER_TESTS = {"cli", "servers", "bench", "docs", "scripts"}


def misplaced(path: Path) -> str:
    """Return why a test file is in the wrong place, or "" if it is not.

    A folder of tests mirrors one of the package, or is one of KINDS within such a folder. In a core, each file tests
    one module.
    """
    parts = path.relative_to(ROOT / "tests").parent.parts
    kinds = [index for index, part in enumerate(parts) if part in KINDS]
    tested = PACKAGE.joinpath(*(parts[: kinds[0]] if kinds else parts))
    if not tested.is_dir():
        return f"there is no {name(tested)}"
    if kinds or core_of(tested / "x.py") == "" or not path.name.startswith("test_"):
        return ""
    stem = path.stem.removeprefix("test_")
    exists = (tested / f"{stem}.py").exists() or (tested / stem).is_dir()
    return "" if exists else f"there is no {name(tested)}/{stem}.py"


@pytest.mark.parametrize("path", [path for system in MIRRORED for path in sources(ROOT / "tests" / system)], ids=name)
def test_tests_mirror_the_tree(path: Path):
    assert misplaced(path) == ""


def test_the_slowest_test_files_exist():
    assert [stem for stem in LONGEST if not list((ROOT / "tests").rglob(f"{stem}.py"))] == []


def test_the_check_of_test_files_finds_violations():
    tests = ROOT / "tests"
    assert misplaced(tests / "http/core/test_cookies.py") == ""
    assert misplaced(tests / "http/core/test_biscuits.py")
    assert misplaced(tests / "https/test_fetcher.py")
    assert {path.name for path in tests.iterdir() if path.is_dir() and path.name[0] != "_"} == {*MIRRORED, *OTHER_TESTS}


def hidden_imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the imports for the type checker only."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports(ast.walk(ast.Module(node.body, [])))


def test_no_import_of_the_package_is_for_the_type_checker_only():
    """Such an import would hide a cycle. The two modules that load their public names on first use are excepted."""
    hidden = [
        f"{name(path)}:{line} {full_name}"
        for path in sources()
        if path not in {PACKAGE / "__init__.py", PACKAGE / "dht" / "__init__.py"}
        for line, full_name in hidden_imports(nodes_of(path))
        if full_name.startswith("lycosa")
    ]
    assert hidden == []


def test_no_module_is_called_utils_or_the_like():
    assert [name(path) for path in sources() if re.search(r"util|helper|common|misc", path.stem)] == []


REQUIRED = re.compile(r"[\[<>=~! ]")


def test_every_dependency_is_used_and_every_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {REQUIRED.split(line)[0].replace("-", "_") for line in project["dependencies"]}
    imported = {full_name.split(".")[0] for path in sources() for _, full_name in imports(nodes_of(path))}
    # httptools is used by uvicorn if it is installed; nothing imports it.
    third_party = imported - sys.stdlib_module_names - {"lycosa"}
    extras = {
        "PIL",
        "argon2",
        "hiredis",
        "re2",
        "redis",
        "snowballstemmer",
    }  # the drivers of databases are imported by name
    assert "pillow" in project["optional-dependencies"]["images"][0]
    assert "redis" in project["optional-dependencies"]["redis"][1]
    assert "google-re2" in project["optional-dependencies"]["rules"][0]
    assert "snowballstemmer" in project["optional-dependencies"]["stem"][0]
    third_party -= extras
    third_party = {
        {"compression": "backports_zstd", "backports": "backports_zstd"}.get(name, name) for name in third_party
    }
    assert third_party <= declared, "imported, but not in pyproject.toml"
    assert declared <= third_party | {"httptools"}, "in pyproject.toml, but imported nowhere"


def test_every_dependency_is_explained_and_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    pinned = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
    explained = " ".join(re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE))
    needed = [REQUIRED.split(line)[0] for line in [*project["dependencies"], *extras["images"], *extras["redis"]]]
    assert [each for each in needed if each not in explained] == []
    others = [REQUIRED.split(line)[0] for line in [*extras["dev"], *extras["bench"]]]
    pins = set(re.findall(r"^([^=]+)==", pinned, re.MULTILINE))
    assert {*needed, *others} - pins == set()


def tree_of_the_design() -> dict[str, set[str]]:
    """Return the names in the tree of docs/architecture.md, by folder.

    A line has a folder and its contents, and continues in lines without a folder. Parentheses contain explanations.
    """
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("```text\nlycosa/", 1)[1].split("\n```", 1)[0]
    tree_: dict[str, set[str]] = {}
    folder = ""
    for line in tree.split("\n")[1:]:
        head = re.match(r"([a-z0-9_/]+)/ +", line)
        folder = head[1] if head else folder
        names = re.sub(r"\([^)]*\)|#.*", " ", line[head.end() :] if head else line)
        tree_.setdefault(folder, set()).update(re.findall(r"[a-z0-9_]+", names))
    return tree_


def test_the_tree_in_the_design_has_exactly_the_existing_files():
    tree = tree_of_the_design()
    for folder, names in tree.items():
        inside = (PACKAGE / folder).iterdir()
        existing = {path.stem for path in inside if (path.suffix == ".py" or path.is_dir()) and path.stem[0] != "_"}
        existing -= {"lua", "languages", "rule_sets", "templates", "static"}
        assert names == existing, f"lycosa/{folder}: the tree and the package differ"
    assert set(tree) == {path.relative_to(PACKAGE).as_posix() for path in folders() if path != PACKAGE}


def committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [each for each in listed.stdout.split("\0") if each]
    paths = [path for path in map(ROOT.joinpath, names) if path.is_file() and path.suffix not in BINARY]
    return [path for path in paths if path != Path(__file__)]


def test_text_is_clean():
    """No to-do notes, local paths or trailing blanks."""
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


def test_links_between_documents_work():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{name(path)}: {target}"
        for path in documents
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_a_class_name_exists_once() -> None:
    """So a name identifies its class."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "lycosa").rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
