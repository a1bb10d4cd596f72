"""The settings of the sources of proxies (`[[proxies.sources]]`). Also converts the answers of sources to proxies.

    kind       where                                                what it is
    ----       -----                                                ----------
    file       path                                                 a list, in lines or JSON (`lists`)
    url        url, headers                                         a list as in a file, from a server
    api        url, variables, headers, and items, fields or line   a provider's answer, in the provider's own format
    template   address, variables, sessions                         a provider's gateway: the login selects the exit
    python     iterator = "module:function"                         yields addresses, lines, objects or proxies

In the URL of an `api` or the address of a `template`, `{country}` is replaced by each value of `variables.country` in
turn, which becomes a tag of the proxies. `{session}` is replaced by s1, s2, ... up to the number `sessions`. `${NAME}`
is replaced by an environment variable, also in headers, so the file needs no secrets.

`items` is the path of the array in a JSON answer ("data.proxies", "result[0].list"). `fields` maps the parts of a proxy
to their paths in an entry ({ host = "addr.ip" }). `line` is the format of each line of a text ("{host};{port};{_}").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as replace_fields
from enum import StrEnum
from itertools import islice, product
from math import prod
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from lycosa.core.errors import BadProxy, BadSetting, BadUrl
from lycosa.core.units import DAY_S
from lycosa.core.url import canonicalize
from lycosa.proxies.core.proxy import Proxy, Scheme
from lycosa.proxies.core.sources.json_array import Step, read_array
from lycosa.proxies.core.sources.lists import LIST_MAX, VALUE_MAX, Fault, lines_of, parse_entry, read_list
from lycosa.proxies.core.tables import DURATION, Text, TextTable, read_table

SOURCES_MAX = 1000
PRICE_MAX = 1e9
REQUESTS_MAX = 100
"""Maximum number of requests per refresh of a source: one for each combination of its variables."""

FROM_TEMPLATE_MAX = 10_000
PROXIES_MAX = 1_000_000
"""Maximum number of proxies of one source."""

FAULTS_MAX = 100
"""Maximum number of faults reported for one source. Further ones are only counted."""

DEPTH_MAX = 20

SOURCE = "source"
"""The tag that names the source of a proxy."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
VARIABLE = re.compile(r"\{([a-z_][a-z0-9_]{0,31})\}")
SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]")
FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z"
PARTS = frozenset({"host", "port", "user", "password", "kind", "country", "provider", "price_gb", "price_request"})
"""Names in `fields` and `line` that are parts of a proxy; all other names except `_` become tags."""

VariableName = Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_]{0,31}\Z")]
Variables = dict[VariableName, tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~-]{1,100}\Z")], ...]]
Price = Annotated[float, Meta(ge=0, le=PRICE_MAX)]


class SourceKind(StrEnum):
    """The kinds of sources."""

    FILE = "file"
    URL = "url"
    API = "api"
    TEMPLATE = "template"
    PYTHON = "python"


LOCATION = {
    SourceKind.FILE: "path", SourceKind.URL: "url", SourceKind.API: "url", SourceKind.TEMPLATE: "address",
    SourceKind.PYTHON: "iterator",
}  # fmt: skip
"""The key that holds the location."""

KINDS_OF_KEY = {key: {kind for kind, name in LOCATION.items() if name == key} for key in LOCATION.values()} | {
    "variables": {SourceKind.API, SourceKind.TEMPLATE}, "sessions": {SourceKind.API, SourceKind.TEMPLATE},
    "headers": {SourceKind.URL, SourceKind.API},
    "items": {SourceKind.API}, "fields": {SourceKind.API}, "line": {SourceKind.API},
}  # fmt: skip
"""The kinds of sources that may have a key. Other keys are valid for all kinds."""


