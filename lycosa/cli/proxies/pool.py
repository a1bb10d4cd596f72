"""What the commands of `lycosa proxies` share: their options, opening the pool, parsing and formatting."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DONE, INTERRUPTED, one_line
from lycosa.cli.frontier.rows import report_line
from lycosa.core.errors import BadProxy, UsageError
from lycosa.core.units import parse_duration
from lycosa.proxies.core.pool_url import MEMORY
from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.ports import ProxyPool, ProxyView

T = TypeVar("T")
COLORS = {
    "ready": "green",
    "leased": "cyan",
    "cooling": "yellow",
    "half-open": "magenta",
    "banned": "red",
    "dead": "bright_black",
}
TARGET_MAX = 500
"""Maximum number of characters in the name of a target, as in the API."""

LOGIN = re.compile(r"(?<=://)[^/?#]*@")
"""The login in a URL, which must not be shown."""

KEY_MIN = 4
"""Minimum length of an abbreviated key."""

MATCHES_SHOWN = 5

pool_option = click.option(
    "--pool",
    "address",
    metavar="DIR|redis://...",
    help="The pool. [default: the setting proxy_pool]",
)
target_argument = click.argument("target", metavar="TARGET", callback=lambda _, __, text: parse_target(text))
tag_option = click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only proxies with this tag.")


def limit_option(default: int) -> Callable[[Any], Any]:
    """Return the option --limit."""
    kind = click.IntRange(0)
    return click.option(
        "--limit",
        type=kind,
        default=default,
        show_default=True,
        metavar="N",
        help="Maximum proxies; 0 for all.",
    )


def pool_address(option: str | None) -> str:
    """Return the address of the pool. Raises `UsageError` if it is not set, or is `memory:` or a list file."""
    from lycosa.cli.crawl.spiders import project_settings

    address = option or project_settings().proxy_pool
    if not address:
        raise UsageError("which pool? write --pool DIR, or --pool redis://HOST:6379/0, or set LYCOSA_PROXY_POOL")
    if address == MEMORY:
        raise UsageError("a pool in memory ends with its process: write --pool DIR, or --pool redis://HOST:6379/0")
    with suppress(OSError):  # the address may be too long for a file name
        if Path(address).is_file():
            raise UsageError(
                f"{address} is a list, not a pool: create one with lycosa proxies add {address} --pool DIR"
            )
    return str(address)


@asynccontextmanager
async def open_project_pool(address: str, *, create: bool = False) -> AsyncIterator[ProxyPool]:
    """Open a pool with the policies of the project."""
    from lycosa.app.proxies.pools import open_pool, project_policies

    pool = await open_pool(address, project_policies(Path()), report_line, create=create)
    try:
        yield pool
    finally:
        await pool.close()


def run(option: str | None, action: Callable[[ProxyPool], Awaitable[T]], *, create: bool = False) -> T:
    """Open the pool and run an action on it."""
    address = pool_address(option)

    async def open_and_run() -> T:
        async with open_project_pool(address, create=create) as pool:
            return await action(pool)

    return asyncio.run(open_and_run())


def stop_signal(on_second_signal: Callable[[], object] = lambda: None) -> asyncio.Future[int]:
    """Return a future that SIGINT or SIGTERM sets to the exit code. Further signals call `on_second_signal`."""
    loop = asyncio.get_running_loop()
    exit_code: asyncio.Future[int] = loop.create_future()

    def receive(code: int) -> None:
        if exit_code.done():
            on_second_signal()
        else:
            exit_code.set_result(code)

    loop.add_signal_handler(signal.SIGINT, receive, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, receive, DONE)
    return exit_code


def parse_bind(bind: str, example: str) -> tuple[str, int]:
    """Parse ADDR:PORT. Raises `UsageError`."""
    host, _, port = bind.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--bind {bind}: write ADDR:PORT, such as {example}")
    return host.strip("[]"), int(port)


def parse_tags(texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--tag NAME=VALUE`. Raises `UsageError`."""
    tags = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--tag {text!r}: write NAME=VALUE, such as country=de")
        tags[name] = value
    return tags


def parse_target(text: str | None) -> str | None:
    """Return the target. Raises `UsageError` for a URL, or a name that is empty or too long."""
    if text is None:
        return None
    if not 0 < len(text.strip()) <= len(text) <= TARGET_MAX:
        raise UsageError(f"TARGET {one_line(text)[:40]!r}: write a domain such as shop.example, or a word")
    if "://" in text:  # a pool would accept it as a word, but no crawl uses it
        raise UsageError(f"TARGET {one_line(LOGIN.sub('', text))} is a URL: write {_target_of_url(text)}")
    return text


def _target_of_url(url: str) -> str:
    """Return the target that a crawl uses for a URL, or an example for a URL without a host."""
    from lycosa.http.public_suffixes import registrable

    with suppress(ValueError):
        if host := urlsplit(url).hostname:
            return one_line(registrable(host))
    return "shop.example"


def parse_time_span(text: str, option: str) -> float:
    """Return the seconds of 90s, 30m, 2h, 1d or 90. Raises `UsageError`."""
    found = parse_duration(text)
    if found is None or not 0 < found < 1e9:
        raise UsageError(f"{option} {text!r}: write a time such as 90s, 30m, 2h or 1d")
    return found


def find_proxies(texts: Sequence[str], views: Iterable[ProxyView]) -> list[Proxy]:
    """Return the proxies with these keys, abbreviated keys, names or addresses.

    Raises `UsageError` if a text matches no proxy, or several.
    """
    proxies = [view.proxy for view in views]
    return [_find(text, proxies) for text in texts]


def _find(text: str, proxies: Sequence[Proxy]) -> Proxy:
    key = text
    with suppress(BadProxy):
        key = parse_proxy(text).key
    # An exact match comes first, because an abbreviated key or an address may match several proxies.
    found = [proxy for proxy in proxies if key == proxy.key or text in (proxy.key, proxy.name)]
    place = text.rpartition("@")[2]
    if not found:
        found = [
            proxy
            for proxy in proxies
            if f"{proxy.host}:{proxy.port}" == place or (len(text) >= KEY_MIN and proxy.key.startswith(text.lower()))
        ]
    if len(found) == 1:
        return found[0]
    shown = one_line(place) or "''"
    if not found:
        raise UsageError(f"the pool has no proxy {shown}: lycosa proxies list shows their addresses and keys")
    matches = ", ".join(f"{proxy.key} ({proxy.name})" for proxy in found[:MATCHES_SHOWN])
    raise UsageError(f"{shown} matches {len(found):,} proxies: write the key of one: {matches}")


def report_limit(shown: int, total: int) -> None:
    """Report hidden rows on standard error."""
    if shown < total:
        progress.write([f"only the first {shown:,} of {total:,} are shown: --limit 0 shows all"])


def format_tags(tags: Mapping[str, str]) -> str:
    """Format tags as in a list of proxies."""
    return " ".join(f"{name}={value}" for name, value in tags.items())


def format_latency(seconds: float | None) -> str:
    """Format a latency in milliseconds."""
    return "-" if seconds is None else f"{seconds * 1000:,.0f} ms"


def success_rate(good: int, bad: int) -> str:
    """Format the percentage of good responses."""
    return f"{good / (good + bad):.0%}" if good + bad else "-"
