"""The rules of docs/architecture.md that a program can check; the layers are contracts in pyproject.toml.

Sizes keep a file and a folder readable in one sitting, the allow-list keeps every `core` pure, systems meet at their
ports, tests stand where the tree says, hygiene keeps the text about the project.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import lycosa
from tests.conftest import LONGEST, ROOT

PACKAGE = ROOT / "lycosa"
FILE_LINES_MAX = 500
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 18

# The folders of the package that are no system. All others are, and those to come.
NO_SYSTEMS = {"app", "cli", "config", "core", "html", "infra"}

# What the cores use of the standard library: the part of it that only computes, without clock, file, socket, chance or
# environment.
# fmt: off
PURE_STANDARD_LIBRARY = {
    "__future__", "array", "base64", "binascii", "bisect", "codecs", "collections", "contextlib", "dataclasses",
    "datetime", "difflib", "email.utils.parsedate_to_datetime", "enum", "fnmatch", "functools", "hashlib", "heapq",
    "hmac", "html", "io", "ipaddress", "itertools", "json", "math", "operator", "re", "typing", "unicodedata",
    "urllib.parse", "zlib",
}
# fmt: on
LIBRARIES_THAT_ONLY_COMPUTE = {"ada_url", "msgspec", "protego", "rbloom", "selectolax", "webencodings", "xxhash"}
PURE = PURE_STANDARD_LIBRARY | LIBRARIES_THAT_ONLY_COMPUTE
SHARED_CORE = {"lycosa.core", "lycosa.html", "lycosa.http.core"}
# What Python itself and the allowed modules hold that is not pure after all, by whatever name it goes.
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


def names_of(tree: ast.AST) -> dict[str, str]:
    """Return the full dotted names of what a module imports, by the names that it gives them."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            each = ((alias.asname or alias.name.split(".")[0], alias) for alias in node.names)
            names |= {ours: alias.name if alias.asname else ours for ours, alias in each}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (full_name := dotted(node.value, names)):
            names |= {target.id: full_name for target in node.targets if isinstance(target, ast.Name)}
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """Return the full dotted name that an expression stands for, "" for what was not imported."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the full dotted names of what a module imports, and of what it takes from that."""
    yield from imports(tree)
    names = names_of(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner and (what := dotted(node, names)):
            yield node.lineno, what


def under(full_name: str, allowed: set[str]) -> bool:
    parts = full_name.split(".")
    return any(".".join(parts[:n]) in allowed for n in range(1, len(parts) + 1))


def core_of(path: Path) -> str:
    """Return the pure part of the package that a file is in, "lycosa.http.core" for one; "" for the others."""
    parts = module(path).split(".")
    if parts[1:2] in (["core"], ["html"]):
        return ".".join(parts[:2])
    return ".".join(parts[:3]) if parts[2:3] == ["core"] else ""


def may_import(core: str) -> set[str]:
    """Return what a pure part may import: of ours, itself and what stands below it."""
    ours: dict[str, set[str]] = {
        "lycosa.core": set(),
        "lycosa.html": {"lycosa.core"},
        "lycosa.http.core": {"lycosa.core", "lycosa.html"},
    }
    return PURE | {core} | ours.get(core, SHARED_CORE)


def impurities(source: str, core: str = "lycosa.core") -> list[str]:
    """Return what a module of a pure part may not contain."""
    tree = ast.parse(source)
    allowed = may_import(core)
    found = [f"line {line}: imports {what}" for line, what in imports(tree) if not under(what, allowed)]
    found += [f"line {line}: uses {what}" for line, what in used(tree) if under(what, IMPURE) or what.endswith(".*")]
    for node in ast.walk(tree):
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
def test_the_purity_check_bites(source: str):
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
def test_the_purity_check_lets_computation_pass(source: str):
    assert impurities(source) == []


def test_all_that_a_core_may_import_some_core_does():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources() if core_of(path)]
    imported = {what for tree in trees for _, what in imports(tree)}
    assert {each for each in PURE if not any(under(what, {each}) for what in imported)} == set()


def test_a_core_may_import_the_shared_ones_and_no_other():
    assert impurities("from lycosa.http.core import url\nfrom lycosa.html import page", "lycosa.frontier.core") == []
    assert impurities("from lycosa.frontier.core import model", "lycosa.frontier.core") == []
    assert impurities("from lycosa.frontier.core import model", "lycosa.proxies.core")
    assert impurities("from lycosa.frontier import ports", "lycosa.frontier.core")


def test_the_modules_of_every_core_are_looked_through_for_cycles():
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (acyclic,) = (each for each in linter["contracts"] if each["name"] == "No cycles between the modules of a core")
    assert set(acyclic["ancestors"]) == {core_of(path) for path in sources()} - {""}


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


def folders() -> list[Path]:
    return sorted({path.parent for path in sources() if "templates" not in path.parts})


