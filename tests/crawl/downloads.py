"""Downloads for the tests of media: by the real fetcher, with redirects and retries, in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

from lycosa.core.errors import ConnectionLost, FetchError
from lycosa.crawl.items.media.pipeline import MediaInfo, MediaPipeline, MediaSettings
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from tests.storage.memory_keystore import MemoryKeyStore

CHUNK = 1000
TRIES = 3
REDIRECTS_MAX = 5


class Downloads:
    """The `download` of the engine, without delays and robots.txt."""

    def __init__(self) -> None:
        self._fetcher = CurlFetcher(FetchSettings(timeout_s=10))
        self.active = self.maximum = 0

    async def __call__(self, request: Request, into: Any) -> Response:
        self.active += 1
        self.maximum = max(self.maximum, self.active)
        try:
            return await self._follow_redirects(request, into)
        finally:
            self.active -= 1

    async def _follow_redirects(self, request: Request, into: Any) -> Response:
        url = request.url
        for _ in range(REDIRECTS_MAX):
            raw = await self._fetch_with_retries(Request(url))
            if raw.status not in {301, 302} or request.meta.get("dont_redirect"):
                break
            url = urljoin(url, raw.headers.get("location"))
        into.restart()
        for start in range(0, len(raw.body), CHUNK):
            into(raw.body[start : start + CHUNK])
        return Response(url, raw.status, raw.headers, b"", request=request)

    async def _fetch_with_retries(self, request: Request) -> Any:
        for attempt in range(TRIES):
            try:
                raw = await self._fetcher.fetch(request)
            except FetchError:
                if attempt == TRIES - 1:
                    raise
                continue
            if raw.status != 503:
                break
        return raw

    async def close(self) -> None:
        await self._fetcher.close()


class Streams:
    """A minimal `download` that passes each chunk on at once: HTTP/1.1 over a socket, no redirects."""

    async def __call__(self, request: Request, into: Any) -> Response:
        error: Exception = ConnectionLost()
        for _ in range(TRIES):
            into.restart()
            try:
                return await self._download_once(request, into)
            except ConnectionLost as lost:
                error = lost
        raise error

    async def _download_once(self, request: Request, into: Any) -> Response:
        parts = urlsplit(request.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            length = next(int(line.split(":")[1]) for line in head if line.lower().startswith("content-length"))
            while length:
                chunk = await reader.read(CHUNK)
                if not chunk:
                    raise ConnectionLost
                length -= len(chunk)
                into(chunk)
            return Response(request.url, int(head[0].split()[1]), request=request)
        finally:
            writer.close()

    async def close(self) -> None:
        pass


class Counts:
    """A stats collector with only the method that pipelines use."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def inc_value(self, name: str, count: int = 1) -> None:
        self.values[name] = self.values.get(name, 0) + count


@asynccontextmanager
async def opened(
    kind: type[MediaPipeline],
    folder: Any,
    memory: Any = None,
    *,
    stream: bool = False,
    now: Any = None,
    **settings: Any,
) -> AsyncIterator[Any]:
    """Open a pipeline with real downloads, and close it afterwards. Its counts are in `info.stats.values`."""
    download = Streams() if stream else Downloads()
    values = {"urls_field": kind.URLS_FIELD, "result_field": kind.RESULT_FIELD, **settings}
    info = MediaInfo(None, download, Counts())
    more = {"now": now} if now else {}
    pipeline = kind(MediaSettings(str(folder), **values), info, memory or MemoryKeyStore(), **more)
    pipeline.open_spider()
    try:
        yield pipeline
    finally:
        await pipeline.close_spider()
        await download.close()
