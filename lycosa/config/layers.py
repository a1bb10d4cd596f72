"""Where the values of the settings come from; a later layer wins.

    defaults < pyproject.toml [tool.lycosa] < lycosa.toml (top level, then [crawl]) < LYCOSA_*
             < the spider's custom_settings < -s NAME=VALUE < the other options

The files are those of the project, which is looked for from the current folder upwards. An unknown name or a bad value
raises `BadSetting`: one line that says what is wrong, where, and what is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.config.kinds import STANDARD_OUTPUT, Location, WrongPart, without_login
from lycosa.config.project import PROXIES, find_project, read_files
from lycosa.config.renamed import renamed_setting, renamed_variable
from lycosa.config.scrapy_names import SAME, SCRAPY_NAMES, TOGETHER
from lycosa.config.scrapy_others import EXPLAINED, NOT_NEEDED
from lycosa.config.settings import Settings, kinds
from lycosa.core.errors import BadSetting
from lycosa.proxies.core.pool_url import MEMORY
from lycosa.storage.core.stream_url import is_address

SHOWN_MAX = 80
PREFIX = "LYCOSA_"
NOT_SETTINGS = frozenset({"LYCOSA_DEBUG", "LYCOSA_PROVE", "LYCOSA_PROXY_API_KEY"})
"""Variables of the environment with our prefix that say something else: LYCOSA_DEBUG=1 shows tracebacks."""
SURELY = 0.8
"""How alike a name must be to a setting for nothing else to be meant."""

USER = "user"
DEFAULT = "default"


class Given(NamedTuple):
    """One value as somebody wrote it. `place` names the file, variable or option; relative paths start at `base`."""

    place: str
    name: str
    value: object
    base: Path | None = None


class Loaded(NamedTuple):
    """The settings, and where each comes from that is not a default."""

    settings: Settings
    places: Mapping[str, str]


def load(
    flags: Mapping[str, object],
    *,
    sets: Sequence[str] = (),
    spider_settings: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    folder: Path,
    spider_place: str = "custom_settings",
) -> Settings:
    """Return the settings of a run. Raises `BadSetting`.

    `flags` holds the options that were given, by setting name (None: not given); `sets` the texts after `-s`; the
    project is looked for from `folder` upwards. `spider_place` says in messages where `spider_settings` stand.
    """
    return trace(
        flags, sets=sets, spider_settings=spider_settings, environ=environ, folder=folder, spider_place=spider_place
    ).settings


def trace(
    flags: Mapping[str, object],
    *,
    sets: Sequence[str] = (),
    spider_settings: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    folder: Path,
    spider_place: str = "custom_settings",
) -> Loaded:
    """Return the settings of a run with their places. See `load`."""
    project = find_project(folder)
    base = None if project in {None, folder.absolute()} else project
    merged = _Merged()
    if base is not None:
        merged.values["home"] = str(base / Settings().home)
    merged.add(_from_files(project or folder, base))
    merged.add(_from_environment(environ))
    merged.add(Given(spider_place, str(name), value, base) for name, value in (spider_settings or {}).items())
    merged.add(_from_text(text) for text in sets)
    merged.add(Given(flag(name), name, value) for name, value in flags.items() if value is not None)
    merged.check()
    return Loaded(Settings(**merged.values), merged.places)


def flag(name: str) -> str:
    """Return how a setting is written on the command line."""
    return "-o" if name == "output" else f"--{name.replace('_', '-')}"


def did_you_mean(name: str) -> str:
    """Return the end of an error line that proposes this name; nothing for none."""
    return f": did you mean {name}?" if name else ""


def unknown_setting(name: str) -> str:
    """Return what is wrong with a setting that does not exist: its new name, the nearest name, or where own ones go.

    Names that are only a little alike, TEXT_LIMIT and DEPTH_LIMIT, are rather two than one misspelt: then it says both.
    """
    if renamed := renamed_setting(name):
        return renamed
    unknown = f"unknown setting {_shown(name)}"
    own = f"ne of your own goes into the table user, as user.{name:.40}"
    nearest = _nearest(name)
    if not nearest:
        return f"{unknown}: o{own}"
    return unknown + did_you_mean(nearest) + ("" if _nearest(name, SURELY) else f" O{own}")


@dataclass(slots=True)
class _Merged:
    """What the layers so far come to. `together` holds Scrapy's settings of which two make one of ours, by ours."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    together: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, layer: Iterable[Given]) -> None:
        for given in layer:
            self._add(given)

    def check(self) -> None:
        """Raise `BadSetting` for values that do not go together."""
        if self.values.get("http_user") and not self.values.get("http_auth_domain"):
            what = "set http_auth_domain too, so that no other site is told the password (* tells every host)"
            raise BadSetting(f"{self.places['http_user']}: http_user: {what}")

    def _add(self, given: Given) -> None:
        name = given.name.replace("-", "_")
        if name in kinds():
            self.together.pop(name, None)
            self._keep(given, name, given.value)
        elif name.startswith(f"{USER}."):
            self._keep(given, USER, {given.name.partition(".")[2]: given.value})
        elif given.name in SCRAPY_NAMES:
            self._add_scrapys(given, SCRAPY_NAMES[given.name])
        elif given.name in EXPLAINED:
            if not _is_fine(given.value, EXPLAINED[given.name].fine):
                raise BadSetting(f"{_where(given)} means nothing here: {EXPLAINED[given.name].instead}")
        elif given.name not in NOT_NEEDED:
            raise BadSetting(f"{given.place}: {unknown_setting(given.name)}")

    def _add_scrapys(self, given: Given, name: str) -> None:
        if name in TOGETHER:
            known = self.together.setdefault(name, {})
            known[given.name] = given.value
            value = _tried(given, name, lambda: TOGETHER[name].of(known))
            if value is None:
                return
        else:
            value = _tried(given, name, lambda: SAME[given.name].read(given.value))
        self._keep(given, name, value)

    def _keep(self, given: Given, name: str, value: object) -> None:
        kind = kinds()[name]
        converted = _tried(given, name, lambda: kind.convert(value))
        if isinstance(kind, Location) and given.base and _is_path(converted):
            converted = str(given.base / converted)
        self.values[name] = {**self.values.get(USER, {}), **converted} if name == USER else converted
        self.places[name] = given.place


