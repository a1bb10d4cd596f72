"""scripts/compile: the compiled modules are loaded, are up to date, and have no classes that mypyc gets wrong."""

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
OTHER_SUFFIX = SUFFIX.replace(sys.implementation.cache_tag, "cpython-399")
"""The suffix of modules compiled for another Python."""
LIBRARY = f"lycosa/compiled__mypyc{SUFFIX}"
STAMP = f"build/compiled/{SUFFIX.split('.')[1]}/stamp"
STALE = "lycosa: compiled modules are older than their sources: run `make compiled` or `make interpreted`\n"


def compiled(home: Path = ROOT) -> list[Path]:
    return sorted((home / "lycosa").rglob(f"*{SUFFIX}"))


def load(home: Path) -> ModuleType:
    """Import the scripts/compile of a project."""
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
    """A copy of the project that looks compiled: the compiled files are empty, and nothing here loads them."""
    for name in ("lycosa", "scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    script_module = load(tmp_path)
    script_module.STAMP.parent.mkdir(parents=True)
    script_module.STAMP.write_text(script_module.key())
    for path in (*(script_module.source(name).with_suffix(SUFFIX) for name in NAMES), script_module.LIBRARY):
        path.touch()
    return tmp_path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with a single module to compile, which is not compiled yet."""
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
    """Write a C compiler that consists of these lines of shell. Return its path."""
    path = home / "compiler"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def lycosa(home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lycosa", "--version"]
    environment = os.environ | {"PYTHONPATH": str(home)}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


def test_compiled_modules_are_loaded():
    need("the compiled modules (make compiled)", bool(compiled()))
    interpreted = [name for name in NAMES if not str(importlib.import_module(name).__file__).endswith(".so")]
    assert interpreted == []
    assert len(compiled()) == len(NAMES) + 1  # plus the library that all of them share


@pytest.mark.parametrize("name", NAMES)
def test_no_compiled_class_has_keywords(name: str):
    """For example `array_like=True`: mypyc ignores them silently."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    classes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes if node.keywords] == []


def test_compiling_again_does_nothing(copy: Path):
    done = script(copy, PATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("lycosa/frontier/core/fair_queue.py", True),
        (
            "lycosa/http/core/model.py",
            True,
        ),  # not compiled, but its types and constants are compiled into the modules that import it
        ("lycosa/cli/main.py", False),
    ],
)
def test_a_stale_build_is_reported(copy: Path, changed: str, stale: bool):
    with (copy / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    done = script(copy, "--check")
    assert (done.returncode, done.stderr) == (int(stale), "")
    assert done.stdout.count("\n") == int(stale)


@pytest.mark.parametrize("lost", [f"lycosa/frontier/core/fair_queue{SUFFIX}", LIBRARY])
def test_a_missing_compiled_file_is_reported(copy: Path, lost: str):
    (copy / lost).unlink()
    assert script(copy, "--check").returncode == 1


def test_files_of_another_python_are_kept_and_ignored(copy: Path):
    others = [copy / f"lycosa/frontier/core/fair_queue{OTHER_SUFFIX}", copy / "build/compiled/cpython-399/stamp"]
    others[1].parent.mkdir()
    for path in others:
        path.touch()
    assert script(copy, "--check").returncode == 0
    assert script(copy, "--clean").returncode == 0
    assert all(path.exists() for path in others)
    assert script(copy, "--check").returncode == 0  # modules compiled for another Python are not loaded
    assert lycosa(copy).returncode == 0


def test_a_missing_source_is_named(copy: Path):
    (copy / "lycosa/frontier/core/fair_queue.py").unlink()
    done = script(copy, "--check")
    output = done.stdout + done.stderr
    assert (done.returncode, output.count("\n")) == (1, 1)
    assert "lycosa/frontier/core/fair_queue.py: pyproject.toml" in output


def test_a_source_that_changes_during_the_compilation_is_refused(small: Path):
    changes = compiler(small, f"echo '# changed' >>{small}/lycosa/one.py")
    done = script(small, "--must", CC=changes)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "changed during compilation" in done.stderr
    assert compiled(small) == []


def test_a_failing_compiler_leaves_no_files(small: Path):
    done = script(small, CC=compiler(small, "exit 3"))
    assert done.returncode == 1
    assert done.stderr.startswith("Compiling failed: ")
    assert done.stderr.count("\n") == 1
    assert compiled(small) == []
    assert not list((small / "build/compiled").iterdir())


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_an_interrupted_installation_leaves_no_files(copy: Path, monkeypatch, failure: type[BaseException]):
    """If only some of the modules were installed, they would crash when they are loaded."""
    script_module = load(copy)
    built = [script_module.BUILD / "lib" / path.relative_to(copy) for path in compiled(copy)]
    moved: list[Path] = []

    def build(_: list[object]) -> None:
        for path in built:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def move(path: Path, target: Path) -> None:
        moved.append(path)
        if len(moved) == len(built):
            assert path.name == (copy / LIBRARY).name  # the shared library, without which the others cannot be loaded
            raise failure
        path.replace(target)

    monkeypatch.chdir(copy)
    monkeypatch.setattr(script_module, "generate", list)
    monkeypatch.setattr(script_module, "build", build)
    monkeypatch.setattr(shutil, "move", move)
    with pytest.raises(failure):
        script_module.compile_all()
    assert compiled(copy) == []
    assert not script_module.BUILD.exists()
    monkeypatch.undo()
    monkeypatch.chdir(copy)  # the script changes its working directory; undo restores it after the test
    monkeypatch.setattr(script_module, "generate", list)
    monkeypatch.setattr(script_module, "build", build)
    script_module.compile_all()
    assert script_module.is_fresh()


def test_the_command_line_refuses_a_stale_build(copy: Path):
    assert lycosa(copy).returncode == 0
    now = time.time()
    for source in (
        "lycosa/frontier/core/fair_queue.py",
        "lycosa/http/core/model.py",
    ):  # one is compiled, the other is read for its types
        os.utime(copy / source, (now + 60, now + 60))
        done = lycosa(copy)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", STALE)
        os.utime(copy / source, (now - 60, now - 60))
    os.utime(copy / "lycosa/app/__init__.py", (now + 60, now + 60))
    assert lycosa(copy).returncode == 0


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_rewritten_but_unchanged_sources_are_not_stale(copy: Path, words: tuple[str, ...]):
    os.utime(copy / LIBRARY, (1, 1))
    assert lycosa(copy).returncode == 2
    assert script(copy, *words).returncode == 0
    assert lycosa(copy).returncode == 0


@pytest.mark.parametrize("lost", [LIBRARY, STAMP, "lycosa/frontier/core/fair_queue.py"])
def test_the_command_line_refuses_an_incomplete_build(copy: Path, lost: str):
    (copy / lost).unlink()
    done = lycosa(copy)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", STALE)


def test_the_command_line_of_an_installed_package_is_not_checked(copy: Path):
    shutil.rmtree(copy / "scripts")
    shutil.rmtree(copy / "build")
    os.utime(copy / LIBRARY, (1, 1))
    assert lycosa(copy).returncode == 0


def test_the_command_line_works_without_compiled_modules(copy: Path):
    for path in compiled(copy):
        path.unlink()
    assert lycosa(copy).returncode == 0  # the files were deleted by hand: the stamp is still there


@pytest.mark.parametrize(
    ("lost", "message"), [(STAMP, "make interpreted"), ("lycosa/frontier/core/fair_queue.py", "fair_queue.py: pyproj")]
)
def test_tests_refuse_a_stale_build(copy: Path, lost: str, message: str):
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / lost).unlink()
    command = [sys.executable, "-m", "pytest", "-q", "tests/core/test_url.py"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stdout + done.stderr
    assert "passed" not in done.stdout


def test_modules_stay_interpreted_without_a_compiler(copy: Path, tmp_path: Path):
    (copy / STAMP).unlink()
    done = script(copy, PATH=str(tmp_path))
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert done.stdout.startswith("The modules stay interpreted")
    assert "gcc" in done.stdout
    assert compiled(copy) == []
    assert script(copy, "--must", PATH=str(tmp_path)).returncode == 1


def test_clean_removes_all_compiled_files(copy: Path):
    assert script(copy, "--clean").returncode == 0
    assert compiled(copy) == []
    assert not load(copy).BUILD.exists()
