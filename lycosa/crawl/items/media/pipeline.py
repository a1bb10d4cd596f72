"""What the pipelines for files and images share: which media an item names, each downloaded once, and what became of
them in the item.

    URLs of the item -> requests -> under way?        -> the same result
                                    known and there?  -> uptodate
                                    else: download into a part -> checked, kept, remembered -> downloaded

What holds when the process is killed: a file is under its name when it is complete, never half of it. A file that was
remembered, in the same commit as a page that named it or an earlier one, is not downloaded again. A file that was
complete but not remembered, at most those of the last commit window, may be downloaded again and then replaces itself.
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
"""Where a key store keeps what was downloaded."""

MEDIA_MAX_SIZE = 1 << 30
MEDIA_CONCURRENCY = 8
"""Downloads of one item at a time."""

MEDIA_TIMEOUT_S = 600.0
"""A download may take so long, where its request does not say how long: files are larger than pages."""

MEDIA_PER_ITEM_MAX = 10_000
FAILURES_MAX = 10_000
"""Media that failed are remembered for the run, so that a thousand pages do not ask for one broken image."""

Result = tuple[bool, Any]
"""(True, {url, path, checksum, status}) or (False, the exception)."""

Download = Callable[[Request, PartialFile], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MediaSettings:
    """What a user decides. `expires_s` None is never; `deduplicate` makes equal files names of one.

    `thumbs` are widths and heights by name, in pixels, as are the least sizes of an image.
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
    """The file could not be had before, in this run."""


class MediaInfo(NamedTuple):
    """What the methods of a pipeline get to see of the crawl.

    `download(request, into)` returns the response, or raises `FetchError`: politely, with retries and redirects. `into`
    is called with the pieces of the body, and `into.restart()` before each transfer; the response then has no body.
    """

    spider: Any
    download: Download
    stats: Any = None


class MediaRecord(msgspec.Struct, array_like=True, frozen=True):
    """What is remembered of a file that was kept. `at` is in unix seconds."""

    path: str
    checksum: str
    size: int
    at: float


