"""Where proxies come from, as `[[proxies.sources]]` says it, and what is made of a source's answer.

    kind       where                                                what it is
    ----       -----                                                ----------
    file       path                                                 a list, in lines or JSON (`lists`)
    url        url                                                  the same, from a server
    api        url, variables, headers, and items, fields or line   what a provider answers, in his own form
    template   address, variables, sessions                         a provider's gate: the login says what is wanted
    python     iterator = "module:function"                         yields addresses, lines, objects or proxies

`{country}` in a URL or an address stands for each value of `variables.country` in turn, which becomes a tag of those
proxies; `{session}` for s1, s2, ... to `sessions`. `${NAME}` is a variable of the environment: no secret has to stand
in the file. `items` is the path of the array in a JSON answer ("data.proxies", "result[0].list"), `fields` says where
in an entry its parts are ({ host = "addr.ip" }); `line` is the form of each line of a text ("{host};{port};{_}").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

from lycosa.core.errors import BadProxy, BadSetting, BadUrl
from lycosa.core.url import canonicalize
from lycosa.proxies.core.proxy import PORTS, Proxy
from lycosa.proxies.core.sources.json_array import Step, read_array
from lycosa.proxies.core.sources.lists import LIST_MAX, VALUE_MAX, Fault, lines_of, parse_entry, read_list
from lycosa.proxies.core.tables import Table

SOURCES_MAX = 1000
EVERY_S, EVERY_MIN_S, EVERY_MAX_S = 600.0, 1.0, 30 * 86_400.0
KEEP_S, KEEP_MAX_S = 86_400.0, 365 * 86_400.0
"""How long a proxy stays that its source does not list any more."""

REQUESTS_MAX = 100
"""Requests that one refresh of a source makes: all values of its variables with each other."""

FROM_TEMPLATE_MAX = 10_000
PROXIES_MAX = 1_000_000
"""Proxies of one source."""

FAULTS_MAX = 100
"""Faults of one answer that are told; the others are counted."""

DEPTH_MAX = 20
"""Steps of a path into JSON."""

SOURCE = "source"
"""The tag that says where a proxy came from."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
VALUE = re.compile(r"[A-Za-z0-9._~-]{1,100}")
VARIABLE = re.compile(r"\{([a-z_][a-z0-9_]{0,31})\}")
SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]")
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PARTS = frozenset({"host", "port", "user", "password", "kind", "country", "provider", "price_gb", "price_request"})
"""What `fields` and `line` may call the parts of an address; all other names become tags."""

KEYS = (
    "name", "kind", "path", "url", "address", "iterator", "every", "keep", "scheme", "provider", "tags", "price_gb",
    "price_request", "variables", "sessions", "headers", "items", "fields", "line",
)  # fmt: skip


class SourceKind(StrEnum):
    """As the table above."""

    FILE = "file"
    URL = "url"
    API = "api"
    TEMPLATE = "template"
    PYTHON = "python"


WHERE = {
    SourceKind.FILE: "path", SourceKind.URL: "url", SourceKind.API: "url", SourceKind.TEMPLATE: "address", SourceKind.PYTHON: "iterator",
}  # fmt: skip
"""The key that says where the source is."""

ONLY = {
    "variables": {SourceKind.API, SourceKind.TEMPLATE}, "sessions": {SourceKind.API, SourceKind.TEMPLATE}, "headers": {SourceKind.URL, SourceKind.API},
    "items": {SourceKind.API}, "fields": {SourceKind.API}, "line": {SourceKind.API},
}  # fmt: skip
"""Keys that mean something for these kinds only."""


@dataclass(frozen=True, slots=True)
class ProxySource:
    """One of them. `where` and `headers` may hold secrets, so neither is shown; `name` is for everybody.

    `every_s` between two refreshes; `keep_s` until a proxy goes that is no longer listed. `tags` and prices are those
    of proxies that have none of their own.
    """

    name: str
    kind: SourceKind
    where: str = field(repr=False)
    every_s: float = EVERY_S
    keep_s: float = KEEP_S
    scheme: str = "http"
    tags: Mapping[str, str] = field(default_factory=dict)
    price_gb: float = 0.0
    price_request: float = 0.0
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    items: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    line: str = ""


class SourceAddress(NamedTuple):
    """One of the places of a source: its address with the variables filled in, and the tags that follow from them."""

    where: str
    tags: Mapping[str, str]


