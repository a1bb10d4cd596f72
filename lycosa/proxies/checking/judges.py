"""The judges of a checker: which of them answer, and how they see a request without a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from secrets import token_hex
from typing import NamedTuple

from lycosa.core.errors import FetchError, NoJudge
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher
from lycosa.proxies.core.checks.anonymity import SeenRequest
from lycosa.proxies.core.checks.judging import ANSWER_MAX, LOOK, PAGE, JudgeAddress, decode_answer, make_page
from lycosa.proxies.core.proxy import Proxy

FRESH_S = 30.0
"""Seconds for which a judge counts as ready after it answered without a proxy."""

RETRY_S = 1.0
"""Seconds before the judges are probed again if none answered."""

NO_PROXY = ""
NONCE_BYTES = 16
FIELDS = {"user-agent": "Mozilla/5.0 (compatible; proxy check)", "accept-language": "en", "connection": "close"}
"""Sent with all requests to judges: the same with and without a proxy."""


class ReadyJudge(NamedTuple):
    """A judge that answers. `direct`: a request without a proxy as the judge saw it."""

    address: JudgeAddress
    direct: SeenRequest


class Judges:
    """Judges, used in rotation. `fetcher` must accept their pinned certificates."""

    def __init__(self, fetcher: Fetcher, addresses: Sequence[JudgeAddress], timeout_s: float) -> None:
        self._fetcher = fetcher
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._ready: dict[str, tuple[ReadyJudge, float]] = {}
        self._failed: tuple[str, float] | None = None
        self._lock = asyncio.Lock()
        self._rotation = count()

    async def ready(self) -> ReadyJudge:
        """Return the next judge that has answered recently. Raises `NoJudge`."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            ready = [judge for judge, at in self._ready.values() if now - at <= FRESH_S]
            if not ready:
                await self._probe_all()
                ready = [judge for judge, _ in self._ready.values()]
        return ready[next(self._rotation) % len(ready)]

    async def is_answering(self, judge: ReadyJudge, since: float) -> bool:
        """Return whether a judge has answered without a proxy at or after the loop time `since`, or answers now."""
        async with self._lock:
            known = self._ready.get(judge.address.url)
            if known is None or known[1] < since:
                await self._probe_directly(judge.address)
            return judge.address.url in self._ready

    async def probe(
        self, address: JudgeAddress, proxy: str, *, tls: bool = False
    ) -> tuple[SeenRequest | None, HttpResponse]:
        """Send a request to a judge through a proxy (URL, or NO_PROXY). Raises `FetchError`.

        Return the request as the judge saw it (None if another server answered), and the response.
        """
        nonce = token_hex(NONCE_BYTES)
        response = await self._fetch(address.ask(LOOK, nonce, tls=tls), proxy)
        return decode_answer(response.body, address.key, nonce), response

    async def page(self, address: JudgeAddress, proxy: Proxy) -> tuple[bytes, HttpResponse]:
        """Fetch a judge's page through a proxy. Return the expected content and the response. Raises `FetchError`."""
        nonce = token_hex(NONCE_BYTES)
        return make_page(address.key, nonce), await self._fetch(address.ask(PAGE, nonce), proxy.url)

    async def _probe_all(self) -> None:
        loop = asyncio.get_running_loop()
        if self._failed is not None and loop.time() - self._failed[1] < RETRY_S:
            raise NoJudge(self._failed[0])  # many checks wait for the lock: the first failure applies to all
        if not self._addresses:
            raise NoJudge(
                "no judge to check proxies with: run `lycosa proxies judge` where the proxies can reach it, and give "
                "its address with --judge or under judges in [proxies.checks]"
            )
        problems = await asyncio.gather(*map(self._probe_directly, self._addresses))
        if all(problems):
            names = (f"{each.name} ({why})" for each, why in zip(self._addresses, problems, strict=True))
            self._failed = f"no judge answers: {', '.join(names)}", loop.time()
            raise NoJudge(self._failed[0])

    async def _probe_directly(self, address: JudgeAddress) -> str:
        """Return why a judge cannot be used, or ""."""
        self._ready.pop(address.url, None)  # not ready until it answers again
        try:
            seen, _ = await self.probe(address, NO_PROXY)
            if seen is not None and address.tls_port:
                seen, _ = await self.probe(address, NO_PROXY, tls=True)
        except FetchError as error:
            return str(error)
        if seen is None:
            return "the server there is not this judge, or has another key"
        direct = SeenRequest(seen.address, seen.fields)
        self._ready[address.url] = ReadyJudge(address, direct), asyncio.get_running_loop().time()
        return ""

    async def _fetch(self, url: str, proxy: str) -> HttpResponse:
        request = Request(url, headers=FIELDS, timeout=self._timeout_s)
        return await self._fetcher.fetch(request, max_body=ANSWER_MAX, cut=True, proxy=proxy)
