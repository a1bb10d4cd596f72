"""`lycosa proxies add`: proxies from files, URLs of lists, addresses, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DONE, USAGE, one_line
from lycosa.cli.frontier.rows import print_json
from lycosa.cli.proxies.pool import json_option, pool_option, run, tags_of
from lycosa.config.suggestions import looks_like_a_list_file, suggest_file
from lycosa.core.errors import BadProxy, FetchError, UsageError
from lycosa.proxies.core.proxy import PORTS, Proxy, parse_proxy
from lycosa.proxies.core.sources.lists import LIST_MAX, NAME, VALUE_MAX, Fault, read_list
from lycosa.proxies.ports import ProxyPool

STREAM = "-"
FAULTS_SHOWN = 20
"""Faults of one list that are shown; the others are only counted."""

AT_ONCE = 2_000
"""Proxies told to the pool between two looks at the progress."""


class Source(NamedTuple):
    """What came from one place."""

    name: str
    proxies: list[Proxy]
    faults: list[Fault]


@click.command("add", short_help="Add proxies, from lists, addresses or standard input.")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|-|URL|ADDRESS...")
@pool_option
@click.option(
    "--scheme", type=click.Choice(list(PORTS)), default="http", show_default=True, help="Where a list does not say."
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag for all of them.")
@click.option("--strict", is_flag=True, help="Add nothing when a line is no proxy.")
@json_option
def command(
    sources: Sequence[str], address: str | None, scheme: str, tags: Sequence[str], *, strict: bool, as_json: bool
) -> int:
    """Add proxies to a pool, or give those it has other tags and prices.

    A source is a file with a proxy a line (host:port, scheme://user:password@host:port, host:port:user:password, and
    tags such as country=de behind it) or JSON as providers write it; - for standard input; the URL of such a list; or
    the address of a proxy. Lines that are no proxies are told with their numbers and passed over, which is exit code 2.

    \b
    lycosa proxies add proxies.txt --pool pool --tag provider=acme
    lycosa proxies add https://provider.example/list.txt --pool redis://localhost:6379/0
    lycosa proxies add socks5h://ann:secret@proxy.example:1080 --pool pool
    """
    more = tags_of(tags)
    for name, value in more.items():
        if not NAME.fullmatch(name) or len(value) > VALUE_MAX:
            raise UsageError(
                f"--tag {one_line(name)}=...: write a name in lower case, and at most {VALUE_MAX} characters"
            )
    read = [_read(source, scheme) for source in sources]
    for source in read:
        _tell_faults(source)
    faulty = sum(len(source.faults) for source in read)
    if faulty and strict:
        raise UsageError(f"nothing was added: {progress.count(faulty, 'line')} with faults (see above)")
    proxies = [
        replace(each, tags={**each.tags, **more}) if more else each for source in read for each in source.proxies
    ]
    if not proxies:
        raise UsageError(f"there is no proxy in {', '.join(one_line(source.name) for source in read)}")

    async def story(pool: ProxyPool) -> int:
        return await _add(pool, proxies)

    added = run(address, story, create=True)
    if as_json:
        print_json({"added": added, "known": len(proxies) - added, "faulty": faulty})
    else:
        known = f", {len(proxies) - added:,} were there already" if added < len(proxies) else ""
        print(f"{_count(added)} added{known}")
    return USAGE if faulty else DONE


async def _add(pool: ProxyPool, proxies: Sequence[Proxy]) -> int:
    added = 0
    with _shown(len(proxies)) as bar:
        for first in range(0, len(proxies), AT_ONCE):
            some = proxies[first : first + AT_ONCE]
            added += await pool.add(some)
            bar(len(some))
    return added


def _read(source: str, scheme: str) -> Source:
    """Return what a source holds. Raises `UsageError`."""
    if source == STREAM:
        return _listed("standard input", _text(sys.stdin.buffer.read(LIST_MAX + 1), "standard input"), scheme)
    if source and _exists(source):
        return _listed(source, _file(Path(source)), scheme)
    if _is_list_url(source):
        return _listed(source, _fetched(source), scheme)
    try:
        return Source(source.rpartition("@")[2], [parse_proxy(source, scheme)], [])
    except BadProxy as wrong:
        raise UsageError(_neither(source, wrong)) from None


def _neither(source: str, wrong: BadProxy) -> str:
    """Say that something is neither a file nor the address of a proxy: what it looks like first."""
    if "://" in source:
        return f"{wrong}; and there is no file of this name"
    near = suggest_file(source)
    if "/" in source or looks_like_a_list_file(source):
        return f"there is no file {one_line(source.rpartition('@')[2])}{near}"
    return f"{wrong}; and there is no file of this name{near}"


def _listed(name: str, text: str, scheme: str) -> Source:
    try:
        read = list(read_list(text, scheme))
    except BadProxy as wrong:
        raise UsageError(f"{one_line(name)}: {wrong}") from None
    faults = [each for each in read if isinstance(each, Fault)]
    return Source(name, [each for each in read if isinstance(each, Proxy)], faults)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # too long for the name of a file, which an address or a URL may be
        return False


def _file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _text(file.read(LIST_MAX + 1), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _text(data: bytes, name: str) -> str:
    if len(data) > LIST_MAX:
        raise UsageError(f"{one_line(name)} is longer than {LIST_MAX:,} bytes: add it in parts")
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise UsageError(f"{one_line(name)}: a list in UTF-8 is wanted, and byte {wrong.start:,} is not") from None


def _is_list_url(source: str) -> bool:
    """Whether this is where a list is: the address of a proxy has neither path nor query."""
    try:
        parts = urlsplit(source)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and (parts.path not in ("", "/") or bool(parts.query))


def _fetched(url: str) -> str:
    from lycosa.app.crawl.one_page import fetch
    from lycosa.cli.crawl.spiders import project_settings
    from lycosa.http.core.request import Request

    shown = one_line(url.partition("?")[0].rpartition("@")[2])
    try:
        response = fetch(replace(project_settings(), robots=False, retry_enabled=False), Request(url))
    except FetchError as error:
        raise UsageError(f"the list at {shown} did not come: {error}") from None
    if response.status != 200:
        raise UsageError(f"the list at {shown} did not come: status {response.status}")
    return _text(response.body, shown)


def _tell_faults(source: Source) -> None:
    name = one_line(source.name)
    lines = [f"{name}:{fault.line}: {one_line(fault.problem)}" for fault in source.faults[:FAULTS_SHOWN]]
    if len(source.faults) > FAULTS_SHOWN:
        lines.append(f"{name}: and {len(source.faults) - FAULTS_SHOWN:,} more")
    if lines:
        progress.write(lines)


@contextmanager
def _shown(total: int) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the proxies that were added: a bar on a terminal, if there are many."""
    if not sys.stderr.isatty() or total <= AT_ONCE:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("adding", total=total)
        yield lambda count: bar.update(task, advance=count)


def _count(number: int) -> str:
    return f"{number:,} {'proxy' if number == 1 else 'proxies'}"