class ProxySource(Struct, frozen=True, rename={"every_s": "every", "keep_s": "keep"}):
    """A source; its fields are the keys in TOML. `headers` and the location may contain secrets; `name` is public.

    `every_s`: the time between two refreshes. `keep_s`: how long a proxy that is no longer listed is kept. `tags`,
    `price_gb`, `price_request`: defaults for its proxies.
    """

    name: Annotated[str, Meta(pattern=rf"^{NAME.pattern}\Z", description="a name of a-z, 0-9, - and _")]
    kind: SourceKind
    path: Text = ""
    url: Text = ""
    address: Text = ""
    iterator: Annotated[str, Meta(pattern=FUNCTION, description="module:function")] = ""
    every_s: Annotated[float, Meta(ge=1, le=30 * DAY_S, extra=DURATION)] = 600.0
    keep_s: Annotated[float, Meta(ge=0, le=365 * DAY_S, extra=DURATION)] = DAY_S
    scheme: Scheme = "http"
    provider: Text = ""
    tags: TextTable = {}
    price_gb: Price = 0.0
    price_request: Price = 0.0
    variables: Annotated[Variables, Meta(description="a table of texts of letters, digits, . _ ~ and -")] = {}
    sessions: Annotated[int, Meta(ge=0, le=FROM_TEMPLATE_MAX)] = 0
    headers: TextTable = {}
    items: Text = ""
    fields: TextTable = {}
    line: Text = ""

    def __repr__(self) -> str:
        return f"<source {self.name}>"

    @property
    def location(self) -> str:
        """The path, URL, address or function. It may contain a secret."""
        return str(getattr(self, LOCATION[self.kind]))


class SourceAddress(NamedTuple):
    """A location with values in place of its variables, and the tags that these values become."""

    location: str
    tags: Mapping[str, str]


class ReadResult(NamedTuple):
    """The proxies in an answer, its first faults, and the total number of faults."""

    proxies: list[Proxy]
    faults: list[Fault]
    fault_count: int


class RefreshResult(NamedTuple):
    """The result of refreshing one source.

    `listed`, `added` and `removed` count proxies: in the list, new to the pool, and removed because no source had
    listed them for `keep_s`. `faults` holds the first of `fault_count` faults. `problem`: why the list is
    missing or incomplete, or "".
    """

    source: str
    listed: int = 0
    added: int = 0
    removed: int = 0
    faults: Sequence[Fault] = ()
    fault_count: int = 0
    problem: str = ""


def sources_from(
    entries: object, environ: Mapping[str, str], place: str = "proxies.sources"
) -> tuple[ProxySource, ...]:
    """Read the tables `[[proxies.sources]]`. Raises `BadSetting`."""
    if not isinstance(entries, list) or len(entries) > SOURCES_MAX:
        raise BadSetting(f"{place}: write at most {SOURCES_MAX:,} tables, each as [[{place}]]")
    sources = [_source(entry, f"{place}[{number}]", environ) for number, entry in enumerate(entries, 1)]
    names = [each.name for each in sources]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise BadSetting(f"{place}: two sources have the name {repeated[0]}")
    return tuple(sources)


def source_addresses(source: ProxySource) -> Iterator[SourceAddress]:
    """Yield an address for each combination of a source's variables."""
    names = _variables(source.location) if source.kind in KINDS_OF_KEY["variables"] else []
    for values in product(*(source.variables[name] for name in names)):
        chosen = dict(zip(names, values, strict=True))
        location = source.location
        for name, value in chosen.items():
            location = location.replace(f"{{{name}}}", value)
        yield SourceAddress(location, {name: value for name, value in chosen.items() if name != "session"})


def read_answer(source: ProxySource, text: str, address: SourceAddress) -> ReadResult:
    """Read the answer from one address. Raises `BadProxy` if it is too long or not a list."""
    if len(text) > LIST_MAX:
        raise BadProxy(f"the list has {len(text):,} characters: at most {LIST_MAX:,} are allowed")
    if source.line:
        return _collect(source, _by_lines(source, text), address.tags)
    if source.items or source.fields:
        return _collect(source, _by_paths(source, text), address.tags)
    return _collect(source, read_list(text, source.scheme), address.tags)


def read_entries(source: ProxySource, entries: Iterable[object]) -> ReadResult:
    """Read what a Python iterator yields: `Proxy` objects, or values that `parse_entry` accepts."""
    return _collect(source, _parsed(source, entries), {})


def read_template(source: ProxySource) -> ReadResult:
    """Return the proxies for all combinations of a template's variables."""
    addresses = source_addresses(source)
    return merge_results(_collect(source, _parsed(source, [each.location]), each.tags) for each in addresses)