def _is_path(location: str | None) -> bool:
    return location not in {None, STANDARD_OUTPUT, MEMORY} and not is_address(location)


def _tried(given: Given, name: str, convert: Any) -> Any:
    """Return what `convert` returns. Raises `BadSetting` with the place when it cannot."""
    try:
        return convert()
    except (BadSetting, TypeError, ValueError, OverflowError, RuntimeError) as error:
        wrong = error.args[0] if isinstance(error, WrongPart) else given.value
        wrong = without_login(wrong) if name == "proxy" or is_address(wrong) else wrong
        why = str(error) if isinstance(error, BadSetting) else f"{_shown(wrong)} is not {kinds()[name].wanted}"
        raise BadSetting(f"{_where(given)}: {why}") from None


def _where(given: Given) -> str:
    """Return the place with the name in it."""
    return given.place if given.place.startswith(("-", PREFIX)) else f"{given.place}: {given.name}"


def _is_fine(value: object, fine: Sequence[object]) -> bool:
    return any(value == each or str(value).lower() == str(each).lower() for each in fine)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _nearest(name: str, cutoff: float = 0.6) -> str:
    """The setting whose name looks most like this one, or nothing."""
    import difflib

    names = [*kinds(), *SCRAPY_NAMES, *EXPLAINED] if name.isupper() else [*kinds()]
    return next(iter(difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=cutoff)), "")


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in kinds():
            near = _nearest(name)
            unknown = f"unknown {variable}{did_you_mean(near and PREFIX + near.upper())}"
            raise BadSetting(f"environment: {renamed_variable(PREFIX, name) or unknown}")
        yield Given(variable, name, value)


def _from_text(text: str) -> Given:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadSetting(f"-s {_shown(text)}: write NAME=VALUE")
    return Given(f"-s {name.strip()}", name.strip(), value.strip())


def _from_files(folder: Path, base: Path | None) -> Iterator[Given]:
    """The settings of the files, of each the top level first and then its table `crawl`; `proxies` is for pools."""
    for place, table in read_files(folder):
        crawl = table.get("crawl", {})
        if not isinstance(crawl, Mapping):
            raise BadSetting(f"{place}: 'crawl' must be a table: write [crawl]")
        yield from (Given(place, name, value, base) for name, value in table.items() if name not in ("crawl", PROXIES))
        yield from (Given(f"{place} [crawl]", name, value, base) for name, value in crawl.items())
