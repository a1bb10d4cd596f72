"""The base of the pipelines for files and images: downloads each file once, and writes the results into the items.

    URLs of the item -> requests -> being downloaded?    -> share that download's result
                                    stored and recorded? -> uptodate
                                    else: download into a partial file -> check, save, record -> downloaded

Only complete files have their final names. Records are committed with the pages, so after a kill only files downloaded
since the last commit may be downloaded again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from lycosa.core.errors import BadItem, BadSetting, BadSpider, FetchError, IgnoreRequest, LycosaError, StateError
from lycosa.core.units import DAY_S
from lycosa.core.url import canonicalize, fingerprint
from lycosa.crawl.engine.cancellation import is_being_cancelled
from lycosa.crawl.items.items import adapt
from lycosa.crawl.items.media.store import FileException, FolderStore, PartialFile
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from lycosa.storage.ports import KeyStore

log = logging.getLogger(__name__)

CLOCK = Clock()
TABLE = "media"
"""The table of the key store for records of downloads."""

MEDIA_MAX_SIZE = 1 << 30
MEDIA_CONCURRENCY = 8

MEDIA_TIMEOUT_S = 600.0
"""Longer than for a page, because files are larger."""

MEDIA_PER_ITEM_MAX = 10_000
FAILURES_MAX = 10_000
"""Maximum failures that a run remembers, so that a broken image on many pages is requested only once."""

Result = tuple[bool, Any]
"""(True, {url, path, checksum, status}) or (False, the exception)."""

Download = Callable[[Request, PartialFile], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MediaSettings:
    """The settings of a pipeline. `deduplicate`: whether equal files are stored as hard links to one file.

    A file is downloaded again at the age `expires_s` (None: never). `max_size` is in bytes, the sizes of images in
    pixels. `thumbs` maps a name to (width, height).
    """

    store: str
    urls_field: str
    result_field: str
    expires_s: float | None = 90 * DAY_S
    max_size: int = MEDIA_MAX_SIZE
    concurrency: int = MEDIA_CONCURRENCY
    deduplicate: bool = False
    sync: bool = False
    thumbs: dict[str, tuple[int, int]] = field(default_factory=dict)
    min_width: int = 0
    min_height: int = 0


class RepeatedFailure(FileException):
    """A download of the file failed earlier in this run."""


class MediaInfo(NamedTuple):
    """The parts of the crawl that the methods of a pipeline may use.

    `download(request, into)` returns the response, or raises what `InlineFetcher.fetch` raises: mostly `FetchError` or
    `IgnoreRequest`. It respects delays, retries failures and follows redirects. It calls `into.restart()` before
    each transfer, and `into(piece)` for each piece of the body; the response then has no body.
    """

    spider: Any
    download: Download
    stats: Any = None


class MediaRecord(msgspec.Struct, array_like=True, frozen=True):
    """The record of a stored file. `stored_at` is in unix seconds."""

    path: str
    checksum: str
    size: int
    stored_at: float


class MediaPipeline:
    """The base of `FilesPipeline` and `ImagesPipeline`. Subclasses override the methods of the first section."""

    URLS_FIELD: ClassVar[str] = ""
    RESULT_FIELD: ClassVar[str] = ""
    STORE: ClassVar[str] = ""
    """The prefix of the settings: FILES or IMAGES."""
    EXPIRES: ClassVar[float | None] = None
    """The age in days at which a file is downloaded again; overrides the setting."""
    THUMBS: ClassVar[Mapping[str, tuple[int, int]]] = {}
    MIN_WIDTH: ClassVar[int] = 0
    MIN_HEIGHT: ClassVar[int] = 0

    def __init__(
        self, settings: MediaSettings, info: MediaInfo, records: KeyStore, now: Callable[[], float] = CLOCK.now
    ) -> None:
        self.settings = settings
        self.info = info
        self.store = FolderStore(settings.store, sync=settings.sync)
        self._records = records
        self._now = now
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._failures: dict[str, str] = {}
        self._warned: set[type] = set()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        info = MediaInfo(crawler.spider, crawler.download, crawler.stats)
        return cls(settings_of(cls, crawler.settings), info, crawler.records)

    # -------------------------------------------------------------------------------- methods that may be overridden

    def get_media_requests(self, item: Any, info: MediaInfo) -> Iterable[Request]:
        """Return a request for each file of the item. Raises `BadItem` if the field is not a list of URLs."""
        name = self.settings.urls_field
        urls = adapt(item).get(name) or ()
        if not isinstance(urls, (list, tuple)):
            raise BadItem(f"{name}: expected a list of URLs, got {urls!r:.60} ({type(item).__name__})")
        for number, url in enumerate(urls):
            if not isinstance(url, str):
                raise BadItem(f"{name}[{number}]: expected a URL, got {url!r:.60} ({type(item).__name__})")
        return [Request(url) for url in urls]

    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        """Return the path of the file in the store. Called before the download, and again after it with `response`."""
        raise NotImplementedError

    def item_completed(self, results: Sequence[Result], item: Any, info: MediaInfo) -> Any:
        """Return the item with the results of its downloads. Raise `DropItem` to drop the item."""
        name = self.settings.result_field
        try:
            adapt(item)[name] = [result for is_stored, result in results if is_stored]
        except KeyError:
            if type(item) not in self._warned:
                self._warned.add(type(item))
                log.warning("%s has no field %r: the item will not list its downloads", type(item).__name__, name)
        return item

    async def persist(
        self, file: PartialFile, path: str, request: Request, response: Response, item: Any
    ) -> tuple[str, int]:
        """Save a complete download under its path. Return its checksum and size. Raises `FileException`."""
        return await self.save(file, path)

    def is_complete(self, record: MediaRecord, request: Request, item: Any) -> bool:
        return self.store.size(record.path) == record.size

    # --------------------------------------------------------------------------- methods that must not be overridden

    def open_spider(self) -> None:
        self.store.open()

    async def close_spider(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.store.close()

    async def process_item(self, item: Any) -> Any:
        requests = list(islice(self.get_media_requests(item, self.info) or (), MEDIA_PER_ITEM_MAX + 1))
        if len(requests) > MEDIA_PER_ITEM_MAX:
            raise BadItem(f"more than {MEDIA_PER_ITEM_MAX} media files for one item ({type(item).__name__})")
        results: list[Any] = [None] * len(requests)
        queue = iter(enumerate(requests))
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self.settings.concurrency, len(requests))):
                workers.create_task(self._process_requests(queue, results, item))
        failure = next((result for result in results if isinstance(result, Exception)), None)
        if failure is not None:
            raise failure
        completed = self.item_completed(results, item, self.info)
        return await completed if hasattr(completed, "__await__") else completed

    async def save(self, file: PartialFile, path: str) -> tuple[str, int]:
        """Move a file to its path, or link the path to an equal file. Return checksum and size."""
        checksum, size = file.checksum, file.size
        content_key = f"= {checksum} {size}" if self.settings.deduplicate else ""
        existing = self._records.get(TABLE, content_key) if content_key else None
        if existing is None or not await asyncio.to_thread(self.store.link, path, file, existing.decode()):
            if self.settings.sync:
                await asyncio.to_thread(self.store.save, file, path)
            else:
                self.store.save(file, path)
            if content_key:
                self._records.put(TABLE, content_key, path.encode())
        return checksum, size

    async def _process_requests(self, queue: Iterator[tuple[int, Request]], results: list[Any], item: Any) -> None:
        for number, request in queue:
            try:
                results[number] = (True, await self._result_of(request, item))
            except (StateError, BadSpider) as error:  # every other file would fail too: fail the page
                results[number] = error
            except LycosaError as error:
                is_quiet = isinstance(error, (RepeatedFailure, IgnoreRequest))
                text = str(error) if request.url in str(error) else f"{request.url}: {error}"
                log.log(logging.INFO if is_quiet else logging.WARNING, "%s", text)
                self._count("file_error_count")
                results[number] = (False, error)
            except Exception as error:  # noqa: BLE001  an error of the user's code fails the page
                results[number] = error

    async def _result_of(self, request: Request, item: Any) -> dict[str, Any]:
        if not isinstance(request, Request):
            raise BadSpider(
                f"get_media_requests returned a {type(request).__name__} ({request!r:.60}): return Requests"
            )
        path = self.file_path(request, info=self.info, item=item)
        key = self._key(request, path)
        task = self._running.get(key)
        if task is None:
            record = self._find_record(key, request, item)
            if record is not None:
                return self._count_result(request, record, "uptodate")
            if key in self._failures:
                raise RepeatedFailure(self._failures[key])
            task = asyncio.create_task(self._download(request, item, key))
            self._running[key] = task
            task.add_done_callback(lambda done: self._on_done(key, done))
        try:
            # Shielded: other items may be waiting for the same download.
            return {**await asyncio.shield(task), "url": request.url}
        except asyncio.CancelledError:
            if task.cancelled() and not is_being_cancelled():
                raise FileException(f"{request.url}: the crawl is ending") from None
            raise

    def _key(self, request: Request, path: str) -> str:
        self.store.path_of(path)  # raises for an invalid name, before the download
        digest = fingerprint(request.method, canonicalize(request.url), request.body)
        params = f" {sorted(request.params.items())}" if request.params else ""
        return f"{type(self).__name__} {digest:016x} {path}{params}"

    def _find_record(self, key: str, request: Request, item: Any) -> MediaRecord | None:
        stored = self._records.get(TABLE, key)
        if stored is None:
            return None
        record = msgspec.msgpack.decode(stored, type=MediaRecord)
        expires_s = self.settings.expires_s
        if expires_s is not None and record.stored_at + expires_s <= self._now():
            return None
        return record if self.is_complete(record, request, item) else None

    async def _download(self, request: Request, item: Any, key: str) -> dict[str, Any]:
        meta = {"download_timeout": MEDIA_TIMEOUT_S, "download_maxsize": self.settings.max_size, **request.meta}
        request = request.replace(meta=meta)
        file = self.store.new_file(self.settings.max_size)
        try:
            response = await self._transfer(request, file)
            path = self.file_path(request, response=response, info=self.info, item=item)
            checksum, size = await self.persist(file, path, request, response, item)
        except (FileException, FetchError, IgnoreRequest) as error:
            if len(self._failures) >= FAILURES_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[key] = str(error)
            raise
        finally:
            file.discard()
        record = MediaRecord(path, checksum, size, self._now())
        self._records.put(TABLE, key, msgspec.msgpack.encode(record))
        return self._count_result(request, record, "cached" if "cached" in response.flags else "downloaded")

    async def _transfer(self, request: Request, file: PartialFile) -> Response:
        try:
            response = await self.info.download(request, file)
        except Exception:
            if file.error is not None:
                raise file.error from None
            raise
        if response.status != 200:
            raise FileException(f"{request.url}: status {response.status}")
        if file.error is None and not file.size and response.body:
            file(response.body)  # from a cache or a middleware: nothing was transferred into the file
        if file.error is not None:
            raise file.error
        if not file.size:
            raise FileException(f"{request.url}: the body is empty")
        return response

    def _count_result(self, request: Request, record: MediaRecord, status: str) -> dict[str, Any]:
        self._count("file_count")
        self._count(f"file_status_count/{status}")
        return {"url": request.url, "path": record.path, "checksum": record.checksum, "status": status}

    def _on_done(self, key: str, task: asyncio.Task[dict[str, Any]]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved: the coroutines that await the task raise it

    def _count(self, name: str) -> None:
        if self.info.stats is not None:
            self.info.stats.inc_value(name)


def settings_of(kind: type[MediaPipeline], settings: Any) -> MediaSettings:
    """Return the settings of a pipeline class. Raises `BadSetting`.

    A subclass may have its own settings: `MyFiles` reads MYFILES_FILES_STORE before FILES_STORE.
    """

    def setting(name: str, default: Any = None) -> Any:
        for key in (f"{kind.__name__.upper()}_{name}", name):
            if (value := settings.get(key)) is not None:
                return value
        return default

    def field_name(name: str) -> Any:
        return setting(f"{prefix}_{name}", getattr(kind, f"{prefix}_{name}", getattr(kind, name)))

    prefix = kind.STORE
    store = setting(f"{prefix}_STORE")
    if not store:
        raise BadSetting(f"{kind.__name__} has no output folder: set {prefix}_STORE")
    thumbs = setting(f"{prefix}_THUMBS") or kind.THUMBS
    return MediaSettings(
        _folder(str(store), f"{prefix}_STORE"),
        field_name("URLS_FIELD"),
        field_name("RESULT_FIELD"),
        _expires_s(kind, settings, setting(f"{prefix}_EXPIRES", 90)),
        int(setting("media_max_size", MEDIA_MAX_SIZE)),
        int(setting("media_concurrency", MEDIA_CONCURRENCY)),
        bool(setting("media_deduplicate", default=False)),
        bool(setting("sync", default=False)),
        {name: (int(size[0]), int(size[1])) for name, size in thumbs.items()},
        int(setting(f"{prefix}_MIN_WIDTH") or kind.MIN_WIDTH),
        int(setting(f"{prefix}_MIN_HEIGHT") or kind.MIN_HEIGHT),
    )


def _expires_s(kind: type[MediaPipeline], settings: Any, days: float) -> float | None:
    """EXPIRES and Scrapy's settings are in days."""
    own_days = settings.get(f"{kind.__name__.upper()}_{kind.STORE}_EXPIRES")
    if own_days is None and kind.EXPIRES is None and "media_expires" in settings:
        age_s: float | None = settings["media_expires"]
        return age_s
    return float(next(each for each in (own_days, kind.EXPIRES, days) if each is not None)) * DAY_S


def _folder(store: str, name: str) -> str:
    scheme, separator, path = store.partition("://")
    if not separator:
        return store
    if scheme == "file" and path.startswith("/"):
        return path
    raise BadSetting(f"{name} {store!r}: files can only be stored in a folder; write its path")