@pytest.mark.parametrize("folder", folders(), ids=name)
def test_a_folder_fits_on_a_screen(folder: Path):
    modules = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= FOLDER_MODULES_MAX, modules


# Plain functions over data that a package ships.
ALSO_OPEN = {"lycosa.http.public_suffixes.is_suffix", "lycosa.http.public_suffixes.registrable"}


# What commands show and public modules hand out. `lycosa` itself is looked after by tests/test_exports.py.
NAMED = {
    "cli": {
        "lycosa.crawl.diagnostics.bug_log.Bug",
        "lycosa.crawl.events.stats.Snapshot",
        "lycosa.crawl.events.stats.Summary",
        "lycosa.crawl.spiders.spider.Spider",
    },
    "signals.py": {"lycosa.crawl.events.signals.SIGNALS", "lycosa.crawl.events.signals.Signal"},
}


def is_system(part: str) -> bool:
    """Tell whether a part of the package is a system: no other folder, no public module, no public name."""
    known = part in {*NO_SYSTEMS, *lycosa.__all__} or part.startswith("__") or (PACKAGE / f"{part}.py").exists()
    return not known


def strays(system: str, source: str) -> list[str]:
    """Return what a module of a system takes from inside another system, past its ports and its core.

    The other modules that this is asked of, commands and public modules, are no system: they may not do it either.
    """
    found = []
    allowed = ALSO_OPEN | NAMED.get(system, set())
    for line, what in used(ast.parse(source)):
        package, part, *inside = [*what.split("."), ""]
        if package != "lycosa" or part in {"", system} or not is_system(part):
            continue
        if inside[0] not in {"core", "ports"} and not under(what, allowed):
            found.append(f"line {line}: takes {what}")
    return found


def outside_app() -> list[Path]:
    """Return all modules but those of app/, which alone makes adapters and services."""
    return [path for path in sources() if path.relative_to(PACKAGE).parts[0] not in {"app", "__init__.py"}]


@pytest.mark.parametrize("path", outside_app(), ids=name)
def test_systems_meet_at_their_ports(path: Path):
    assert strays(path.relative_to(PACKAGE).parts[0], path.read_text(encoding="utf-8")) == []


def test_all_that_is_named_past_the_ports_is_used():
    for part, named in NAMED.items():
        place = PACKAGE / part
        paths = sources(place) if place.is_dir() else [place]
        found = {what for path in paths for _, what in imports(ast.parse(path.read_text(encoding="utf-8")))}
        assert named <= found


def test_the_check_of_systems_bites():
    assert strays("crawl", "from lycosa.frontier.memory import MemoryShelf")
    assert strays("crawl", "from lycosa import frontier")
    assert strays("crawl", "import lycosa.frontier")
    assert strays("crawl", "import lycosa.frontier.memory as ports")
    assert strays("crawl", "import lycosa.frontier.ports\nlycosa.frontier.memory.MemoryShelf()")
    assert strays("crawl", "import lycosa.frontier.ports\nlycosa.frontier.ports.Frontier()") == []
    assert strays("crawl", "from lycosa.dht.udp import Peer"), "a system to come"
    assert strays("cli", "def command():\n    from lycosa.search.site.app import build_site")
    assert strays("pool.py", "from lycosa.proxies.memory.pool import LocalPool")
    assert strays("cli", "from lycosa.crawl.spiders.spider import Spider") == []
    assert strays("cli", "import lycosa\nfrom lycosa import Request, signals\nfrom lycosa.queue import Queue") == []
    assert strays("infra", "from lycosa.http.curl.fetcher import CurlFetcher")
    assert strays("crawl", "from lycosa.frontier.ports import Frontier\nfrom lycosa.crawl.engine import visit") == []


LOOKED_UP = {
    "app/crawl/live.py: custom_settings": "a target of the user: a URL or a spider",
    "app/crawl/runtime.py: handle_httpstatus_list": "a spider of the user may have one",
    "app/crawl/runtime.py: http_user": "a spider of the user may have one",
    "app/crawl/worker_main.py: state": "a spider that keeps state has one",
    "crawl/crawler.py: from_crawler": "a part of the user may have one",
    "crawl/crawler.py: from_settings": "a part of the user may have one",
    "crawl/diagnostics/user_errors.py: getall": "whatever a callback yielded",
    "crawl/diagnostics/user_errors.py: start": "a spider of the user, of whatever base class",
    "crawl/diagnostics/user_errors.py: xpath": "whatever a callback yielded",
    "crawl/engine/visit.py: response": "an exception of whatever class",
    "crawl/items/item_errors.py: model": "an error of one of pydantic's versions",
    "crawl/items/item_errors.py: title": "an error of one of pydantic's versions",
    "crawl/items/pipeline.py: process_item": "a pipeline of the user must have one",
    "crawl/middlewares/httpauth.py: http_auth_domain": "a spider of the user may have one",
    "crawl/middlewares/httpauth.py: http_pass": "a spider of the user may have one",
    "crawl/middlewares/httpauth.py: http_user": "a spider of the user may have one",
    "crawl/spiders/failure.py: response": "an exception of whatever class",
    "crawl/spiders/link_extractor.py: iter": "an element of lxml, or a text",
    "crawl/spiders/response.py: root": "what a callback follows: a URL, a link, a selected element",
    "crawl/spiders/response.py: url": "what a callback follows: a URL, a link, a selected element",
    "crawl/spiders/selectors.py: parser": "what a thread has of its own",
    "crawl/workers/threads.py: call": "what a thread has of its own",
}
"""Where a crawl asks whether something has an attribute, and what that is. A port is never asked so: what only some
back ends can do is a port of its own. Names of Python's own (`__name__`, `__await__`, ...) are free."""


