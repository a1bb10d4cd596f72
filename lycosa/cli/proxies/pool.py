"""What the commands of a proxy pool share: which pool, how it is opened, which proxy is meant, how rows look."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.core.errors import BadProxy, UsageError
from lycosa.core.units import parse_duration
from lycosa.proxies.core.pool.target import ProxyRequest
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
"""Characters of the name of a target, as in the API."""

LOGIN = re.compile(r"(?<=://)[^/?#]*@")
"""What of a URL nobody else may read."""

KEY_MIN = 4
"""Characters of the beginning of a key that stand for it."""

MEANT_MAX = 5
"""Proxies that are named where several are meant."""

pool_option = click.option(
    "--pool",
    "address",
    metavar="DIR|redis://...",
    help="The pool. [default: the setting proxy_pool]",
)
target_argument = click.argument("target", metavar="TARGET", callback=lambda _, __, text: target_of(text))
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, an object a line.")
tag_option = click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only proxies with this tag.")


def pool_address(given: str | None) -> str:
    """Return where the pool is. Raises `UsageError` when nobody says it."""
    from lycosa.cli.crawl.spiders import project_settings

    address = given or project_settings().proxy_pool
    if not address:
        raise UsageError("which pool? write --pool DIR, or --pool redis://HOST:6379/0, or set LYCOSA_PROXY_POOL")
    if address == MEMORY:
        raise UsageError(
            f"a pool in {MEMORY} is gone with its process: write --pool DIR, or --pool redis://HOST:6379/0"
        )
    if is_file(address):
        raise UsageError(f"{address} is a list, not a pool: lycosa proxies add {address} --pool DIR makes one of it")
    return str(address)


def is_file(path: str) -> bool:
    """Whether there is a file of this name; none has a name that is too long for the system."""
    try:
        return Path(path).is_file()
    except OSError:
        return False


def say_aside(line: str) -> None:
    """Say something beside the results: on standard error."""
    progress.write([one_line(line)])


@asynccontextmanager
async def opened(address: str, *, create: bool = False) -> AsyncIterator[ProxyPool]:
    """Open a pool with the policies of the project; `create` makes one where there is none."""
    from lycosa.app.proxies.pools import open_pool, project_policies

    pool = await open_pool(address, project_policies(Path()), say_aside, create=create)
    try:
        yield pool
    finally:
        await pool.close()


def run(given: str | None, story: Callable[[ProxyPool], Awaitable[T]], *, create: bool = False) -> T:
    """Open the pool that is meant, and do this with it; `create` makes it where there is none."""
    address = pool_address(given)

    async def told() -> T:
        async with opened(address, create=create) as pool:
            return await story(pool)

    return asyncio.run(told())


def proxy_request_of(tags: Sequence[str], session: str = "") -> ProxyRequest:
    """Return the wish that options say. Raises `UsageError`."""
    return ProxyRequest(tags_of(tags), session)


def tags_of(tags: Sequence[str]) -> dict[str, str]:
    """Return the tags that options say. Raises `UsageError`."""
    found = {}
    for text in tags:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--tag {text!r}: write NAME=VALUE, such as country=de")
        found[name] = value
    return found


def target_of(text: str | None) -> str | None:
    """Return a target as it was written. Raises `UsageError` for what nobody lends for, such as a URL."""
    if text is None:
        return None
    if not 0 < len(text.strip()) <= len(text) <= TARGET_MAX:
        raise UsageError(f"TARGET {one_line(text)[:40]!r}: write a domain such as shop.example, or a word")
    if "://" in text:
        raise UsageError(f"TARGET {one_line(LOGIN.sub('', text))} is a URL: write {_domain(text)}")
    return text


def _domain(url: str) -> str:
    """Return the domain that is borrowed for to fetch a URL, an example if it has none."""
    from lycosa.http.public_suffixes import registrable

    with suppress(ValueError):
        if host := urlsplit(url).hostname:
            return one_line(registrable(host))
    return "shop.example"


def seconds(text: str, option: str) -> float:
    """Return the seconds that a span (`90s`, `30m`, `2h`, `1d`, or a bare number of seconds) means."""
    found = parse_duration(text)
    if found is None or not 0 < found < 1e9:
        raise UsageError(f"{option} {text!r}: write a time such as 90s, 30m, 2h or 1d")
    return found


def meant(texts: Sequence[str], views: Iterable[ProxyView]) -> list[Proxy]:
    """Return the proxies that are meant by key (or its beginning), name or address. Raises `UsageError`."""
    proxies = [view.proxy for view in views]
    return [_one(text, proxies) for text in texts]


def _one(text: str, proxies: Sequence[Proxy]) -> Proxy:
    key = _key(text)
    found = [proxy for proxy in proxies if proxy.key in (text, key) or proxy.name == text]
    if not found:
        place = text.rpartition("@")[2]
        found = [
            proxy
            for proxy in proxies
            if f"{proxy.host}:{proxy.port}" == place or (len(text) >= KEY_MIN and proxy.key.startswith(text.lower()))
        ]
    if len(found) == 1:
        return found[0]
    shown = one_line(text.rpartition("@")[2]) or "''"
    if not found:
        raise UsageError(f"the pool has no proxy {shown}: lycosa proxies list shows their addresses and keys")
    some = ", ".join(f"{proxy.key} ({proxy.name})" for proxy in found[:MEANT_MAX])
    raise UsageError(f"{shown} means {len(found):,} proxies: write the key of one: {some}")


def _key(text: str) -> str:
    try:
        return parse_proxy(text).key
    except BadProxy:
        return ""


def view_json(view: ProxyView) -> dict[str, Any]:
    """Return a proxy for `--json`: no login."""
    proxy = view.proxy
    return {
        "key": proxy.key,
        "name": proxy.name,
        "state": str(view.state),
        "latency_s": view.latency_s,
        "uses": view.uses,
        "good": view.good,
        "bad": view.bad,
        "until": view.until or None,
        "reason": view.reason,
        "exit_ip": view.exit_ip,
        **facts(proxy),
    }


def facts(proxy: Proxy) -> dict[str, Any]:
    """Return what is known of a proxy beside its address."""
    return {"tags": dict(proxy.tags), "price_gb": proxy.price_gb, "price_request": proxy.price_request}


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as they are written."""
    return " ".join(f"{name}={value}" for name, value in tags.items()) or "-"


def latency(seconds_: float | None) -> str:
    """Return a latency as people read it."""
    return "-" if seconds_ is None else f"{seconds_ * 1000:,.0f} ms"


def share(good: int, bad: int) -> str:
    """Return how much went well."""
    return f"{good / (good + bad):.0%}" if good + bad else "-"