def merge_results(results: Iterable[ReadResult]) -> ReadResult:
    """Merge the results of several addresses of a source."""
    proxies: dict[str, Proxy] = {}
    faults: list[Fault] = []
    fault_count = 0
    for each in results:
        proxies.update((proxy.key, proxy) for proxy in each.proxies)
        faults += each.faults[: FAULTS_MAX - len(faults)]
        fault_count += each.fault_count
    return ReadResult(list(proxies.values())[:PROXIES_MAX], faults, fault_count)


def _collect(source: ProxySource, found: Iterable[Proxy | Fault], tags: Mapping[str, str]) -> ReadResult:
    proxies: dict[str, Proxy] = {}
    faults: list[Fault] = []
    fault_count = 0
    for each in found:
        if isinstance(each, Fault):
            fault_count += 1
            faults += [each][: FAULTS_MAX - len(faults)]
        elif len(proxies) < PROXIES_MAX:
            proxies[each.key] = replace_fields(
                each,
                tags={**source.tags, **tags, **each.tags, SOURCE: source.name},
                price_gb=each.price_gb or source.price_gb,
                price_request=each.price_request or source.price_request,
            )
    return ReadResult(list(proxies.values()), faults, fault_count)


def _parsed(source: ProxySource, entries: Iterable[object]) -> Iterator[Proxy | Fault]:
    for number, entry in enumerate(islice(entries, PROXIES_MAX), 1):
        try:
            yield from [entry] if isinstance(entry, Proxy) else parse_entry(entry, source.scheme)
        except BadProxy as error:
            yield Fault(number, str(error))


