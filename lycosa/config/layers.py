"""Load the settings from their layers; a later layer wins.

    defaults < pyproject.toml [tool.lycosa] < lycosa.toml (in each: top level, then crawl) < LYCOSA_*
             < the spider's custom_settings < -s NAME=VALUE < the other options

The files are those of the nearest folder with settings, from the current folder upwards. An unknown name or an invalid
value raises `BadSetting`: one line that says what is wrong, where, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.config.composite_kinds import OutputList, relative_outputs
from lycosa.config.kinds import BadElement, FilePath, hide_login
from lycosa.config.project import PROXIES, find_project, read_files
from lycosa.config.renamed import renamed_setting, renamed_variable
from lycosa.config.scrapy_names import COMBINATIONS, EQUIVALENTS, SCRAPY_NAMES
from lycosa.config.scrapy_unsupported import IGNORED, UNSUPPORTED
from lycosa.config.settings import Settings, kinds
from lycosa.core.errors import BadSetting
from lycosa.proxies.core.pool_url import MEMORY
from lycosa.storage.core.output import STANDARD_OUTPUT
from lycosa.storage.core.stream_url import is_address

SHOWN_MAX = 80
PREFIX = "LYCOSA_"
NOT_SETTINGS = frozenset({"LYCOSA_DEBUG", "LYCOSA_PROVE", "LYCOSA_PROXY_API_KEY", "LYCOSA_TEST_SEED"})
"""Environment variables that are not settings. LYCOSA_DEBUG=1 shows tracebacks."""
SIMILARITY_SURE = 0.8
"""Minimum similarity at which an unknown name counts as a misspelled setting, not as one of the user's own."""

USER = "user"
DEFAULT = "default"


class RawSetting(NamedTuple):
    """One value as written. `place` names the file, variable or option; paths are relative to `base`."""

    place: str
    name: str
    value: object
    base: Path | None = None


def load(
    flags: Mapping[str, object],
    *,
    sets: Sequence[str] = (),
    spider_settings: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    folder: Path,
    spider_place: str = "custom_settings",
    places: dict[str, str] | None = None,
) -> Settings:
    """Return the settings of a run. Raises `BadSetting`.

    `flags` maps setting names to command-line values (None: not given); `sets` holds the values of `-s`. Files are
    looked for from `folder` upwards. `spider_place` is the source of `spider_settings` in messages. `places` receives
    the source of each setting that is not a default.
    """
    project = find_project(folder)
    base = None if project in {None, folder.absolute()} else project
    merged = _Merged({} if places is None else places)
    if base is not None:
        merged.values["home"] = str(base / Settings().home)
    merged.add(_from_files(project or folder, base))
    merged.add(_from_environment(environ))
    merged.add(RawSetting(spider_place, str(name), value, base) for name, value in (spider_settings or {}).items())
    merged.add(_from_text(text) for text in sets)
    merged.add(RawSetting(flag(name), name, value) for name, value in flags.items() if value is not None)
    merged.check()
    return Settings(**merged.values)


def flag(name: str) -> str:
    """Return the command-line option of a setting."""
    return "-o" if name == "output" else f"--{name.replace('_', '-')}"


