"""`lycosa startproject NAME`."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

import click

from lycosa.cli.crawl.templating import project_texts, write_new
from lycosa.config.project import OWN_FILE
from lycosa.core.errors import UsageError


@click.command("startproject")
@click.argument("name", metavar="NAME")
@click.argument("folder", required=False, metavar="[DIR]")
def command(name: str, folder: str | None) -> None:
    """Start a project: a folder with settings and a package for spiders. DIR is NAME by default.

    \b
    lycosa startproject shop
    """
    _check_name(name)
    root = Path(folder or name)
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file: choose another folder")
    if (root / OWN_FILE).exists():
        raise UsageError(f"{root / OWN_FILE} already exists: {root} is a project")
    if (root / "__init__.py").exists():
        raise UsageError(f"{root} is a package: choose another folder: lycosa startproject {name} DIR")
    write_new({root / path: text for path, text in project_texts(name, {"name": name}).items()})
    inside = "" if root.resolve() == Path.cwd() else f"cd {root} && "
    print(f"{root / OWN_FILE}: the project {name} was created. Write a spider:", file=sys.stderr)
    print(f"  {inside}lycosa genspider example example.com", file=sys.stderr)


def _check_name(name: str) -> None:
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} cannot be the name of a package: use letters, digits and _, a letter first, no Python keyword"
        )
    if name in sys.stdlib_module_names or name == "lycosa":
        raise UsageError(f"{name!r} is the name of another module already: choose another name")