def _by_lines(source: ProxySource, text: str) -> Iterator[Proxy | Fault]:
    pattern, names = _line_pattern(source.line)
    for number, line in enumerate(lines_of(text.removeprefix("\ufeff")), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = pattern.fullmatch(line.strip())
        if match is None:
            yield Fault(number, f"does not match {source.line}")
            continue
        yield from _from_parts(source, dict(zip(names, match.groups(), strict=True)), number)


def _by_paths(source: ProxySource, text: str) -> Iterator[Proxy | Fault]:
    array = read_array(text.removeprefix("\ufeff"), _steps(source.items), source.items or "its top level")
    for number, (line, entry) in enumerate(array, 1):
        found: Iterable[Proxy | Fault] = _parsed(source, [entry])
        if source.fields and isinstance(entry, dict):
            parts = {name: _value_at(entry, path) for name, path in source.fields.items()}
            found = _from_parts(source, {name: value for name, value in parts.items() if value is not None}, line)
        for each in found:
            yield Fault(line, f"entry {number:,}: {each.problem}") if isinstance(each, Fault) else each


def _steps(path: str) -> list[Step]:
    return [name or int(index) for name, index in islice(STEP.findall(path), DEPTH_MAX)]


def _from_parts(source: ProxySource, parts: Mapping[str, Any], number: int) -> Iterator[Proxy | Fault]:
    """Yield the proxies of an entry. Names that are not in PARTS become tags."""
    tags = {name: str(value) for name, value in parts.items() if name not in PARTS and name != "_"}
    entry = {"scheme" if name == "kind" else name: value for name, value in parts.items() if name in PARTS}
    try:
        _refuse_long(tags)
        for proxy in parse_entry(entry, source.scheme):
            yield replace_fields(proxy, tags={**tags, **proxy.tags})
    except BadProxy as error:
        yield Fault(number, str(error))


def _refuse_long(tags: Mapping[str, str]) -> None:
    for name, value in tags.items():
        if len(value) > VALUE_MAX:
            raise BadProxy(f"{name} is longer than {VALUE_MAX} characters")


def _value_at(data: object, path: str) -> object:
    for step in _steps(path):
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            data = data[step] if isinstance(data, list) and step < len(data) else None
    return data


def _line_pattern(line: str) -> tuple[re.Pattern[str], list[str]]:
    """Return the pattern for a format such as `{host}:{port}`, and the names of its groups.

    A part cannot contain the first character of the text after it, so the pattern never backtracks.
    """
    pieces = VARIABLE.split(line)
    names, pattern = pieces[1::2], re.escape(pieces[0])
    for text in pieces[2::2]:
        pattern += (f"([^{re.escape(text[0])}]*)" if text else "(.*)") + re.escape(text)
    return re.compile(pattern), names


# ---------------------------------------------------------------------------------------------------------- settings


def _source(entry: object, place: str, environ: Mapping[str, str]) -> ProxySource:
    source = read_table(entry, ProxySource, place, secret=True)
    key = LOCATION[source.kind]
    for name, kinds in KINDS_OF_KEY.items():
        if getattr(source, name) and source.kind not in kinds:
            raise BadSetting(f"{place}.{name}: has no effect for kind = {str(source.kind)!r}: leave it out")
    location = _expand_environment(source.location, environ, f"{place}.{key}")
    headers = {name: _expand_environment(text, environ, f"{place}.headers") for name, text in source.headers.items()}
    tags = source.tags | ({"provider": source.provider} if source.provider else {})
    variables = source.variables
    if source.sessions:
        variables = variables | {"session": tuple(f"s{number}" for number in range(1, source.sessions + 1))}
    source = replace(source, **{key: location, "headers": headers, "tags": tags, "variables": variables})
    if problem := _problem(source, key):
        raise BadSetting(f"{place}.{problem}")
    return source


def _expand_environment(text: str, environ: Mapping[str, str], place: str) -> str:
    """Insert the values of environment variables. Raises `BadSetting` if one is not set."""
    missing = next((name for name in SECRET.findall(text) if not environ.get(name)), None)
    if missing is not None:
        raise BadSetting(f"{place}: ${{{missing}}} is not set in the environment")
    return SECRET.sub(lambda found: environ[found[1]], text)


def _problem(source: ProxySource, key: str) -> str:
    """Return the first problem as "key: problem"; "" if there is none."""
    if not source.location:
        return f"{key}: a source of this kind needs it{_example(source.kind)}"
    if wrong := next((name for name in source.tags if not NAME.fullmatch(name) or name == SOURCE), None):
        return f"tags: {wrong[:32]!r} is not a valid name of a tag"
    if problem := _problem_of_variables(source, key) if source.kind in KINDS_OF_KEY["variables"] else "":
        return problem
    if source.kind in KINDS_OF_KEY["url"]:
        try:
            canonicalize(next(source_addresses(source)).location)
        except (BadUrl, StopIteration):
            return f"{key}: is not a URL: write http:// or https://"
    if source.kind is SourceKind.TEMPLATE and (faults := read_template(source).faults):
        return f"{key}: {faults[0].problem}"
    if source.line and not {"host", "port"} <= set(VARIABLE.findall(source.line)):
        return 'line: write its format, with {host} and {port} in it, as "{host}:{port}"'
    if "}{" in source.line:
        return "line: write some text between two parts"
    if source.line and (source.items or source.fields):
        return "line: is for text answers, items and fields are for JSON: write one or the other"
    if source.fields and "host" not in source.fields:
        return 'fields: say where the host is: { host = "ip", port = "port" }'
    return ""


def _problem_of_variables(source: ProxySource, key: str) -> str:
    names, variables = _variables(source.location), source.variables
    if missing := next((name for name in names if not variables.get(name)), None):
        instead = "sessions = 10" if missing == "session" else f'variables = {{ {missing} = ["one", "two"] }}'
        return f"{key}: {{{missing}}} has no values: write {instead}"
    if unused := next((name for name in variables if name not in names), None):
        option = "sessions" if unused == "session" and source.sessions else "variables"
        return f"{option}: {{{unused}}} is not in {key}"
    count = prod(len(variables[name]) for name in names)
    most = REQUESTS_MAX if source.kind is SourceKind.API else FROM_TEMPLATE_MAX
    return f"variables: {count:,} combinations: write at most {most:,}" if count > most else ""


def _variables(location: str) -> list[str]:
    return list(dict.fromkeys(VARIABLE.findall(location)))


def _example(kind: SourceKind) -> str:
    if kind is SourceKind.TEMPLATE:
        return ', as "http://user-{country}-{session}:${SECRET}@gate.example:8000"'
    return ', as "module:function"' if kind is SourceKind.PYTHON else ""
