"""The option `--index`, which `search`, `site` and `index` share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lycosa.app.index_places import IndexPlace, index_place
from lycosa.config import Settings, load
from lycosa.core.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def index_option(command: F) -> F:
    """Add `--index DIR` to a command, as `index_dir`."""
    return click.option("--index", "index_dir", metavar="DIR", help="Folder of the index, or sphinx://HOST:PORT/NAME.")(
        command
    )


def chosen_index(index_dir: str | None) -> IndexPlace:
    """Return the index that the option or else a setting (lycosa.toml, LYCOSA_INDEX) names. Raises `UsageError`."""
    folder = index_dir or folder_settings().index
    if not folder:
        raise UsageError("which index? Give --index DIR")
    return index_place(folder)


def folder_settings() -> Settings:
    """Load the settings of lycosa.toml and the environment. Raises `BadSetting`."""
    return load({}, environ=os.environ, folder=Path.cwd())