class ReadResult(NamedTuple):
    """What was made of the answer of a source: proxies, the first faults, and how many there are of those."""

    proxies: list[Proxy]
    faults: list[Fault]
    faulty: int


class RefreshResult(NamedTuple):
    """What a refresh of one source came to. `listed` proxies, of which `added` are new; `removed` were, whose time was
    over. `faults` are the first of `faulty`. `problem` says why there is no list, "" when there is."""

    source: str
    listed: int = 0
    added: int = 0
    removed: int = 0
    faults: Sequence[Fault] = ()
    faulty: int = 0
    problem: str = ""


def sources_from(
    entries: object, environ: Mapping[str, str], place: str = "proxies.sources"
) -> tuple[ProxySource, ...]:
    """Return the sources of `[[proxies.sources]]`. Raises `BadSetting`."""
    if not isinstance(entries, list) or len(entries) > SOURCES_MAX:
        raise BadSetting(f"{place}: write at most {SOURCES_MAX:,} tables, each as [[{place}]]")
    found = [_source(entry, f"{place}, number {number}", environ) for number, entry in enumerate(entries, 1)]
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadSetting(f"{place}: two sources have the name {twice}")
    return tuple(found)


def places(source: ProxySource) -> Iterator[SourceAddress]:
    """Yield the places of a source, one if it has no variables."""
    names = _variables(source.where) if source.kind in {SourceKind.API, SourceKind.TEMPLATE} else []
    for values in product(*(source.variables[name] for name in names)):
        chosen = dict(zip(names, values, strict=True))
        where = source.where
        for name, value in chosen.items():
            where = where.replace(f"{{{name}}}", value)
        yield SourceAddress(where, {name: value for name, value in chosen.items() if name != "session"})


def read_answer(source: ProxySource, text: str, place: SourceAddress) -> ReadResult:
    """Return what one place has answered. Raises `BadProxy` when it is no list."""
    if len(text) > LIST_MAX:
        raise BadProxy(f"a list of {len(text):,} characters: write at most {LIST_MAX:,}")
    if source.line:
        return gathered(source, _by_lines(source, text), place)
    if source.items or source.fields:
        return gathered(source, _by_paths(source, text), place)
    return gathered(source, read_list(text, source.scheme), place)


def read_entries(source: ProxySource, entries: Iterable[object]) -> ReadResult:
    """Return what an iterator of Python has yielded: proxies, and what `lists` can read."""
    return gathered(source, _each(source, entries), SourceAddress(source.where, {}))


def read_template(source: ProxySource) -> ReadResult:
    """Return the proxies that a template stands for."""
    found = [gathered(source, _each(source, [place.where]), place) for place in places(source)]
    return merged(found)


def merged(readings: Iterable[ReadResult]) -> ReadResult:
    """Return several readings as one."""
    proxies: dict[str, Proxy] = {}
    faults: list[Fault] = []
    faulty = 0
    for reading in readings:
        proxies.update((each.key, each) for each in reading.proxies)
        faults += reading.faults[: FAULTS_MAX - len(faults)]
        faulty += reading.faulty
    return ReadResult(list(proxies.values())[:PROXIES_MAX], faults, faulty)


def gathered(source: ProxySource, found: Iterable[Proxy | Fault], place: SourceAddress) -> ReadResult:
    """Return what was found, each proxy with the tags and prices of its source."""
    proxies: dict[str, Proxy] = {}
    faults: list[Fault] = []
    faulty = 0
    for each in found:
        if isinstance(each, Fault):
            faulty += 1
            faults += [each][: FAULTS_MAX - len(faults)]
        elif len(proxies) < PROXIES_MAX:
            proxies[each.key] = _tagged(source, each, place)
    return ReadResult(list(proxies.values()), faults, faulty)


def _tagged(source: ProxySource, proxy: Proxy, place: SourceAddress) -> Proxy:
    tags = {**source.tags, **place.tags, **proxy.tags, SOURCE: source.name}
    prices = (proxy.price_gb or source.price_gb, proxy.price_request or source.price_request)
    return replace(proxy, tags=tags, price_gb=prices[0], price_request=prices[1])


