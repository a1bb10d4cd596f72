"""A project: the folder whose `lycosa.toml`, or `[tool.lycosa]` in pyproject.toml, holds for all below it.

The only module of the settings that reads files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lycosa.core.errors import BadSetting

OWN_FILE, SHARED_FILE = "lycosa.toml", "pyproject.toml"
MARK = b"[tool.lycosa"
PROXIES = "proxies"
"""The table that a pool of proxies reads, and no crawl."""


def find_project(folder: Path) -> Path | None:
    """Return the nearest folder, from here upwards, with settings in it; None when there is none."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if _has_settings(each)), None)


def read_files(folder: Path) -> list[tuple[str, Mapping[str, object]]]:
    """Return the tables of settings in a folder, the weaker first, each with its place. Raises `BadSetting`."""
    shared: object = read_toml(folder / SHARED_FILE)
    for key in ("tool", "lycosa"):
        shared = shared.get(key, {}) if isinstance(shared, Mapping) else {}
    if not isinstance(shared, Mapping):
        raise BadSetting(f"{SHARED_FILE}: 'lycosa' must be a table: write [tool.lycosa]")
    return [(f"{SHARED_FILE} [tool.lycosa]", shared), (OWN_FILE, read_toml(folder / OWN_FILE))]


def read_proxies(folder: Path) -> tuple[str, Mapping[str, object]]:
    """Return the table `proxies` of the project that `folder` is in, and its place. Raises `BadSetting`.

    That of lycosa.toml counts, where both files have one; without any the table is empty.
    """
    project = find_project(folder)
    for place, table in reversed(read_files(project) if project else []):
        if PROXIES in table:
            found = table[PROXIES]
            if not isinstance(found, Mapping):
                raise BadSetting(f"{place}: '{PROXIES}' must be a table: write [{PROXIES}]")
            return place, found
    return "", {}


def read_toml(path: Path) -> Mapping[str, object]:
    """Return what the file holds, nothing when there is none. Raises `BadSetting`."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path.name} cannot be read: {getattr(error, 'strerror', '') or 'it is not UTF-8'}") from None
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path.name} is not valid TOML: {error}") from None
    except RecursionError:
        raise BadSetting(f"{path.name} is nested too deeply") from None


def _has_settings(folder: Path) -> bool:
    try:
        if (folder / OWN_FILE).exists():
            return True
        return MARK in (folder / SHARED_FILE).read_bytes()
    except OSError:
        return False
