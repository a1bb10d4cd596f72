"""Checks proxies: sends requests through each proxy to a judge, and to the sites that the proxy must serve.

    checker = Checker(Checks(judges=...), judge_fetcher, site_fetcher)    # or `app.proxies.checks.open_checker`
    async for finding in checker.check_all(proxies):                      # in order of completion
        await record_finding(pool, finding, checks, now)

A check sends two concurrent probes, over HTTP and HTTPS, then fetches a page of the judge, then the sites. Each request
has a timeout. If the judge fails meanwhile, the check is repeated, up to ATTEMPTS_MAX checks in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from lycosa.core.errors import FetchError, NoJudge, TlsFailed
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher
from lycosa.proxies.checking.judges import Judges, ReadyJudge
from lycosa.proxies.core.checks.anonymity import Anonymity, SeenRequest, anonymity, exit_ip
from lycosa.proxies.core.checks.checks import SEARCHED_MAX, Checks, Finding, TargetPage
from lycosa.proxies.core.checks.judging import PAGE_FIELDS
from lycosa.proxies.core.checks.tampering import CERTIFICATE, PAGE, answer_changes, request_changes
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool

KINDS = ("http", "socks5h", "socks4a", "https")

ATTEMPTS_MAX = 3
"""Maximum number of checks of one proxy, if the judge fails during each."""


class ProbeResult(NamedTuple):
    """The result of a probe. `seen`: the request as the judge received it. `changes`: what the proxy has changed."""

    seen: SeenRequest | None = None
    latency_s: float | None = None
    problem: str = ""
    changes: tuple[str, ...] = ()
    error: FetchError | None = None


class Checker:
    """Checks proxies. `judges` fetches from judges and accepts pinned certificates; `sites` fetches from sites."""

    def __init__(self, checks: Checks, judges: Fetcher, sites: Fetcher) -> None:
        self.checks = checks
        self._judges = Judges(judges, checks.judges, checks.timeout_s)
        self._sites = sites

    async def ready(self) -> None:
        """Make sure that a judge answers. Raises `NoJudge`."""
        await self._judges.ready()

    async def check_all(self, proxies: Iterable[Proxy]) -> AsyncGenerator[Finding]:
        """Check proxies, at most `concurrency` at a time. Yield findings in order of completion. Raises `NoJudge`.

        To stop early, close the generator (`contextlib.aclosing`), which cancels the running checks.
        """
        await self.ready()
        waiting, running = iter(proxies), set[asyncio.Task[Finding]]()
        try:
            while True:
                for proxy in waiting:
                    running.add(asyncio.create_task(self.check(proxy)))
                    if len(running) >= self.checks.concurrency:
                        break
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def check(self, proxy: Proxy) -> Finding:
        """Raises `NoJudge`."""
        for _ in range(ATTEMPTS_MAX):
            judge, start = await self._judges.ready(), asyncio.get_running_loop().time()
            finding = await self._check_by(judge, proxy)
            # A failure, or a page that is not the judge's (such as the proxy's error page), counts against the proxy
            # only if the judge answers without a proxy.
            is_blamed = not finding.alive or PAGE in finding.changes
            if not is_blamed or await self._judges.is_answering(judge, start):
                return await self._check_sites(finding)
        raise NoJudge("the judges are unstable: proxies cannot be checked")

    async def _check_by(self, judge: ReadyJudge, proxy: Proxy) -> Finding:
        plain, secure = await asyncio.gather(self._probe(judge, proxy), self._probe(judge, proxy, tls=True))
        if isinstance(plain.error, TlsFailed):  # TLS to the proxy itself failed: no certificate was swapped
            secure = secure._replace(changes=())
        changes = {*plain.changes, *secure.changes}
        seen = [each.seen for each in (plain, secure) if each.seen is not None]
        if not seen:
            finding = Finding(proxy, changes=tuple(sorted(changes)), problem=plain.problem or secure.problem)
            return await self._try_other_kinds(judge, finding) if self.checks.other_kinds and not changes else finding
        if plain.seen is not None:  # without TLS, the proxy can alter the page
            changes.update(await self._check_page(judge, proxy))
        levels = [anonymity(each, judge.direct, self.checks.own_addresses) for each in seen]
        return Finding(
            proxy,
            tuple(name for name, each in (("http", plain), ("https", secure)) if each.seen is not None),
            secure.latency_s or plain.latency_s,  # `secure.latency_s` includes the handshake with the judge
            next(level for level in Anonymity if level in levels),
            exit_ip(*seen),
            tuple(sorted({*changes, *request_changes(seen[0], judge.direct)})),
        )

    async def _probe(self, judge: ReadyJudge, proxy: Proxy, *, tls: bool = False) -> ProbeResult:
        if tls and not judge.address.tls_port:
            return ProbeResult()
        try:
            seen, response = await self._judges.probe(judge.address, proxy.url, tls=tls)
        except FetchError as error:
            is_swapped = tls and isinstance(error, TlsFailed) and not error.retry
            return ProbeResult(problem=str(error), changes=(CERTIFICATE,) if is_swapped else (), error=error)
        if seen is not None:
            return ProbeResult(seen, response.latency_s)
        is_altered = 200 <= response.status < 300
        problem = f"returned {response.status} instead of the judge's answer"
        return ProbeResult(problem=problem, changes=(PAGE,) if is_altered else ())

    async def _check_page(self, judge: ReadyJudge, proxy: Proxy) -> Collection[str]:
        try:
            expected, response = await self._judges.page(judge.address, proxy)
        except FetchError:
            return ()
        if (response.status, response.body) != (200, expected):
            return (PAGE,)
        return answer_changes(response.headers, PAGE_FIELDS)

    async def _try_other_kinds(self, judge: ReadyJudge, finding: Finding) -> Finding:
        kinds, proxy = [], finding.proxy
        for kind in KINDS:
            if kind != proxy.scheme:
                other = Proxy(kind, proxy.host, proxy.port, proxy.username, proxy.password)
                if (await self._probe(judge, other)).seen is not None:
                    kinds.append(kind)
        problem = f"answers as {kinds[0]}, not as {proxy.scheme}" if kinds else finding.problem
        return replace(finding, kinds=tuple(kinds), problem=problem)

    async def _check_sites(self, finding: Finding) -> Finding:
        if not finding.alive or finding.unfit(self.checks) or not self.checks.sites:
            return finding
        problems = {page.target: await self._fetch_page(page, finding.proxy) for page in self.checks.sites}
        return replace(finding, sites=problems)

    async def _fetch_page(self, page: TargetPage, proxy: Proxy) -> str:
        request = Request(page.url, timeout=self.checks.timeout_s)
        try:
            response = await self._sites.fetch(request, max_body=SEARCHED_MAX, cut=True, proxy=proxy.url)
        except FetchError as error:
            return str(error)
        return page.problem(response.status, response.body)


async def record_finding(pool: ProxyPool, finding: Finding, checks: Checks, now: float) -> None:
    """Record a finding in a pool, unless the proxy has been removed. `now` in unix seconds."""
    key = finding.proxy.key
    if not await pool.report_check(key, finding.outcome(checks), finding.exit_ip):
        return
    for target, problem in finding.sites.items():
        if problem:
            await pool.ban(target, key, now + checks.every_s, f"check: {problem}")


async def check_pool(
    pool: ProxyPool, checker: Checker, now: Callable[[], float], keys: Collection[str] | None = None
) -> AsyncGenerator[Finding]:
    """Check all or some (`keys`) proxies of a pool once. Record and yield findings. Raises `NoJudge`, `StateError`."""
    proxies = [view.proxy for view in await pool.proxies() if keys is None or view.proxy.key in keys]
    async with aclosing(checker.check_all(proxies)) as findings:
        async for finding in findings:
            await record_finding(pool, finding, checker.checks, now())
            yield finding
