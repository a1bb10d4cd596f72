"""The compiled modules are those that are loaded, made from these sources, without what mypyc gets wrong."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT, need

NAMES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["lycosa"]["compiled"]


def compiled() -> list[Path]:
    return sorted((ROOT / "lycosa").rglob("*.so"))


def script(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, home / "scripts/compile", *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A project of its own, with what was compiled here."""
    need("the compiled modules (make compiled)", bool(compiled()))
    for name in ("lycosa", "scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "build/compiled").mkdir(parents=True)
    shutil.copy(ROOT / "build/compiled/stamp", tmp_path / "build/compiled")
    return tmp_path


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
        ("lycosa/core/turns.py", True),
        (
            "lycosa/core/model.py",
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


def test_no_test_runs_with_a_stale_build(copy: Path):
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "build/compiled/stamp").unlink()
    command = [sys.executable, "-m", "pytest", "-q", "tests/core/test_url.py"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make interpreted" in done.stdout + done.stderr
    assert "passed" not in done.stdout


def test_without_a_compiler_the_modules_stay_interpreted(copy: Path, tmp_path: Path):
    (copy / "build/compiled/stamp").unlink()
    done = script(copy, PATH=str(tmp_path))
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert done.stdout.startswith("The frontier stays interpreted")
    assert "gcc" in done.stdout
    assert sorted((copy / "lycosa").rglob("*.so")) == []
    assert script(copy, "--must", PATH=str(tmp_path)).returncode == 1


def test_clean_removes_all(copy: Path):
    assert script(copy, "--clean").returncode == 0
    assert sorted((copy / "lycosa").rglob("*.so")) == []
    assert not (copy / "build/compiled").exists()