def looked_up(source: str) -> set[str]:
    """Return the names of attributes that getattr and hasattr are asked for, but those of Python's own."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Name("getattr" | "hasattr"), [_, ast.Constant(str(attribute)), *_]):
                found.add(attribute)
    return {attribute for attribute in found if not attribute.startswith("__")}


def test_no_port_is_asked_what_else_it_can_do():
    assert looked_up("getattr(into, 'restart', None)\nhasattr(x, '__await__')\ngetattr(x, name)") == {"restart"}
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {attribute}"
        for folder in ("app", "crawl")
        for path in sources(PACKAGE / folder)
        for attribute in looked_up(path.read_text(encoding="utf-8"))
    }
    assert found == set(LOOKED_UP)


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
    "app",
)
KINDS = {"contracts", "sim", "e2e", "durability"}
OTHER_TESTS = {"cli", "servers", "bench", "docs", "scripts"}


def misplaced(path: Path) -> str:
    """Return why a test file does not stand where the tree says, or "".

    A folder of tests is one of the package, or one of KINDS within it. In a core, a file is the test of one module.
    """
    parts = path.relative_to(ROOT / "tests").parent.parts
    kinds = [index for index, part in enumerate(parts) if part in KINDS]
    tested = PACKAGE.joinpath(*(parts[: kinds[0]] if kinds else parts))
    if not tested.is_dir():
        return f"there is no {name(tested)}"
    if kinds or core_of(tested / "x.py") == "" or not path.name.startswith("test_"):
        return ""
    stem = path.stem.removeprefix("test_")
    here = (tested / f"{stem}.py").exists() or (tested / stem).is_dir()
    return "" if here else f"there is no {name(tested)}/{stem}.py"


@pytest.mark.parametrize("path", [path for system in MIRRORED for path in sources(ROOT / "tests" / system)], ids=name)
def test_tests_mirror_the_tree(path: Path):
    assert misplaced(path) == ""


def test_the_files_that_tests_begin_with_are_there():
    assert [stem for stem in LONGEST if not list((ROOT / "tests").glob(f"*/e2e/{stem}.py"))] == []


def test_the_check_of_the_mirror_bites():
    tests = ROOT / "tests"
    assert misplaced(tests / "http/core/test_cookies.py") == ""
    assert misplaced(tests / "http/core/test_biscuits.py")
    assert misplaced(tests / "https/test_fetcher.py")
    assert {path.name for path in tests.iterdir() if path.is_dir() and path.name[0] != "_"} == {*MIRRORED, *OTHER_TESTS}


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
    """Return the names that the tree in docs/architecture.md gives, by the folder they are in.

    A line is a folder and what is in it; it goes on in lines without a folder. What is in brackets is an explanation.
    """
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("```text\nlycosa/", 1)[1].split("\n```", 1)[0]
    told: dict[str, set[str]] = {}
    folder = ""
    for line in tree.split("\n")[1:]:
        head = re.match(r"([a-z0-9_/]+)/ +", line)
        folder = head[1] if head else folder
        names = re.sub(r"\([^)]*\)|#.*", " ", line[head.end() :] if head else line)
        told.setdefault(folder, set()).update(re.findall(r"[a-z0-9_]+", names))
    return told


def test_the_tree_of_the_design_names_the_files_that_there_are():
    told = tree_of_the_design()
    for folder, names in told.items():
        inside = (PACKAGE / folder).iterdir()
        there = {path.stem for path in inside if (path.suffix == ".py" or path.is_dir()) and path.stem[0] != "_"}
        there -= {"lua", "templates", "static"}
        assert names == there, f"lycosa/{folder}: in the tree on one side, in the package on the other"
    assert set(told) == {path.relative_to(PACKAGE).as_posix() for path in folders() if path != PACKAGE}


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


def test_a_class_name_exists_once() -> None:
    """A reader who finds a name knows which class it is."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "lycosa").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
