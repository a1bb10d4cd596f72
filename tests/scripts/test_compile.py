"""The compiled modules are those that are loaded, made from these sources, without what mypyc gets wrong."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT, need

NAMES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["compiled"]["modules"]
SUFFIX = EXTENSION_SUFFIXES[0]
ELSE = SUFFIX.replace(sys.implementation.cache_tag, "cpython-399")
"""What the compiled modules of another Python end with."""
LIBRARY = f"lycosa/compiled__mypyc{SUFFIX}"
STAMP = f"build/compiled/{SUFFIX.split('.')[1]}/stamp"
STALE = "lycosa: compiled modules are older than their sources: make compiled, or make interpreted\n"


def compiled(home: Path = ROOT) -> list[Path]:
    return sorted((home / "lycosa").rglob(f"*{SUFFIX}"))


def load(home: Path) -> ModuleType:
    """Import scripts/compile of a project."""
    loader = SourceFileLoader("script", str(home / "scripts/compile"))
    spec = spec_from_loader("script", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def script(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, home / "scripts/compile", *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A project of its own, as if it had been compiled: the files are empty, and nothing here loads them."""
    for name in ("lycosa", "scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    made = load(tmp_path)
    made.STAMP.parent.mkdir(parents=True)
    made.STAMP.write_text(made.key())
    for path in (*(made.source(name).with_suffix(SUFFIX) for name in NAMES), made.LIBRARY):
        path.touch()
    return tmp_path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with a single module to compile, that was not compiled yet."""
    pytest.importorskip("mypyc")
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text('[tool.compiled]\nmodules = ["lycosa.one"]\n')
    (tmp_path / "lycosa").mkdir()
    (tmp_path / "lycosa/__init__.py").touch()
    (tmp_path / "lycosa/one.py").write_text("def one() -> int:\n    return 1\n")
    need("a C compiler and the headers of Python", not load(tmp_path).missing())
    return tmp_path


def compiler(home: Path, lines: str) -> str:
    """Write a C compiler of these lines of shell; return what names it."""
    path = home / "compiler"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def lycosa(home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lycosa", "--version"]
    environment = os.environ | {"PYTHONPATH": str(home)}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


def test_what_was_compiled_is_what_is_loaded():
    need("the compiled modules (make compiled)", bool(compiled()))
    interpreted = [name for name in NAMES if not str(importlib.import_module(name).__file__).endswith(".so")]
    assert interpreted == []
    assert len(compiled()) == len(NAMES) + 1  # and the library that all of them share


@pytest.mark.parametrize("name", NAMES)
def test_no_class_has_keywords(name: str):
    """Like `array_like=True`, for one: mypyc would ignore them without a word."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    classes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes if node.keywords] == []


def test_a_second_time_nothing_is_done(copy: Path):
    done = script(copy, PATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("lycosa/frontier/core/fair_queue.py", True),
        (
            "lycosa/http/core/model.py",
            True,
        ),  # not compiled, but its types and constants are compiled into those that import it
        ("lycosa/cli/main.py", False),
    ],
)
def test_a_stale_build_is_told(copy: Path, changed: str, stale: bool):
    with (copy / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    done = script(copy, "--check")
    assert (done.returncode, done.stderr) == (int(stale), "")
    assert done.stdout.count("\n") == int(stale)


@pytest.mark.parametrize("lost", [f"lycosa/frontier/core/fair_queue{SUFFIX}", LIBRARY])
def test_all_of_the_compiled_files_have_to_be_there(copy: Path, lost: str):
    (copy / lost).unlink()
    assert script(copy, "--check").returncode == 1


def test_another_python_in_the_same_checkout_is_left_alone(copy: Path):
    others = [copy / f"lycosa/frontier/core/fair_queue{ELSE}", copy / "build/compiled/cpython-399/stamp"]
    others[1].parent.mkdir()
    for path in others:
        path.touch()
    assert script(copy, "--check").returncode == 0
    assert script(copy, "--clean").returncode == 0
    assert all(path.exists() for path in others)
    assert script(copy, "--check").returncode == 0  # what the other one compiled is not loaded
    assert lycosa(copy).returncode == 0


def test_a_source_that_was_moved_is_named(copy: Path):
    (copy / "lycosa/frontier/core/fair_queue.py").unlink()
    done = script(copy, "--check")
    said = done.stdout + done.stderr
    assert (done.returncode, said.count("\n")) == (1, 1)
    assert "lycosa/frontier/core/fair_queue.py: pyproject.toml" in said


def test_a_source_changed_while_it_was_compiled_is_refused(small: Path):
    changes = compiler(small, f"echo '# changed' >>{small}/lycosa/one.py")
    done = script(small, "--must", CC=changes)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "changed while it was compiled" in done.stderr
    assert compiled(small) == []


def test_a_compiler_that_fails_leaves_nothing(small: Path):
    done = script(small, CC=compiler(small, "exit 3"))
    assert done.returncode == 1
    assert done.stderr.startswith("Compiling failed: ")
    assert done.stderr.count("\n") == 1
    assert compiled(small) == []
    assert not list((small / "build/compiled").iterdir())


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_a_copy_that_breaks_off_leaves_nothing(copy: Path, monkeypatch, failure: type[BaseException]):
    """Half of the modules would crash when they are loaded."""
    made = load(copy)
    built = [made.BUILD / "lib" / path.relative_to(copy) for path in compiled(copy)]
    moved: list[Path] = []

    def build(_: list[object]) -> None:
        for path in built:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def move(path: Path, target: Path) -> None:
        moved.append(path)
        if len(moved) == len(built):
            assert path.name == (copy / LIBRARY).name  # without it, the others cannot be loaded
            raise failure
        path.replace(target)

    monkeypatch.chdir(copy)
    monkeypatch.setattr(made, "generate", list)
    monkeypatch.setattr(made, "build", build)
    monkeypatch.setattr(shutil, "move", move)
    with pytest.raises(failure):
        made.compile_all()
    assert compiled(copy) == []
    assert not made.BUILD.exists()
    monkeypatch.undo()
    monkeypatch.chdir(copy)  # where the script goes: the next test is to be where this one was
    monkeypatch.setattr(made, "generate", list)
    monkeypatch.setattr(made, "build", build)
    made.compile_all()
    assert made.fresh()


def test_the_command_line_refuses_what_is_older_than_its_sources(copy: Path):
    assert lycosa(copy).returncode == 0
    now = time.time()
    for source in (
        "lycosa/frontier/core/fair_queue.py",
        "lycosa/http/core/model.py",
    ):  # compiled, and read for its types
        os.utime(copy / source, (now + 60, now + 60))
        done = lycosa(copy)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", STALE)
        os.utime(copy / source, (now - 60, now - 60))
    os.utime(copy / "lycosa/app/__init__.py", (now + 60, now + 60))
    assert lycosa(copy).returncode == 0


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_sources_written_anew_as_they_were_are_known_again(copy: Path, words: tuple[str, ...]):
    os.utime(copy / LIBRARY, (1, 1))
    assert lycosa(copy).returncode == 2
    assert script(copy, *words).returncode == 0
    assert lycosa(copy).returncode == 0


@pytest.mark.parametrize("lost", [LIBRARY, STAMP, "lycosa/frontier/core/fair_queue.py"])
def test_the_command_line_refuses_half_of_it(copy: Path, lost: str):
    (copy / lost).unlink()
    done = lycosa(copy)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", STALE)


def test_the_command_line_of_an_installed_package_is_not_asked(copy: Path):
    shutil.rmtree(copy / "scripts")
    shutil.rmtree(copy / "build")
    os.utime(copy / LIBRARY, (1, 1))
    assert lycosa(copy).returncode == 0


def test_the_command_line_works_interpreted(copy: Path):
    for path in compiled(copy):
        path.unlink()
    assert lycosa(copy).returncode == 0  # by hand: the stamp is still there


@pytest.mark.parametrize(
    ("lost", "says"), [(STAMP, "make interpreted"), ("lycosa/frontier/core/fair_queue.py", "fair_queue.py: pyproj")]
)
def test_no_test_runs_with_a_stale_build(copy: Path, lost: str, says: str):
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / lost).unlink()
    command = [sys.executable, "-m", "pytest", "-q", "tests/core/test_url.py"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stdout + done.stderr
    assert "passed" not in done.stdout


def test_without_a_compiler_the_modules_stay_interpreted(copy: Path, tmp_path: Path):
    (copy / STAMP).unlink()
    done = script(copy, PATH=str(tmp_path))
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert done.stdout.startswith("The frontier stays interpreted")
    assert "gcc" in done.stdout
    assert compiled(copy) == []
    assert script(copy, "--must", PATH=str(tmp_path)).returncode == 1


def test_clean_removes_all(copy: Path):
    assert script(copy, "--clean").returncode == 0
    assert compiled(copy) == []
    assert not load(copy).BUILD.exists()
