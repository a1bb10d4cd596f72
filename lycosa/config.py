"""Every setting of a crawl: its name, meaning, default and range, and where its value comes from.

A setting has one name everywhere: `--max-body` on the command line, `max_body` in files and `-s`, `LYCOSA_MAX_BODY` in
the environment. A later layer wins:

    defaults < pyproject.toml [tool.lycosa] < lycosa.toml (top level, then [crawl]) < LYCOSA_*
             < the spider's custom_settings < -s NAME=VALUE < the other options

Scrapy's names are understood in files, custom_settings and `-s` where the concept is the same. An unknown name or a bad
value raises `BadSetting`: one line that says what is wrong, where, and what is right. Only `_read_files` does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, get_type_hints

from lycosa import __version__
from lycosa.core.errors import BadSetting

USER_AGENT = f"Lycosa/{__version__}"
BODY_MAX = 1024**3
DAY_S = 86_400.0
SHOWN_MAX = 80
PREFIX = "LYCOSA_"
NOT_SETTINGS = frozenset({"LYCOSA_DEBUG", "LYCOSA_PROVE"})
"""Variables of the environment with our prefix that say something else: LYCOSA_DEBUG=1 shows tracebacks."""

ITEM_SUFFIXES = (".jsonl", ".jl", ".ndjson")
STANDARD_OUTPUT = "-"
UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}
UNITS |= {"kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
AGES_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": DAY_S, "w": 7 * DAY_S}
YES = frozenset({"true", "yes", "on", "1"})
NO = frozenset({"false", "no", "off", "0"})
PROXY_URL = re.compile(r"(?:https?|socks(?:4a?|5h?))://[^\s/]+/?", re.IGNORECASE)
HEADER_LINE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")
CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
SHORT = re.compile(r".{1,1000}")
PRINTABLE_LINE = re.compile(r"[\x20-\x7e]+")


class _Kind(Protocol):
    """What a setting may hold. `convert` takes text or a TOML or Python value; any
    TypeError or ValueError means: it is not `wanted`, a BadSetting says why itself."""

    @property
    def wanted(self) -> str:
        """The right values in words, to follow "is not"."""
        ...

    def convert(self, value: object) -> Any:
        """Return the value in the type of the setting."""
        ...


class _Whole(NamedTuple):
    """A whole number within bounds, both included; or None where that has a meaning."""

    low: int
    high: int
    optional: bool = False

    @property
    def wanted(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}" + (" or 'none'" if self.optional else "")

    def convert(self, value: object) -> int | None:
        if self.optional and (value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"})):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError
        return int(_within(self.low, int(value), self.high))


class _Urls(_Whole):
    """A number of URLs that a Bloom filter has room for."""

    def convert(self, value: object) -> int | None:
        from lycosa.core.bloom import too_large  # slow to import, and hardly ever needed

        number = float(value) if isinstance(value, (float, str)) else 0.5
        whole = int(number) if number.is_integer() else value
        if isinstance(whole, int) and (why := too_large(whole)):
            raise BadSetting(why)
        return super().convert(whole)


class _Seconds(NamedTuple):
    """A time span within bounds, both included."""

    low: float
    high: float

    @property
    def wanted(self) -> str:
        return f"a number of seconds from {self.low:g} to {self.high:,.0f}, such as 0.5"

    def convert(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        return _within(self.low, float(value), self.high)


class _Age(NamedTuple):
    """A time span in seconds, or None for none; text may have a unit."""

    low: float
    high: float
    wanted: str = "an age such as 3600 (seconds), 30m, 12h, 7d or 2w"

    def convert(self, value: object) -> float | None:
        if value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"}):
            return None
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip().lower(), re.ASCII)
            if match is None:
                raise ValueError
            value = float(match[1]) * AGES_S[match[2]]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError
        return _within(self.low, float(value), self.high)


class _Size(NamedTuple):
    """A number of bytes, or None for what is usual; text may have a unit."""

    low: int
    high: int
    optional: bool = False

    @property
    def wanted(self) -> str:
        return f"a size from {self.low:,} to {self.high:,} bytes, such as 500000, 10MB or 10MiB"

    def convert(self, value: object) -> int | None:
        if self.optional and (value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"})):
            return None
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.strip().lower(), re.ASCII)
            if match is None or match[2] not in UNITS:
                raise ValueError
            value = round(float(match[1]) * UNITS[match[2]])
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        return int(_within(self.low, value, self.high))


class _Switch(NamedTuple):
    """Yes or no."""

    wanted: str = "true or false"

    def convert(self, value: object) -> bool:
        if isinstance(value, (bool, int)) and value in {0, 1}:
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in YES | NO:
            return value.strip().lower() in YES
        raise ValueError


class _OneOf(NamedTuple):
    """One of a few words, in any case."""

    words: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return f"one of {', '.join(self.words)}"

    def convert(self, value: object) -> str:
        for word in self.words:
            if isinstance(value, str) and value.strip().lower() == word.lower():
                return word
        raise ValueError


class _Text(NamedTuple):
    """Text of a certain form. `empty` is what an empty text or None stands for; ... when there is no such thing."""

    wanted: str
    form: re.Pattern[str]
    empty: Any = ...

    def convert(self, value: object) -> Any:
        if self.empty is not ... and (value is None or value == ""):
            return self.empty
        if not isinstance(value, str) or not self.form.fullmatch(value):
            raise ValueError
        return value


class _Location(NamedTuple):
    """A file or folder, `~` expanded; None when there is none."""

    wanted: str
    suffixes: tuple[str, ...] = ()

    def convert(self, value: object) -> str | None:
        if value is None or value == "":
            return None
        if not isinstance(value, (str, Path)) or "\0" in str(value):
            raise ValueError
        if str(value) == STANDARD_OUTPUT:
            return STANDARD_OUTPUT
        path = Path(value).expanduser()
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            raise ValueError
        return str(path)


class _Many(NamedTuple):
    """Several texts: a list, or one text with commas (where `commas`) or line ends between them."""

    each: _Text
    commas: bool = True

    @property
    def wanted(self) -> str:
        return f"{self.each.wanted}, or several"

    def convert(self, value: object) -> tuple[str, ...]:
        if isinstance(value, Mapping):
            value = [f"{key}: {text}" for key, text in value.items()]
        if isinstance(value, str):
            value = value.split("," if self.commas and "\n" not in value else "\n")
            value = [part.strip() for part in value if part.strip()]
        if not isinstance(value, Sequence):
            raise TypeError
        return tuple(self._convert_one(part) for part in value)

    def _convert_one(self, part: object) -> str:
        try:
            return str(self.each.convert(part))
        except ValueError:
            raise _WrongPart(part) from None


class _WrongPart(ValueError):
    """One of several values is wrong: this one."""


def _within(low: float, value: float, high: float) -> float:
    if not low <= value <= high:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """What a crawl is told. Every field has a valid default; `load` fills in the rest."""

    concurrency: Annotated[int, _Whole(1, 10_000)] = 64
    """Leases one worker holds at a time, from lease to ack."""
    concurrency_per_host: Annotated[int, _Whole(1, 10_000)] = 8
    """Transfers in flight to one host, in the whole crawl."""
    delay: Annotated[float, _Seconds(0, DAY_S)] = 0.0
    """Least time between the starts of two requests to one host, in seconds."""
    concurrency_per_ip: Annotated[int | None, _Whole(1, 10_000, optional=True)] = None
    """Transfers in flight to all hosts of one IP address, in the whole crawl; None for no limit."""
    delay_per_ip: Annotated[float, _Seconds(0, DAY_S)] = 0.0
    """Least time between the starts of two requests to one IP address, in seconds."""
    timeout: Annotated[float, _Seconds(0.01, DAY_S)] = 30.0
    """Longest time for one transfer, from start to last byte, in seconds."""
    connect_timeout: Annotated[float, _Seconds(0.01, DAY_S)] = 10.0
    """Longest time for name lookup, connection and TLS handshake, in seconds."""
    max_body: Annotated[int, _Size(1, BODY_MAX)] = 16 * 1024**2
    """Largest body, after decompression, in bytes."""
    user_agent: Annotated[str, _Text("a line of printable ASCII text", PRINTABLE_LINE)] = USER_AGENT
    """What the crawler calls itself, in requests and when it reads robots.txt."""
    header: Annotated[
        tuple[str, ...], _Many(_Text("a header line such as 'Accept: */*'", HEADER_LINE), commas=False)
    ] = ()
    """Header lines sent with every request."""
    proxy: Annotated[str, _Text("a proxy such as http://host:3128 or socks5h://host:1080", PROXY_URL, "")] = ""
    """The proxy every request goes through; empty for none."""
    insecure: Annotated[bool, _Switch()] = False
    """Accept TLS certificates that cannot be verified."""
    retries: Annotated[int, _Whole(0, 100)] = 2
    """How often a failed request is tried again before it is dead."""
    robots: Annotated[bool, _Switch()] = True
    """Obey robots.txt."""
    scope: Annotated[str, _OneOf(("host", "domain", "prefix", "any"))] = "host"
    """Which links are followed, compared with the start URLs."""
    depth: Annotated[int | None, _Whole(0, 1_000_000, optional=True)] = None
    """Most links away from a start URL; None for no limit, 0 for the start URLs alone."""
    max_pages: Annotated[int | None, _Whole(1, 10**12, optional=True)] = None
    """Stop after this many pages; None for no limit."""
    allow: Annotated[tuple[str, ...], _Many(_Text("a pattern such as '*/docs/*'", re.compile(r".+")))] = ()
    """Globs on the canonical URL; a link must match one of them."""
    deny: Annotated[tuple[str, ...], _Many(_Text("a pattern such as '*/private/*'", re.compile(r".+")))] = ()
    """Globs on the canonical URL; a link must match none of them."""
    content_types: Annotated[tuple[str, ...], _Many(_Text("a content type such as text/html", CONTENT_TYPE))] = (
        "text/html",
        "application/xhtml+xml",
    )
    """Content types whose bodies are read."""
    follow_nofollow: Annotated[bool, _Switch()] = True
    """Follow links marked rel=nofollow."""
    state: Annotated[str | None, _Location("a folder")] = None
    """Folder of the crawl's state; None for a folder in `.lycosa/`, by crawl name."""
    index: Annotated[str | None, _Location("a folder")] = None
    """Folder of the search index; None for no index."""
    output: Annotated[str | None, _Location(f"a file ending in {', '.join(ITEM_SUFFIXES)}, or '-'", ITEM_SUFFIXES)] = (
        None
    )
    """File the items are appended to; None or `-` for standard output."""
    segment: Annotated[str, _Text("none, hour, day, week, month, 3d, spider or module:function", SHORT, "")] = ""
    """Which stretch of the crawl a run belongs to: URLs are unique in each; empty for none."""
    refresh: Annotated[float | None, _Age(1, 36_525 * DAY_S)] = None
    """Fetch again, when a run begins, what was fetched longer ago than this; None to fetch nothing twice."""
    key: Annotated[tuple[str, ...], _Many(_Text("tracking, sort, jsonp or drop:NAME", SHORT), commas=False)] = ()
    """What identifies a request besides its URL as it is: what is left out of it, or a function."""
    overwrite: Annotated[bool, _Switch()] = False
    """Start afresh: forget the state and what the output holds."""
    expect: Annotated[int, _Urls(1000, 10**9)] = 1_000_000
    """URLs for which the frontier's Bloom filter has room at once; it grows when there are more."""
    sync: Annotated[bool, _Switch()] = False
    """Force every group commit to the disk, so that it survives power loss."""
    commit_every: Annotated[float, _Seconds(0.001, 60)] = 0.1
    """Longest time between two group commits while there is work, in seconds."""
    commit_acks: Annotated[int, _Whole(1, 100_000)] = 256
    """Most acks in one group commit."""
    free_space: Annotated[int | None, _Size(0, 1 << 60, optional=True)] = None
    """Pause when less than this is free on a device the crawl writes to, in bytes; 0 never, None for what is usual."""
    lease: Annotated[float, _Seconds(1, DAY_S)] = 300.0
    """How long a worker may be silent before its URLs are lent to another, in seconds; it renews what it works on."""
    lease_max: Annotated[float, _Seconds(1, DAY_S)] = 3600.0
    """How long a page may be in work in all before it is given up and tried again, in seconds."""
    exit_when_idle: Annotated[bool, _Switch()] = False
    """End, instead of waiting, when all that is left is due later."""
    quiet: Annotated[bool, _Switch()] = False
    """Show no progress and no summary."""
    log_level: Annotated[str, _OneOf(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))] = "WARNING"
    """Least severe message that is logged."""
    log_file: Annotated[str | None, _Location("a file")] = None
    """File the log is appended to; None for standard error."""


