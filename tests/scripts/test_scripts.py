"""The scripts behind the Makefile report what is missing in one line, and do nothing twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, need


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder in front of PATH, where `id` reports an ordinary user and apt-get fails when it is called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("id", "echo 1000"), ("apt-get", "echo called >&2; exit 99")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def test_without_root_one_line_names_the_packages(programs: Path):
    wanted = ("no-such-command:some-package", "sh:dash", "other-missing:other-package")
    done = run(ROOT / "scripts/packages", *wanted, PATH=f"{programs}:{os.environ['PATH']}")
    line = "These packages are missing, install them first: sudo apt-get install some-package other-package\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_nothing_is_installed_when_everything_is_there(programs: Path):
    done = run(ROOT / "scripts/packages", "sh:dash", "cat:coreutils", PATH=f"{programs}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


APT = """
echo "$@" >>"$0.log"
case "$1" in
indextargets) echo http://mirror.example/debian/ ;;
update) for word in "$@"; do test -f "${word#Dir::Etc::SourceList=}" && cat "${word#*=}" >>"$0.log"; done ;;
esac
exit 0
"""


def test_packages_missing_in_this_debian_are_installed_from_its_backports(programs: Path):
    """The packages come from the mirror of this Debian, and its list of package sources stays as it is."""
    need("Debian", Path("/etc/debian_version").exists())
    for name, text in (("id", "echo 0"), ("apt-get", APT), ("apt-cache", "exit 100")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    done = run(ROOT / "scripts/packages", "--backports", "no-such-command:some-package", PATH=path)
    suite = re.findall(r"Looking into (\w+-backports) for: some-package\n", done.stdout)[0]
    called = (programs / "apt-get.log").read_text().splitlines()
    line = f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian/ {suite} main"
    assert (done.returncode, called.count(line)) == (0, 1)
    (options,) = [call for call in called if call.startswith("install")]
    assert f"-t {suite} -o Dir::Etc::SourceParts=" in options
    assert options.endswith(" some-package")
    assert not Path(options.partition("SourceParts=")[2].split()[0]).exists()


def test_without_apt_get_the_exit_code_is_2(tmp_path: Path):
    shell = shutil.which("sh")
    assert shell
    done = run(shell, ROOT / "scripts/packages", "no-such-command:some-package", PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, "No apt-get here to install what is missing: some-package\n")


OLD_PYTHON = f"""#!/bin/sh
exec '{sys.executable}' -c 'import sys; sys.version_info = (3, 10, 99); exec(sys.argv[2])' "$@"
"""


@pytest.mark.parametrize("python", ["no-such-python", "./old-python"])
def test_a_missing_or_old_python_is_reported_in_one_line(tmp_path: Path, python: str):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/venv", tmp_path / "scripts/venv")
    (tmp_path / "old-python").write_text(OLD_PYTHON)
    (tmp_path / "old-python").chmod(0o755)
    done = run(tmp_path / "scripts/venv", PYTHON=python)
    assert done.returncode == 1
    assert done.stderr.startswith("Lycosa needs Python 3.11 or newer")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


def docs_site(home: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in a project of its own, with only these commands in PATH."""
    (home / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/docs-site", home / "scripts/docs-site")
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    for command in commands:
        found = shutil.which(command)
        need(command, found is not None)
        (programs / command).symlink_to(found or "")
    return run(sys.executable, home / "scripts/docs-site", PATH=str(programs))


def test_without_debian_packages_the_script_ends_with_one_line_and_code_2(tmp_path: Path):
    done = docs_site(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "No documentation site: apt-cache is not installed: Debian's packages are not available\n"


@pytest.mark.site
def test_the_documentation_site_is_complete_and_serves_no_other_file(docs_root: Path):
    index = (docs_root / "index.html").read_text(encoding="utf-8")
    entries = [line.split('"')[1] for line in index.splitlines() if "<a href=" in line]
    assert len(entries) == 5
    assert all((docs_root / entry).is_file() for entry in entries)
    assert sum(1 for path in docs_root.rglob("*.html") if path.is_file()) > 10_000
    outside = [path for path in docs_root.rglob("*") if not path.resolve().is_relative_to(docs_root.resolve())]
    assert outside == []


@pytest.mark.site
def test_the_documentation_site_is_made_once(docs_root: Path):
    before = docs_root.stat().st_mtime_ns
    done = run(sys.executable, ROOT / "scripts/docs-site", PATH="")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(docs_root), "")
    assert docs_root.stat().st_mtime_ns == before


@pytest.mark.site
def test_one_manual_is_taken_from_the_complete_site(docs_root: Path):
    done = run(sys.executable, ROOT / "scripts/docs-site", "Python", PATH="")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(docs_root), "")


def test_an_unknown_manual_is_refused():
    done = run(sys.executable, ROOT / "scripts/docs-site", "Pyton", PATH="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("No manual Pyton: write one of Python, PostgreSQL, ")


@pytest.mark.prove
@pytest.mark.site
def test_an_interrupted_run_resumes(docs_root: Path, tmp_path: Path):
    """A partly unpacked tree is not used, and complete packages are not downloaded again."""
    cache = tmp_path / ".cache"
    (cache / "site.partial/usr/share/doc/left").mkdir(parents=True)
    (cache / "debs").mkdir()
    for deb in (docs_root.parents[3] / "debs").glob("*.deb"):
        (cache / "debs" / deb.name).symlink_to(deb)
    done = docs_site(tmp_path, "apt-cache", "dpkg-deb", "env", "tar")
    assert done.returncode == 0, done.stderr
    assert "Downloading" not in done.stderr
    assert (cache / "site/complete").exists()
    assert not (cache / "site/usr/share/doc/left").exists()
    shutil.rmtree(cache)
