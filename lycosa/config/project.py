"""A project: a folder whose `lycosa.toml`, or `[tool.lycosa]` in pyproject.toml, applies to all folders below it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lycosa.core.errors import BadSetting

OWN_FILE, SHARED_FILE = "lycosa.toml", "pyproject.toml"
MARK = b"[tool.lycosa"
PROXIES = "proxies"
"""The table that proxy pools read, and crawls ignore."""


def find_project(folder: Path) -> Path | None:
    """Return the nearest folder with settings, from `folder` upwards."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if _has_settings(each)), None)


def read_files(folder: Path) -> list[tuple[str, Mapping[str, object]]]:
    """Return pairs of place and table; later tables override earlier ones. Raises `BadSetting`."""
    shared: object = read_toml(folder / SHARED_FILE)
    for key in ("tool", "lycosa"):
        shared = shared.get(key, {}) if isinstance(shared, Mapping) else {}
    if not isinstance(shared, Mapping):
        raise BadSetting(f"{SHARED_FILE}: 'lycosa' must be a table: write [tool.lycosa]")
    return [(f"{SHARED_FILE} [tool.lycosa]", shared), (OWN_FILE, read_toml(folder / OWN_FILE))]


def read_proxies(folder: Path) -> tuple[str, Mapping[str, object]]:
    """Return the place and the table `proxies` of the project that contains `folder`. Raises `BadSetting`.

    The table in lycosa.toml hides that in pyproject.toml. Without a table the result is empty.
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
    """Return the content of a file; {} if it does not exist. Raises `BadSetting`."""
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
