"""Where the values of the settings come from; a later layer wins.

    defaults < pyproject.toml [tool.lycosa] < lycosa.toml (top level, then [crawl]) < LYCOSA_*
             < the spider's custom_settings < -s NAME=VALUE < the other options

An unknown name or a bad value raises `BadSetting`: one line that says what is wrong, where, and what is right. Only
`_read_files` does I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.config.kinds import WrongPart
from lycosa.config.scrapy_names import SCRAPY_NAMES, SCRAPY_ZERO
from lycosa.config.settings import Settings, kinds
from lycosa.core.errors import BadSetting

SHOWN_MAX = 80
PREFIX = "LYCOSA_"
NOT_SETTINGS = frozenset({"LYCOSA_DEBUG", "LYCOSA_PROVE"})
"""Variables of the environment with our prefix that say something else: LYCOSA_DEBUG=1 shows tracebacks."""


class Given(NamedTuple):
    """One value as somebody wrote it. `place` names the file, variable or option."""

    place: str
    name: str
    value: object


def load(
    flags: Mapping[str, object],
    *,
    sets: Sequence[str] = (),
    spider_settings: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    folder: Path,
) -> Settings:
    """Return the settings of a run. Raises `BadSetting`.

    `flags` holds the options that were given, by setting name (None: not given); `sets` the texts after `-s`; `folder`
    is where lycosa.toml and pyproject.toml are looked for.
    """
    layers = [
        *_read_files(folder),
        *_from_environment(environ),
        *(Given("custom_settings", str(name), value) for name, value in (spider_settings or {}).items()),
        *(_from_text(text) for text in sets),
        *(Given(flag(name), name, value) for name, value in flags.items() if value is not None),
    ]
    return Settings(**dict(_settle(given) for given in layers))


def flag(name: str) -> str:
    """Return how a setting is written on the command line."""
    return "-o" if name == "output" else f"--{name.replace('_', '-')}"


def _settle(given: Given) -> tuple[str, Any]:
    """Decide which setting is meant, and convert its value."""
    name, value = given.name.replace("-", "_"), given.value
    if given.name in SCRAPY_NAMES and given.name not in kinds():
        name = SCRAPY_NAMES[given.name]
        if given.name in SCRAPY_ZERO and value in (0, "0") and not isinstance(value, bool):
            value = SCRAPY_ZERO[given.name]
    if name not in kinds():
        raise BadSetting(f"{given.place}: unknown setting {_shown(given.name)}{did_you_mean(_nearest(given.name))}")
    try:
        return name, kinds()[name].convert(value)
    except (BadSetting, TypeError, ValueError, OverflowError, RuntimeError) as error:
        wrong = error.args[0] if isinstance(error, WrongPart) else value
        where = given.place if given.place.startswith(("-", PREFIX)) else f"{given.place}: {given.name}"
        why = str(error) if isinstance(error, BadSetting) else f"{_shown(wrong)} is not {kinds()[name].wanted}"
        raise BadSetting(f"{where}: {why}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _nearest(name: str) -> str:
    """The setting whose name looks most like this one, or nothing."""
    import difflib

    names = [*kinds(), *SCRAPY_NAMES] if name.isupper() else [*kinds()]
    return next(iter(difflib.get_close_matches(name.replace("-", "_"), names, n=1)), "")


def did_you_mean(name: str) -> str:
    """Return the end of an error line that proposes this name; nothing for none."""
    return f": did you mean {name}?" if name else ""


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in kinds():
            near = _nearest(name)
            raise BadSetting(f"environment: unknown {variable}{did_you_mean(near and PREFIX + near.upper())}")
        yield Given(variable, name, value)


def _from_text(text: str) -> Given:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadSetting(f"-s {_shown(text)}: write NAME=VALUE")
    return Given(f"-s {name.strip()}", name.strip(), value.strip())


def _from_table(place: str, table: Mapping[str, object]) -> Iterator[Given]:
    """The settings of a TOML table, then those of its table `crawl`."""
    crawl = table.get("crawl", {})
    if not isinstance(crawl, Mapping):
        raise BadSetting(f"{place}: 'crawl' must be a table: write [crawl]")
    yield from (Given(place, name, value) for name, value in table.items() if name != "crawl")
    yield from (Given(f"{place} [crawl]", name, value) for name, value in crawl.items())


def _read_files(folder: Path) -> Iterator[Given]:
    """Read pyproject.toml and lycosa.toml, where there are any."""
    for name, path in (("pyproject.toml", ("tool", "lycosa")), ("lycosa.toml", ())):
        table: object = _read_toml(folder / name)
        for key in path:
            table = table.get(key, {}) if isinstance(table, Mapping) else {}
        if not isinstance(table, Mapping):
            raise BadSetting(f"{name}: 'lycosa' must be a table: write [tool.lycosa]")
        yield from _from_table(f"{name} [tool.lycosa]" if path else name, table)


def _read_toml(path: Path) -> Mapping[str, object]:
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