SCRAPY_NAMES = {
    "CONCURRENT_REQUESTS": "concurrency",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "concurrency_per_host",
    "CONCURRENT_REQUESTS_PER_IP": "concurrency_per_ip",
    "DOWNLOAD_DELAY": "delay",
    "DOWNLOAD_TIMEOUT": "timeout",
    "DOWNLOAD_MAXSIZE": "max_body",
    "DEFAULT_REQUEST_HEADERS": "header",
    "DEPTH_LIMIT": "depth",
    "ROBOTSTXT_OBEY": "robots",
    "USER_AGENT": "user_agent",
    "CLOSESPIDER_PAGECOUNT": "max_pages",
    "RETRY_TIMES": "retries",
    "JOBDIR": "state",
    "LOG_LEVEL": "log_level",
    "LOG_FILE": "log_file",
}
SCRAPY_ZERO: Mapping[str, object] = {
    "CONCURRENT_REQUESTS_PER_IP": None,
    "DEPTH_LIMIT": None,
    "CLOSESPIDER_PAGECOUNT": None,
    "DOWNLOAD_MAXSIZE": BODY_MAX,
}
"""Where Scrapy's 0 means "no limit", and what that is here."""


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


@cache
def _kinds() -> Mapping[str, _Kind]:
    """Return what each setting may hold, by name, as the annotations of `Settings` say."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def _settle(given: Given) -> tuple[str, Any]:
    """Decide which setting is meant, and convert its value."""
    name, value = given.name.replace("-", "_"), given.value
    if given.name in SCRAPY_NAMES and given.name not in _kinds():
        name = SCRAPY_NAMES[given.name]
        if given.name in SCRAPY_ZERO and value in (0, "0") and not isinstance(value, bool):
            value = SCRAPY_ZERO[given.name]
    if name not in _kinds():
        raise BadSetting(f"{given.place}: unknown setting {_shown(given.name)}{did_you_mean(_nearest(given.name))}")
    try:
        return name, _kinds()[name].convert(value)
    except (BadSetting, TypeError, ValueError, OverflowError, RuntimeError) as error:
        wrong = error.args[0] if isinstance(error, _WrongPart) else value
        where = given.place if given.place.startswith(("-", PREFIX)) else f"{given.place}: {given.name}"
        why = str(error) if isinstance(error, BadSetting) else f"{_shown(wrong)} is not {_kinds()[name].wanted}"
        raise BadSetting(f"{where}: {why}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _nearest(name: str) -> str:
    """The setting whose name looks most like this one, or nothing."""
    import difflib

    names = [*_kinds(), *SCRAPY_NAMES] if name.isupper() else [*_kinds()]
    return next(iter(difflib.get_close_matches(name.replace("-", "_"), names, n=1)), "")


def did_you_mean(name: str) -> str:
    """Return the end of an error line that proposes this name; nothing for none."""
    return f": did you mean {name}?" if name else ""


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in _kinds():
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
