"""`lycosa proxies add`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DONE, USAGE, one_line
from lycosa.cli.frontier.changes import open_input
from lycosa.cli.frontier.rows import json_option, print_result
from lycosa.cli.proxies.pool import parse_tags, pool_option, run
from lycosa.cli.task_progress import task_progress
from lycosa.config.suggestions import looks_like_a_list_file, suggest_file
from lycosa.core.errors import BadProxy, FetchError, UsageError
from lycosa.core.units import format_count
from lycosa.infra.line_files import STREAM
from lycosa.proxies.core.proxy import PORTS, Proxy, parse_proxy
from lycosa.proxies.core.sources.lists import LIST_MAX, NAME, VALUE_MAX, Fault, read_list
from lycosa.proxies.ports import ProxyPool

FAULTS_SHOWN = 20
"""Maximum number of invalid lines shown per list. The others are only counted."""

BATCH = 2_000
"""Number of proxies added in one call, after which the progress is shown."""


class ParsedList(NamedTuple):
    """The proxies and the faults of one source. `name` has no login."""

    name: str
    proxies: list[Proxy]
    faults: list[Fault]


@click.command("add")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|-|URL|ADDRESS...")
@pool_option
@click.option(
    "--scheme",
    type=click.Choice(list(PORTS)),
    default="http",
    show_default=True,
    help="Scheme of addresses without a scheme.",
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Add this tag to all proxies of the sources.")
@click.option("--strict", is_flag=True, help="Add nothing if a line is invalid.")
@json_option
def command(
    sources: Sequence[str], address: str | None, scheme: str, tags: Sequence[str], *, strict: bool, as_json: bool
) -> int:
    """Add proxies to a pool. A missing pool is created.

    A source is a file, - for standard input, the URL of a list, or the address of a proxy. A list is the JSON of a
    provider, or has one proxy per line (host:port, scheme://user:password@host:port or host:port:user:password).
    Tags (country=de) and prices (price_gb=4.5) may follow the proxy; a proxy already in the pool gets them, too.
    Invalid lines are reported and skipped; the exit code is then 2.

    \b
    lycosa proxies add proxies.txt --pool pool --tag provider=acme
    lycosa proxies add https://provider.example/list.txt --pool redis://localhost:6379/0
    lycosa proxies add socks5h://ann:secret@proxy.example:1080 --pool pool
    """
    extra_tags = parse_tags(tags)
    for name, value in extra_tags.items():
        if not NAME.fullmatch(name) or len(value) > VALUE_MAX:
            raise UsageError(
                f"--tag {one_line(name)}=...: write a lower-case name, and a value of at most {VALUE_MAX} characters"
            )
    lists = [_read(source, scheme) for source in sources]
    for each in lists:
        _report_faults(each)
    faulty = sum(len(each.faults) for each in lists)
    if faulty and strict:
        raise UsageError(f"nothing was added: {format_count(faulty, 'invalid line')} (see above)")
    proxies = [proxy for each in lists for proxy in each.proxies]
    if extra_tags:
        proxies = [replace(proxy, tags={**proxy.tags, **extra_tags}) for proxy in proxies]
    if not proxies:
        raise UsageError(f"there is no proxy in {', '.join(one_line(each.name) for each in lists)}")

    async def action(pool: ProxyPool) -> int:
        added = 0
        with task_progress("proxy", "added", len(proxies)) as show:
            for start in range(0, len(proxies), BATCH):
                batch = proxies[start : start + BATCH]
                added += await pool.add(batch)
                show(start + len(batch), start + len(batch))
        return added

    added = run(address, action, create=True)
    known = len(proxies) - added
    text = f"{format_count(added, 'proxy')} added" + (f", {known:,} already known" if known else "")
    print_result({"added": added, "known": known, "faulty": faulty}, text, as_json=as_json)
    return USAGE if faulty else DONE


def _read(source: str, scheme: str) -> ParsedList:
    """Raises `UsageError`."""
    if source == STREAM or (source and _exists(source)):
        name = "standard input" if source == STREAM else source
        with open_input(source) as stream:  # reads one byte more than allowed, to detect longer input
            return _parse(name, _decode(stream.read(LIST_MAX + 1), name), scheme)
    if _is_list_url(source):
        return _parse(source.partition("?")[0].rpartition("@")[2], _fetch(source), scheme)
    try:
        return ParsedList(source.rpartition("@")[2], [parse_proxy(source, scheme)], [])
    except BadProxy as error:
        raise UsageError(_bad_source(source, error)) from None


def _bad_source(source: str, error: BadProxy) -> str:
    if "://" in source:
        return f"{error}; and there is no file of this name"
    suggestion = suggest_file(source)
    if "/" in source or looks_like_a_list_file(source):
        return f"there is no file {one_line(source.rpartition('@')[2])}{suggestion}"
    return f"{error}; and there is no file of this name{suggestion}"


def _parse(name: str, text: str, scheme: str) -> ParsedList:
    try:
        found = list(read_list(text, scheme))
    except BadProxy as error:
        raise UsageError(f"{one_line(name)}: {error}") from None
    faults = [each for each in found if isinstance(each, Fault)]
    return ParsedList(name, [each for each in found if isinstance(each, Proxy)], faults)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # an address or a URL may be too long for a file name
        return False


def _decode(data: bytes, name: str) -> str:
    if len(data) > LIST_MAX:
        raise UsageError(f"{one_line(name)} is longer than {LIST_MAX:,} bytes: add it in parts")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{one_line(name)} is not UTF-8: byte {error.start:,}") from None


def _is_list_url(source: str) -> bool:
    """Return whether a source is a list's URL. A proxy's address has no path or query."""
    try:
        parts = urlsplit(source)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and (parts.path not in ("", "/") or bool(parts.query))


def _fetch(url: str) -> str:
    from lycosa.app.crawl.one_page import fetch
    from lycosa.cli.crawl.spiders import project_settings
    from lycosa.http.core.request import Request

    shown = one_line(url.partition("?")[0].rpartition("@")[2])  # without secrets
    try:
        # Without robots.txt, because the user asked for this list, and without retries, to report an error at once.
        response = fetch(replace(project_settings(), robots=False, retry_enabled=False), Request(url))
    except FetchError as error:
        raise UsageError(f"the list at {shown} cannot be fetched: {error}") from None
    if response.status != 200:
        raise UsageError(f"the list at {shown} cannot be fetched: status {response.status}")
    return _decode(response.body, shown)


def _report_faults(parsed: ParsedList) -> None:
    name = one_line(parsed.name)
    lines = [f"{name}:{fault.line}: {one_line(fault.problem)}" for fault in parsed.faults[:FAULTS_SHOWN]]
    if len(parsed.faults) > FAULTS_SHOWN:
        lines.append(f"{name}: and {len(parsed.faults) - FAULTS_SHOWN:,} more")
    if lines:
        progress.write(lines)
