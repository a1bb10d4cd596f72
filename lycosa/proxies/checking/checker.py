"""Checks proxies: asks a judge through each, and the sites that it is to serve.

    checker = Checker(Checks(judges=...), judge_fetcher, site_fetcher)      # or `app.proxies.checks.open_checker`
    async for finding in checker.findings(proxies):                         # as they come, so many at a time
        await tell(pool, finding, checks, now)

Each proxy gets two looks at the same time, by HTTP and by HTTPS, and a page; then the sites. Nothing is asked twice,
and each transfer has its time, so a check ends. Without a judge that answers there are no findings, but `NoJudge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import replace
from secrets import token_hex
from typing import NamedTuple

from lycosa.core.errors import FetchError, NoJudge, TlsFailed
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher
from lycosa.proxies.checking.judges import Judges, Ready
from lycosa.proxies.core.checks.anonymity import SeenRequest, anonymity, exit_ip
from lycosa.proxies.core.checks.checks import LOOKED_AT, Checks, Finding, TargetPage
from lycosa.proxies.core.checks.judging import PAGE_FIELDS
from lycosa.proxies.core.checks.tampering import CERTIFICATE, PAGE, answer_changes, request_changes
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool

HTTP, HTTPS = "http", "https"
KINDS = ("http", "socks5h", "socks4a", "https")
"""As what a proxy is tried that does not answer as what it is said to be."""

TRIES_MAX = 3
"""Checks of a proxy whose judge went away meanwhile."""


class Carried(NamedTuple):
    """What came of a look through a proxy: what the judge saw, or why it saw nothing, and what was changed."""

    seen: SeenRequest | None = None
    latency_s: float | None = None
    problem: str = ""
    changes: tuple[str, ...] = ()
    error: FetchError | None = None


class Checker:
    """See the module. `judges` fetches from judges, and accepts their certificates by their pins; `sites` from sites.

    `nonce` draws a nonce of 32 hexadecimal digits.
    """

    def __init__(
        self, checks: Checks, judges: Fetcher, sites: Fetcher, nonce: Callable[[], str] = lambda: token_hex(16)
    ) -> None:
        self.checks = checks
        self._judges = Judges(judges, checks.judges, checks.timeout_s, nonce)
        self._sites = sites

    async def ready(self) -> None:
        """Return when a judge answers. Raises `NoJudge`, which says what to do."""
        await self._judges.ready()

    async def findings(self, proxies: Iterable[Proxy]) -> AsyncGenerator[Finding]:
        """Check many, as many at a time as `concurrency` says; yield what is found of each, as it comes.

        Raises `NoJudge`. Who stops early ends what is under way (`contextlib.aclosing`).
        """
        await self.ready()
        waiting, under_way = iter(proxies), set[asyncio.Task[Finding]]()
        try:
            while True:
                for proxy in waiting:
                    under_way.add(asyncio.create_task(self.check(proxy)))
                    if len(under_way) >= self.checks.concurrency:
                        break
                if not under_way:
                    return
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        finally:
            for each in under_way:
                each.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def check(self, proxy: Proxy) -> Finding:
        """Check one. Raises `NoJudge`."""
        for _ in range(TRIES_MAX):
            judge, begun_at = await self._judges.ready(), asyncio.get_running_loop().time()
            finding = await self._found(judge, proxy)
            if finding.alive or await self._judges.answers(judge, begun_at):
                return await self._with_sites(finding)
        raise NoJudge("judges come and go: nothing can be said of proxies")

    async def _found(self, judge: Ready, proxy: Proxy) -> Finding:
        """Return what a judge says of a proxy."""
        plain, secure = await asyncio.gather(self._look(judge, proxy), self._look(judge, proxy, tls=True))
        if isinstance(plain.error, TlsFailed):  # to the proxy: what is behind it was not reached
            secure = secure._replace(changes=())
        carried = [each for each in (plain, secure) if each.seen is not None]
        if not carried:
            found = Finding(proxy, changes=_all(plain, secure), problem=plain.problem or secure.problem)
            return await self._as_others(judge, found) if self.checks.other_kinds and not found.changes else found
        page = await self._page(judge, proxy) if plain.seen is not None else ()
        seen = [each.seen for each in carried if each.seen is not None]
        levels = [anonymity(each, judge.direct, self.checks.own_addresses) for each in seen]
        return Finding(
            proxy,
            tuple(name for name, each in ((HTTP, plain), (HTTPS, secure)) if each.seen is not None),
            secure.latency_s or plain.latency_s,
            next(level for level in type(levels[0]) if level in levels),
            exit_ip(*seen),
            tuple(sorted({*_all(plain, secure), *page, *request_changes(seen[0], judge.direct)})),
        )

    async def _look(self, judge: Ready, proxy: Proxy, *, tls: bool = False) -> Carried:
        if tls and not judge.address.tls_port:
            return Carried()
        try:
            seen, response = await self._judges.look(judge.address, proxy.url, tls=tls)
        except FetchError as error:
            swapped = tls and isinstance(error, TlsFailed) and not error.retry
            return Carried(None, None, str(error), (CERTIFICATE,) if swapped else (), error)
        if seen is not None:
            return Carried(seen, response.latency_s)
        altered = 200 <= response.status < 300
        return Carried(None, None, f"answered {response.status} for the judge", (PAGE,) if altered else ())

    async def _page(self, judge: Ready, proxy: Proxy) -> Collection[str]:
        """Return what became of a page on its way; one that did not arrive says nothing."""
        try:
            sent, response = await self._judges.page(judge.address, proxy)
        except FetchError:
            return ()
        if (response.status, response.body) != (200, sent):
            return (PAGE,)
        return answer_changes(response.headers, PAGE_FIELDS)

    async def _as_others(self, judge: Ready, found: Finding) -> Finding:
        """Try it as other kinds of proxies."""
        kinds = []
        for kind in KINDS:
            if kind != found.proxy.scheme:
                other = Proxy(kind, found.proxy.host, found.proxy.port, found.proxy.username, found.proxy.password)
                if (await self._look(judge, other)).seen is not None:
                    kinds.append(kind)
        problem = f"answers as {kinds[0]}, not as {found.proxy.scheme}" if kinds else found.problem
        return replace(found, kinds=tuple(kinds), problem=problem)

    async def _with_sites(self, finding: Finding) -> Finding:
        """Ask the sites, unless it is of no use anyway."""
        if not finding.alive or finding.unfit(self.checks) or not self.checks.sites:
            return finding
        problems = {site.target: await self._site(site, finding.proxy) for site in self.checks.sites}
        return replace(finding, sites=problems)

    async def _site(self, site: TargetPage, proxy: Proxy) -> str:
        request = Request(site.url, timeout=self.checks.timeout_s)
        try:
            response = await self._sites.fetch(request, max_body=LOOKED_AT, cut=True, proxy=proxy.url)
        except FetchError as error:
            return str(error)
        return site.problem(response.status, response.body)


async def tell(pool: ProxyPool, finding: Finding, checks: Checks, now: float) -> bool:
    """Tell a pool what was found: `now` in unix seconds. False when it does not have this proxy any more.

    A proxy that does not serve a site is banned there until the next check; what it finds then decides anew.
    """
    key = finding.proxy.key
    if not await pool.report_check(key, finding.outcome(checks), finding.exit_ip):
        return False
    for target, problem in finding.sites.items():
        if problem:
            await pool.ban(target, key, now + checks.every_s, f"check: {problem}")
    return True


async def check_pool(
    pool: ProxyPool, checker: Checker, now: Callable[[], float], keys: Collection[str] | None = None
) -> AsyncGenerator[Finding]:
    """Check all proxies of a pool once, or those of these keys, and tell it; yield what is found of each, as it comes.

    Raises `NoJudge` before anything is asked, and `StateError` of the pool.
    """
    proxies = [view.proxy for view in await pool.proxies() if keys is None or view.proxy.key in keys]
    async with aclosing(checker.findings(proxies)) as findings:
        async for finding in findings:
            await tell(pool, finding, checker.checks, now())
            yield finding


def _all(*carried: Carried) -> tuple[str, ...]:
    return tuple(sorted({change for each in carried for change in each.changes}))