def did_you_mean(name: str) -> str:
    """Return ": did you mean NAME?", the end of an error message; "" for no name."""
    return f": did you mean {name}?" if name else ""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message with the most similar known name; "" if none is similar."""
    import difflib  # slow to import, and needed only for mistakes

    return did_you_mean(next(iter(difflib.get_close_matches(name, list(known), n=1)), ""))


def unknown_setting(name: str) -> str:
    """Return a message that says what to write instead of an unknown setting.

    A name only roughly similar to a setting, as TEXT_LIMIT is to DEPTH_LIMIT, may be misspelled or the user's own; the
    message covers both.
    """
    if renamed := renamed_setting(name):
        return renamed
    unknown = f"unknown setting {_shown(name)}"
    own = f"your own settings go into the table user, as user.{name:.40}"
    nearest = _nearest(name)
    if not nearest:
        return f"{unknown}: {own}"
    return unknown + did_you_mean(nearest) + ("" if _nearest(name, SIMILARITY_SURE) else f" Y{own[1:]}")


@dataclass(slots=True)
class _Merged:
    """The settings so far. `combined` maps our settings in COMBINATIONS to the values given for Scrapy's."""

    places: dict[str, str]
    values: dict[str, Any] = field(default_factory=dict)
    combined: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, layer: Iterable[RawSetting]) -> None:
        for given in layer:
            self._add(given)

    def check(self) -> None:
        """Raise `BadSetting` for values that cannot be combined."""
        if self.values.get("http_user") and not self.values.get("http_auth_domain"):
            advice = "set http_auth_domain too, so that no other site gets the password (* sends it to every host)"
            raise BadSetting(f"{self.places['http_user']}: http_user: {advice}")

    def _add(self, given: RawSetting) -> None:
        name = given.name.replace("-", "_")
        if name in kinds():
            self.combined.pop(name, None)  # our name overrides both of Scrapy's names in earlier layers
            self._keep(given, name, given.value)
        elif name.startswith(f"{USER}."):
            self._keep(given, USER, {given.name.partition(".")[2]: given.value})
        elif given.name in SCRAPY_NAMES:
            self._add_scrapy(given, SCRAPY_NAMES[given.name])
        elif given.name in UNSUPPORTED:
            if not _is_one_of(given.value, UNSUPPORTED[given.name].harmless):
                raise BadSetting(f"{_where(given)} is not supported: {UNSUPPORTED[given.name].advice}")
        elif given.name not in IGNORED:
            raise BadSetting(f"{given.place}: {unknown_setting(given.name)}")

    def _add_scrapy(self, given: RawSetting, name: str) -> None:
        if name in COMBINATIONS:
            known = self.combined.setdefault(name, {})
            known[given.name] = given.value
            value = _convert(given, name, lambda: COMBINATIONS[name].read(known))
            if value is None:
                return
        else:
            value = _convert(given, name, lambda: EQUIVALENTS[given.name].read(given.value))
        self._keep(given, name, value)

    def _keep(self, given: RawSetting, name: str, value: object) -> None:
        kind = kinds()[name]
        converted = _convert(given, name, lambda: kind.convert(value))
        # Paths in a project's files are relative to the project, which may be a parent of the current folder.
        if isinstance(kind, FilePath) and given.base and _is_path(converted):
            converted = str(given.base / converted)
        if isinstance(kind, OutputList) and given.base:
            converted = relative_outputs(given.base, converted)
        self.values[name] = {**self.values.get(USER, {}), **converted} if name == USER else converted
        self.places[name] = given.place


def _is_path(location: str | None) -> bool:
    return location not in {None, STANDARD_OUTPUT, MEMORY} and not is_address(location)


def _convert(given: RawSetting, name: str, convert: Callable[[], Any]) -> Any:
    """Raises `BadSetting` with the place if `convert` fails."""
    try:
        return convert()
    except (BadSetting, TypeError, ValueError, OverflowError, RuntimeError) as error:
        wrong = error.args[0] if isinstance(error, BadElement) else given.value
        wrong = hide_login(wrong) if name == "proxy" or is_address(wrong) else wrong  # messages are logged
        why = str(error) if isinstance(error, BadSetting) else f"{_shown(wrong)} is not {kinds()[name].expected}"
        raise BadSetting(f"{_where(given)}: {why}") from None


def _where(given: RawSetting) -> str:
    return given.place if given.place.startswith(("-", PREFIX)) else f"{given.place}: {given.name}"


def _is_one_of(value: object, values: Sequence[object]) -> bool:
    return any(value == each or str(value).lower() == str(each).lower() for each in values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _nearest(name: str, cutoff: float = 0.6) -> str:
    import difflib

    names = [*kinds(), *SCRAPY_NAMES, *UNSUPPORTED] if name.isupper() else [*kinds()]
    return next(iter(difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=cutoff)), "")


def _from_environment(environ: Mapping[str, str]) -> Iterator[RawSetting]:
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in kinds():
            near = _nearest(name)
            unknown = f"unknown {variable}{did_you_mean(near and PREFIX + near.upper())}"
            raise BadSetting(f"environment: {renamed_variable(PREFIX, name) or unknown}")
        yield RawSetting(variable, name, value)


def _from_text(text: str) -> RawSetting:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadSetting(f"-s {_shown(text)}: write NAME=VALUE")
    return RawSetting(f"-s {name.strip()}", name.strip(), value.strip())


def _from_files(folder: Path, base: Path | None) -> Iterator[RawSetting]:
    """Yield the settings of each file: its top level, then its table `crawl`."""
    for place, table in read_files(folder):
        crawl = table.get("crawl", {})
        if not isinstance(crawl, Mapping):
            raise BadSetting(f"{place}: 'crawl' must be a table: write [crawl]")
        yield from (
            RawSetting(place, name, value, base) for name, value in table.items() if name not in ("crawl", PROXIES)
        )
        yield from (RawSetting(f"{place} [crawl]", name, value, base) for name, value in crawl.items())
