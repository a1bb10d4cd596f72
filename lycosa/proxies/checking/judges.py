"""The judges that a checker asks, through proxies or directly: which of them answer, and what they see without a proxy.

A judge that failed is not a proxy that failed: before a proxy is blamed, its judge is asked directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from lycosa.core.errors import FetchError, NoJudge
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher
from lycosa.proxies.core.checks.anonymity import SeenRequest
from lycosa.proxies.core.checks.judging import ANSWER_MAX, LOOK, PAGE, JudgeAddress, decode_answer, make_page
from lycosa.proxies.core.proxy import Proxy

FRESH_S = 30.0
"""So long after it answered directly a judge is asked through proxies."""

AGAIN_S = 1.0
"""So long after none answered none is asked again."""

NO_PROXY = ""
FIELDS = {"user-agent": "Mozilla/5.0 (compatible; proxy check)", "accept-language": "en", "connection": "close"}
"""What a check sends, so that all its requests are alike."""


class Ready(NamedTuple):
    """A judge that answers, and what it sees of requests without a proxy."""

    address: JudgeAddress
    direct: SeenRequest


class Look(NamedTuple):
    """What came of a look: what the judge saw, None when somebody else answered; and the response."""

    seen: SeenRequest | None
    response: HttpResponse


class Judges:
    """Judges by turns. `fetcher` has to accept their certificates by their pins; `nonce` draws one (32 digits)."""

    def __init__(
        self, fetcher: Fetcher, addresses: Sequence[JudgeAddress], timeout_s: float, nonce: Callable[[], str]
    ) -> None:
        self._fetcher = fetcher
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._nonce = nonce
        self._ready: dict[str, tuple[Ready, float]] = {}
        self._failed: tuple[str, float] | None = None
        self._asking = asyncio.Lock()
        self._turns = count()

    async def ready(self) -> Ready:
        """Return a judge that has answered lately, each in its turn. Raises `NoJudge`."""
        async with self._asking:
            fresh = self._fresh()
            if not fresh:
                await self._ask_all()
                fresh = [ready for ready, _ in self._ready.values()]
        return fresh[next(self._turns) % len(fresh)]

    async def answers(self, judge: Ready, since: float) -> bool:
        """Whether a judge has answered directly since this time of the loop, or does so now."""
        async with self._asking:
            known = self._ready.get(judge.address.url)
            if known is None or known[1] < since:
                await self._ask(judge.address)
            return judge.address.url in self._ready

    async def look(self, address: JudgeAddress, proxy: str, *, tls: bool = False) -> Look:
        """Let the judge look at a request through a proxy (URL, or NO_PROXY). Raises `FetchError`."""
        nonce = self._nonce()
        response = await self._fetch(address.ask(LOOK, nonce, tls=tls), proxy)
        return Look(decode_answer(response.body, address.key, nonce), response)

    async def page(self, address: JudgeAddress, proxy: Proxy) -> tuple[bytes, HttpResponse]:
        """Get a page through a proxy. Return it as it should be, and what came. Raises `FetchError`."""
        nonce = self._nonce()
        return make_page(address.key, nonce), await self._fetch(address.ask(PAGE, nonce), proxy.url)

    def _fresh(self) -> list[Ready]:
        now = asyncio.get_running_loop().time()
        return [ready for ready, at in self._ready.values() if now - at <= FRESH_S]

    async def _ask_all(self) -> None:
        loop = asyncio.get_running_loop()
        if self._failed is not None and loop.time() - self._failed[1] < AGAIN_S:
            raise NoJudge(self._failed[0])  # who waited for this answer needs no other
        if not self._addresses:
            raise NoJudge(
                "no judge to check proxies by: run `lycosa proxies judge` where the proxies can reach it, and give its "
                "address, with --judge or as judges in [proxies.checks]"
            )
        problems = await asyncio.gather(*map(self._ask, self._addresses))
        if all(problems):
            names = (f"{each.name} ({why})" for each, why in zip(self._addresses, problems, strict=True))
            self._failed = f"no judge answers: {', '.join(names)}", loop.time()
            raise NoJudge(self._failed[0])

    async def _ask(self, address: JudgeAddress) -> str:
        """Ask directly. Return why it cannot be used, "" if it can."""
        self._ready.pop(address.url, None)
        try:
            look = await self.look(address, NO_PROXY)
            if look.seen is not None and address.tls_port:
                look = await self.look(address, NO_PROXY, tls=True)
        except FetchError as error:
            return str(error)
        if look.seen is None:
            return "what answers there is not this judge, or has another key"
        direct = SeenRequest(look.seen.address, look.seen.fields)
        self._ready[address.url] = Ready(address, direct), asyncio.get_running_loop().time()
        return ""

    async def _fetch(self, url: str, proxy: str) -> HttpResponse:
        request = Request(url, headers=FIELDS, timeout=self._timeout_s)
        return await self._fetcher.fetch(request, max_body=ANSWER_MAX, cut=True, proxy=proxy)