def _each(source: ProxySource, entries: Iterable[object]) -> Iterator[Proxy | Fault]:
    for number, entry in enumerate(islice(entries, PROXIES_MAX), 1):
        try:
            yield from [entry] if isinstance(entry, Proxy) else parse_entry(entry, source.scheme)
        except BadProxy as wrong:
            yield Fault(number, str(wrong))


def _by_lines(source: ProxySource, text: str) -> Iterator[Proxy | Fault]:
    pattern, names = _line_pattern(source.line)
    for number, line in enumerate(lines_of(text.removeprefix("\ufeff")), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = pattern.fullmatch(line.strip())
        if match is None:
            yield Fault(number, f"is not {source.line}")
            continue
        yield from _made(source, dict(zip(names, match.groups(), strict=True)), number)


def _by_paths(source: ProxySource, text: str) -> Iterator[Proxy | Fault]:
    array = read_array(text.removeprefix("\ufeff"), _steps(source.items), source.items or "its top")
    for number, (line, entry) in enumerate(array, 1):
        found: Iterable[Proxy | Fault] = _each(source, [entry])
        if source.fields and isinstance(entry, dict):
            parts = {name: _at(entry, path) for name, path in source.fields.items()}
            found = _made(source, {name: value for name, value in parts.items() if value is not None}, line)
        for each in found:
            yield Fault(line, f"entry {number:,}: {each.problem}") if isinstance(each, Fault) else each


def _steps(path: str) -> list[Step]:
    """Return the steps of a path: names, and places in arrays."""
    return [name or int(index) for name, index in islice(STEP.findall(path), DEPTH_MAX)]


def _made(source: ProxySource, parts: Mapping[str, Any], number: int) -> Iterator[Proxy | Fault]:
    """Yield the proxies of an entry whose parts have our names; what is no part of an address is a tag."""
    tags = {name: str(value) for name, value in parts.items() if name not in PARTS and name != "_"}
    entry = {"scheme" if name == "kind" else name: value for name, value in parts.items() if name in PARTS}
    try:
        _refuse_long(tags)
        for proxy in parse_entry(entry, source.scheme):
            yield replace(proxy, tags={**tags, **proxy.tags})
    except BadProxy as wrong:
        yield Fault(number, str(wrong))


def _refuse_long(tags: Mapping[str, str]) -> None:
    for name, value in tags.items():
        if len(value) > VALUE_MAX:
            raise BadProxy(f"{name} is longer than {VALUE_MAX} characters")


def _at(data: object, path: str) -> object:
    """Return what is at a path, None when nothing is."""
    for step in _steps(path):
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            data = data[step] if isinstance(data, list) and step < len(data) else None
    return data


def _line_pattern(line: str) -> tuple[re.Pattern[str], list[str]]:
    """Return the pattern for a form such as `{host}:{port}`, and the names of its groups, in order.

    A part ends where the text behind it begins, so that no line takes long.
    """
    pieces = VARIABLE.split(line)
    names, pattern = pieces[1::2], re.escape(pieces[0])
    for behind in pieces[2::2]:
        pattern += (f"([^{re.escape(behind[0])}]*)" if behind else "(.*)") + re.escape(behind)
    return re.compile(pattern), names


# ---------------------------------------------------------------------------------------------------- what TOML says


def _source(entry: object, place: str, environ: Mapping[str, str]) -> ProxySource:
    table = Table(place, entry, KEYS)
    name = table.text("name")
    if not NAME.fullmatch(name):
        raise table.wrong("name", "write a name of small letters, digits, - and _, at most 32")
    table.place = f"{place} ({name})"
    kind = SourceKind(table.one_of("kind", "", [str(each) for each in SourceKind]))
    _refuse_strays(table, kind)
    source = ProxySource(
        name,
        kind,
        _revealed(table, WHERE[kind], table.text(WHERE[kind]), environ),
        table.seconds("every", EVERY_S, EVERY_MIN_S, EVERY_MAX_S),
        table.seconds("keep", KEEP_S, 0, KEEP_MAX_S),
        table.one_of("scheme", "http", PORTS),
        _tags(table),
        table.number("price_gb"),
        table.number("price_request"),
        _values(table),
        {field_: _revealed(table, "headers", text, environ) for field_, text in table.pairs("headers").items()},
        table.text("items"),
        table.pairs("fields"),
        table.text("line"),
    )
    _refuse_nonsense(table, source)
    return source


def _refuse_strays(table: Table, kind: SourceKind) -> None:
    """Refuse keys that another kind has."""
    strays = [key for key, kinds in ONLY.items() if key in table and kind not in kinds]
    strays += [key for key in set(WHERE.values()) if key in table and key != WHERE[kind]]
    if strays:
        raise table.wrong(strays[0], f"means nothing for kind = {str(kind)!r}: leave it out")


def _refuse_nonsense(table: Table, source: ProxySource) -> None:
    key = WHERE[source.kind]
    if not source.where:
        raise table.wrong(key, f"is missing: a source of this kind needs it{_like(source.kind)}")
    if source.kind is SourceKind.PYTHON and not FUNCTION.fullmatch(source.where):
        raise table.wrong(key, "write module:function")
    if source.kind in {SourceKind.API, SourceKind.TEMPLATE}:
        _refuse_variables(table, key, source)
    if source.kind in {SourceKind.URL, SourceKind.API}:
        try:
            canonicalize(next(places(source)).where)
        except (BadUrl, StopIteration):
            raise table.wrong(key, "is not a URL: write http:// or https://") from None
    if source.kind is SourceKind.TEMPLATE and (faults := read_template(source).faults):
        raise table.wrong(key, faults[0].problem)
    if source.line and not {"host", "port"} <= set(VARIABLE.findall(source.line)):
        raise table.wrong("line", 'write its form, with {host} and {port} in it, as "{host}:{port}"')
    if source.line and re.search(r"\}\{", source.line):
        raise table.wrong("line", "write something between two parts")
    if source.line and (source.items or source.fields):
        raise table.wrong("line", "is for text, items and fields are for JSON: write one of them")
    if source.fields and not {"host"} <= source.fields.keys():
        raise table.wrong("fields", 'say where the host is: { host = "ip", port = "port" }')


def _refuse_variables(table: Table, key: str, source: ProxySource) -> None:
    missing = next((name for name in _variables(source.where) if not source.variables.get(name)), None)
    if missing is not None:
        instead = "sessions = 10" if missing == "session" else f'variables = {{ {missing} = ["one", "two"] }}'
        raise table.wrong(key, f"{{{missing}}} has no values: write {instead}")
    unused = next((name for name in source.variables if name not in _variables(source.where)), None)
    if unused is not None:
        raise table.wrong("variables", f"{{{unused}}} stands nowhere in {key}")
    count = prod(len(source.variables[name]) for name in _variables(source.where))
    most = REQUESTS_MAX if source.kind is SourceKind.API else FROM_TEMPLATE_MAX
    if count > most:
        raise table.wrong("variables", f"{count:,} combinations: write at most {most:,}")


def _values(table: Table) -> dict[str, tuple[str, ...]]:
    found = table.choices("variables")
    for name, values in found.items():
        if not VARIABLE.fullmatch(f"{{{name}}}") or not all(VALUE.fullmatch(value) for value in values):
            raise table.wrong(f"variables.{name}", "write values of letters, digits, . _ ~ and -")
    sessions = table.whole("sessions", 0, 0, FROM_TEMPLATE_MAX)
    if sessions:
        found["session"] = tuple(f"s{number}" for number in range(1, sessions + 1))
    return found


def _tags(table: Table) -> dict[str, str]:
    tags = table.pairs("tags")
    if table.text("provider"):
        tags["provider"] = table.text("provider")
    wrong = next((name for name in tags if not NAME.fullmatch(name) or name == SOURCE), None)
    if wrong is not None:
        raise table.wrong("tags", f"{wrong[:32]!r} is no name of a tag")
    return tags


def _revealed(table: Table, key: str, text: str, environ: Mapping[str, str]) -> str:
    """Return a text with the variables of the environment in it."""
    missing = next((name for name in SECRET.findall(text) if not environ.get(name)), None)
    if missing is not None:
        raise table.wrong(key, f"${{{missing}}} is not set in the environment")
    return SECRET.sub(lambda found: environ[found[1]], text)


def _variables(where: str) -> list[str]:
    return list(dict.fromkeys(VARIABLE.findall(where)))


def _like(kind: SourceKind) -> str:
    if kind is SourceKind.TEMPLATE:
        return ', as "http://user-{country}-{session}:${SECRET}@gate.example:8000"'
    return ', as "module:function"' if kind is SourceKind.PYTHON else ""