class MediaPipeline:
    """Base of the two pipelines; a class of yours overrides what it has other ideas about."""

    URLS_FIELD: ClassVar[str] = ""
    RESULT_FIELD: ClassVar[str] = ""
    STORE: ClassVar[str] = ""
    """The prefix of the settings: FILES, IMAGES."""
    EXPIRES: ClassVar[float | None] = None
    """The age in days at which a file is downloaded again, in place of the setting."""
    THUMBS: ClassVar[Mapping[str, tuple[int, int]]] = {}
    MIN_WIDTH: ClassVar[int] = 0
    MIN_HEIGHT: ClassVar[int] = 0
    """Of images, where the settings say nothing."""

    def __init__(
        self, settings: MediaSettings, info: MediaInfo, memory: KeyStore, now: Callable[[], float] = CLOCK.now
    ) -> None:
        self.settings = settings
        self.info = info
        self.store = FolderStore(settings.store, sync=settings.sync)
        self._memory = memory
        self._now = now
        self._under_way: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._failures: dict[str, str] = {}
        self._complained: set[type] = set()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make the pipeline that the settings describe. Raises `BadSetting`."""
        info = MediaInfo(crawler.spider, crawler.download, crawler.stats)
        return cls(settings_of(cls, crawler.settings), info, crawler.records)

    # ------------------------------------------------------------------------------------------- to be overridden

    def get_media_requests(self, item: Any, info: MediaInfo) -> Iterable[Request]:
        """Return a request for each file that the item names. Raises `BadItem` when its field holds no URLs."""
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
        """Return the path of the file in the store. It is asked for before the download, and after, with `response`."""
        raise NotImplementedError

    def item_completed(self, results: Sequence[Result], item: Any, info: MediaInfo) -> Any:
        """Return the item with what became of its media. Raise `DropItem` when it is worth nothing without them."""
        name = self.settings.result_field
        try:
            adapt(item)[name] = [result for good, result in results if good]
        except KeyError:
            if type(item) not in self._complained:
                self._complained.add(type(item))
                log.warning("%s has no field %r: the item does not say what was downloaded", type(item).__name__, name)
        return item

    async def persist(
        self, part: PartialFile, path: str, request: Request, response: Response, item: Any
    ) -> tuple[str, int]:
        """Keep a complete download under its path. Return checksum and size. Raises `FileException`."""
        return await self.keep(part, path)

    def is_complete(self, known: MediaRecord, request: Request, item: Any) -> bool:
        """Return whether what was kept is still there."""
        return self.store.size(known.path) == known.size

    # ---------------------------------------------------------------------------------------------------- the work

    def open_spider(self) -> None:
        """Open the store."""
        self.store.open()

    async def close_spider(self) -> None:
        """End what nobody waits for any longer, and close the store."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.store.close()

    async def process_item(self, item: Any) -> Any:
        """Download what the item names, a bounded number at a time."""
        requests = list(islice(self.get_media_requests(item, self.info) or (), MEDIA_PER_ITEM_MAX + 1))
        if len(requests) > MEDIA_PER_ITEM_MAX:
            raise BadItem(f"more than {MEDIA_PER_ITEM_MAX} media of one item ({type(item).__name__})")
        results: list[Any] = [None] * len(requests)
        queue = iter(enumerate(requests))
        if len(requests) == 1:
            await self._work(queue, results, item)
        elif requests:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.settings.concurrency, len(requests))):
                    workers.create_task(self._work(queue, results, item))
        failure = next((result for result in results if isinstance(result, Exception)), None)
        if failure is not None:
            raise failure
        completed = self.item_completed(results, item, self.info)
        return await completed if hasattr(completed, "__await__") else completed

    async def keep(self, part: PartialFile, path: str) -> tuple[str, int]:
        """Give a part its name, or make its name one of an equal file. Return checksum and size."""
        checksum, size = part.checksum, part.size
        same = f"= {checksum} {size}" if self.settings.deduplicate else ""
        kept = self._memory.get(TABLE, same) if same else None
        if kept is None or not await asyncio.to_thread(self.store.link, path, part, kept.decode()):
            if self.settings.sync:
                await asyncio.to_thread(self.store.keep, part, path)
            else:
                self.store.keep(part, path)
            if same:
                self._memory.put(TABLE, same, path.encode())
        return checksum, size

    async def _work(self, queue: Iterator[tuple[int, Request]], results: list[Any], item: Any) -> None:
        for number, request in queue:
            try:
                results[number] = (True, await self._media(request, item))
            except (StateError, BadSpider) as error:  # nothing that another file could do better
                results[number] = error
            except LycosaError as error:
                quiet = isinstance(error, (RepeatedFailure, IgnoreRequest))
                text = str(error) if request.url in str(error) else f"{request.url}: {error}"
                log.log(logging.INFO if quiet else logging.WARNING, "%s", text)
                self._count("file_error_count")
                results[number] = (False, error)
            except Exception as error:  # noqa: BLE001  in a method of the user: the page is dead
                results[number] = error

    async def _media(self, request: Request, item: Any) -> dict[str, Any]:
        if not isinstance(request, Request):
            raise BadSpider(
                f"get_media_requests returned a {type(request).__name__} ({request!r:.60}): return Requests"
            )
        path = self.file_path(request, info=self.info, item=item)
        key = self._key(request, path)
        task = self._under_way.get(key)
        if task is None:
            known = self._known(key, request, item)
            if known is not None:
                return self._result(request, known, "uptodate")
            if key in self._failures:
                raise RepeatedFailure(self._failures[key])
            task = asyncio.create_task(self._downloaded(request, item, key))
            self._under_way[key] = task
            task.add_done_callback(lambda ended: self._ended(key, ended))
        try:
            return {**await asyncio.shield(task), "url": request.url}
        except asyncio.CancelledError:
            if task.cancelled() and not is_being_cancelled():
                raise FileException(f"{request.url}: the crawl ends") from None
            raise

    def _key(self, request: Request, path: str) -> str:
        self.store.place(path)  # before anything is asked for
        asked = fingerprint(request.method, canonicalize(request.url), request.body)
        more = f" {sorted(request.params.items())}" if request.params else ""
        return f"{type(self).__name__} {asked:016x} {path}{more}"

    def _known(self, key: str, request: Request, item: Any) -> MediaRecord | None:
        stored = self._memory.get(TABLE, key)
        if stored is None:
            return None
        known = msgspec.msgpack.decode(stored, type=MediaRecord)
        expires_s = self.settings.expires_s
        if expires_s is not None and known.at + expires_s <= self._now():
            return None
        return known if self.is_complete(known, request, item) else None

    async def _downloaded(self, request: Request, item: Any, key: str) -> dict[str, Any]:
        meta = {"download_timeout": MEDIA_TIMEOUT_S, "download_maxsize": self.settings.max_size, **request.meta}
        request = request.replace(meta=meta)
        part = self.store.part(self.settings.max_size)
        try:
            response = await self._transferred(request, part)
            path = self.file_path(request, response=response, info=self.info, item=item)
            checksum, size = await self.persist(part, path, request, response, item)
        except (FileException, FetchError, IgnoreRequest) as error:
            self._remember_failure(key, error)
            raise
        finally:
            part.discard()
        known = MediaRecord(path, checksum, size, self._now())
        self._memory.put(TABLE, key, msgspec.msgpack.encode(known))
        return self._result(request, known, "cached" if "cached" in response.flags else "downloaded")

    async def _transferred(self, request: Request, part: PartialFile) -> Response:
        try:
            response = await self.info.download(request, part)
        except Exception:
            if part.error is not None:
                raise part.error from None
            raise
        if response.status != 200:
            raise FileException(f"{request.url}: status {response.status}")
        if part.error is None and not part.size and response.body:
            part(response.body)  # from a cache, or a middleware
        if part.error is not None:
            raise part.error
        if not part.size:
            raise FileException(f"{request.url}: nothing came")
        return response

    def _result(self, request: Request, known: MediaRecord, status: str) -> dict[str, Any]:
        self._count("file_count")
        self._count(f"file_status_count/{status}")
        return {"url": request.url, "path": known.path, "checksum": known.checksum, "status": status}

    def _remember_failure(self, key: str, error: LycosaError) -> None:
        if len(self._failures) >= FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = str(error)

    def _ended(self, key: str, task: asyncio.Task[dict[str, Any]]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # those who wait for it have it

    def _count(self, name: str) -> None:
        if self.info.stats is not None:
            self.info.stats.inc_value(name)


def settings_of(kind: type[MediaPipeline], settings: Any) -> MediaSettings:
    """Return the settings of a pipeline class. Those of a class of yours may carry its name: MYFILES_FILES_STORE.

    Raises `BadSetting`.
    """

    def setting(name: str, default: Any = None) -> Any:
        own = settings.get(f"{kind.__name__.upper()}_{name}")
        value = own if own is not None else settings.get(name)
        return default if value is None else value

    prefix = kind.STORE
    store = setting(f"{prefix}_STORE")
    if not store:
        raise BadSetting(f"{kind.__name__} has no folder to write to: set {prefix}_STORE")
    thumbs = setting(f"{prefix}_THUMBS") or kind.THUMBS
    return MediaSettings(
        _folder(str(store), f"{prefix}_STORE"),
        setting(f"{prefix}_URLS_FIELD", getattr(kind, f"{prefix}_URLS_FIELD", kind.URLS_FIELD)),
        setting(f"{prefix}_RESULT_FIELD", getattr(kind, f"{prefix}_RESULT_FIELD", kind.RESULT_FIELD)),
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
    """Return the age in seconds at which a file is downloaded again: in days for the class and by Scrapy's name."""
    if kind.EXPIRES is not None:
        return float(kind.EXPIRES) * DAY_S
    if "media_expires" in settings:
        age: float | None = settings["media_expires"]
        return age
    return float(days) * DAY_S


def _folder(store: str, name: str) -> str:
    scheme, there, rest = store.partition("://")
    if not there:
        return store
    if scheme == "file" and rest.startswith("/"):
        return rest
    raise BadSetting(f"{name} {store!r}: files go to a folder; write its path")
