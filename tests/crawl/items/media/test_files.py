"""FilesPipeline (C10, C6): each file is downloaded once, is complete or absent, and never outside the store."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lycosa.config import Settings
from lycosa.config.view import SettingsView
from lycosa.core.errors import (
    BadItem,
    BadSetting,
    BadSpider,
    BodyTooLarge,
    ConnectionLost,
    DropItem,
    StorageError,
    StorageFull,
)
from lycosa.crawl.items.items import Field, Item
from lycosa.crawl.items.media.files import FilesPipeline
from lycosa.crawl.items.media.images import ImagesPipeline
from lycosa.crawl.items.media.pipeline import MEDIA_PER_ITEM_MAX, MEDIA_TIMEOUT_S, settings_of
from lycosa.crawl.items.media.store import PARTIAL_FOLDER, FileException, FolderStore
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.http.core.request import Request
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from tests.crawl.downloads import opened
from tests.servers.misbehaving import running, serving
from tests.servers.sins import SINS, Exchange
from tests.storage.memory_keystore import MemoryKeyStore

DATA = bytes(range(256)) * 100


def data_of(name: str) -> bytes:
    return name.encode() + DATA


async def file(x: Exchange) -> None:
    """A file whose content depends on its name."""
    await x.answer(200, data_of(x.rest), kind="application/pdf")


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINS, "/file", file)


def sha1(url: str) -> str:
    return hashlib.sha1(url.encode()).hexdigest()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def tree(folder: Path) -> dict[str, bytes]:
    """Return the complete files of a store by name; assert that no partial files are left."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not [name for name in files if name.startswith(PARTIAL_FOLDER)]
    return files


class ByName(FilesPipeline):
    """Takes the name of a file from the item, as a hostile page could set it."""

    def file_path(self, request, response=None, info=None, *, item=None):
        return item["name"]


def test_files_are_downloaded_and_listed_in_the_item(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving() as server, opened(FilesPipeline, tmp_path) as pipeline:
            urls = [server.url("/file/a.pdf"), server.url("/file/b.pdf?v=1")]
            item = await pipeline.process_item({"file_urls": urls})
            assert item["files"] == [
                {
                    "url": url,
                    "path": f"full/{sha1(url)}.pdf",
                    "checksum": md5(data_of(name)),
                    "status": "downloaded",
                }
                for url, name in zip(urls, ("a.pdf", "b.pdf"), strict=True)
            ]
            assert pipeline.info.stats.values == {"file_count": 2, "file_status_count/downloaded": 2}
        assert tree(tmp_path) == {f"full/{sha1(url)}.pdf": data_of(url[-5:]) for url in urls[:1]} | {
            f"full/{sha1(urls[1])}.pdf": data_of("b.pdf")
        }

    asyncio.run(run())


class Own(Item):
    file_urls = Field()
    files = Field()


@dataclass
class Data:
    file_urls: list[str]
    files: list[Any] = field(default_factory=list)


class Struct(msgspec.Struct):
    file_urls: list[str]
    files: list[Any] = []


class WithoutResults(msgspec.Struct):
    file_urls: list[str]


@pytest.mark.parametrize("kind", [Own, Data, Struct])
def test_every_kind_of_item_gets_results(kind: Any, tmp_path: Path) -> None:
    async def run() -> Any:
        async with serving() as server, opened(FilesPipeline, tmp_path) as pipeline:
            return await pipeline.process_item(kind(file_urls=[server.url("/file/a")]))

    item = asyncio.run(run())
    assert len(item["files"] if kind is Own else item.files) == 1


def test_a_missing_result_field_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with serving() as server, opened(FilesPipeline, tmp_path) as pipeline:
            for _ in range(3):
                await pipeline.process_item(WithoutResults([server.url("/file/a")]))

    asyncio.run(run())
    assert caplog.text.count("WithoutResults has no field 'files'") == 1


def test_without_urls_nothing_is_downloaded(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(FilesPipeline, tmp_path) as pipeline:
            for item in ({}, {"file_urls": []}, {"file_urls": None}):
                assert (await pipeline.process_item(dict(item)))["files"] == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        ("http://a.example/", r"file_urls: expected a list of URLs, got 'http://a.example/' \(dict\)"),
        ([None], r"file_urls\[0\]: expected a URL, got None \(dict\)"),
        (["http://a.example/"] * (MEDIA_PER_ITEM_MAX + 1), f"more than {MEDIA_PER_ITEM_MAX} media files for one item"),
    ],
)
def test_a_field_that_is_no_list_of_urls_is_an_error(urls: Any, message: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(FilesPipeline, tmp_path) as pipeline:
            with pytest.raises(BadItem, match=message):
                await pipeline.process_item({"file_urls": urls})

    asyncio.run(run())


@pytest.mark.parametrize(
    ("url", "extension"),
    [
        ("https://a.example/mydeco.pdf", ".pdf"),
        ("https://a.example/MYDECO.PDF", ".pdf"),
        ("https://a.example/get.php?img=status.jpg", ".jpg"),
        ("https://a.example/get.php?img=status.jpg.bohaha", ""),
        ("https://a.example/file.zip?param=value", ".zip"),
        ("https://a.example/swf/file.swf?a=/x.y", ".swf"),
        ("https://a.example/noext", ""),
        ("https://a.example/x." + "y" * 300, ""),
        ("https://a.example/x.p\x00df", ""),
    ],
)
def test_names_have_the_extension_of_the_url_if_it_is_known(url: str, extension: str, tmp_path: Path) -> None:
    path = FilesPipeline.file_path(None, Request(url))  # type: ignore[arg-type]
    assert path.startswith("full/")
    assert path[5 + 40 :] == extension


# ------------------------------------------------------------------------------------------------------ deduplication


def test_a_url_of_several_items_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        gate, requested = asyncio.Event(), asyncio.Event()

        async def slow(x: Exchange) -> None:
            requested.set()
            await gate.wait()
            await x.answer(200, b"slow")

        monkeypatch.setitem(SINS, "/gated", slow)
        async with serving() as server, opened(FilesPipeline, tmp_path) as pipeline:
            url = server.url("/gated")
            items = [{"file_urls": [url, url + "#x", url]} for _ in range(5)]
            tasks = [asyncio.create_task(pipeline.process_item(item)) for item in items]
            await requested.wait()
            tasks[0].cancel()  # this task started the download, for which the others still wait
            gate.set()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(ended[0], asyncio.CancelledError)
            assert [item["files"][1]["url"] for item in items[1:]] == [url + "#x"] * 4
            assert server.paths() == ["/gated"]
            await pipeline.process_item(items[0])
            assert {each["status"] for each in items[0]["files"]} == {"uptodate"}
            assert server.paths() == ["/gated"]

    asyncio.run(run())


def test_a_file_is_downloaded_again_when_it_expires_or_is_missing(tmp_path: Path) -> None:
    async def run() -> None:
        clock = [1_000_000.0]
        memory = SqliteKeyStore(tmp_path / "records.sqlite")
        store = tmp_path / "store"
        statuses = []

        async def visit(expires_s: float | None = 100.0) -> None:
            """Process the item in a new run, as after a restart."""
            async with opened(FilesPipeline, store, memory, now=lambda: clock[0], expires_s=expires_s) as pipeline:
                item = await pipeline.process_item({"file_urls": [url]})
                statuses.append(item["files"][0]["status"])
                assert item["files"][0]["checksum"] == md5(data_of("a"))
            await memory.flush()

        async with serving() as server:
            url = server.url("/file/a")
            await visit()
            clock[0] += 99
            await visit()
            (kept,) = tree(store)
            (store / kept).write_bytes(b"cut")
            await visit()
            (store / kept).unlink()
            await visit()
            clock[0] += 100
            await visit()
            clock[0] += 1e9
            await visit(None)
            await visit(0)
            assert server.paths() == ["/file/a"] * 5
        await memory.close()
        assert statuses == [
            "downloaded",
            "uptodate",
            "downloaded",
            "downloaded",
            "downloaded",
            "uptodate",
            "downloaded",
        ]
        assert tree(store) == {kept: data_of("a")}

    asyncio.run(run())


def test_with_deduplicate_equal_files_are_hard_links(tmp_path: Path) -> None:
    async def both(folder: Path, deduplicate: bool) -> int:
        memory = MemoryKeyStore()
        async with serving() as server, opened(FilesPipeline, folder, memory, deduplicate=deduplicate) as pipeline:
            urls = [server.url("/file/a?1"), server.url("/file/a?2"), server.url("/file/b")]
            item = await pipeline.process_item({"file_urls": urls[:2]})
            first, second = (folder / each["path"] for each in item["files"])
            assert first != second
            assert first.read_bytes() == second.read_bytes() == data_of("a")
            nodes = len({first.stat().st_ino, second.stat().st_ino})
            first.write_bytes(data_of("c"))  # the size is the same, but the recorded checksum is wrong now
            again = await pipeline.process_item({"file_urls": [server.url("/file/a?3")]})
            assert (folder / again["files"][0]["path"]).read_bytes() == data_of("a")
        tree(folder)
        return nodes

    assert asyncio.run(both(tmp_path / "twice", deduplicate=False)) == 2
    assert asyncio.run(both(tmp_path / "once", deduplicate=True)) == 1


# ------------------------------------------------------------------------------------------------------------ failures


def test_failed_downloads_are_reported_and_the_item_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    class Records(FilesPipeline):
        def item_completed(self, results, item, info):
            seen.extend(results)
            return super().item_completed(results, item, info)

    async def run() -> None:
        async with serving() as server, opened(Records, tmp_path) as pipeline:
            urls = [server.url(path) for path in ("/404", "/drop", "/empty", "/file/a")] + [
                "/relative",
                "ftp://a/b",
                "",
            ]
            requested = set()
            for _ in range(2):
                item = await pipeline.process_item({"file_urls": urls})
                assert [each["url"] for each in item["files"]] == [urls[3]]
                requested.add(tuple(sorted(server.paths())))
            assert len(requested) == 1  # failures are not requested again
            assert pipeline.info.stats.values["file_error_count"] == 12
            assert caplog.text.count(f"{urls[0]}: status 404") == 1  # the second failure is only logged as INFO

    asyncio.run(run())
    assert [good for good, _ in seen[:7]] == [False, False, False, True, False, False, False]
    assert all(isinstance(error, Exception) for good, error in seen if not good)
    assert len(tree(tmp_path)) == 1


def test_redirects_are_followed_unless_the_request_forbids_it(tmp_path: Path, monkeypatch: Any) -> None:
    async def moved(x: Exchange) -> None:
        await x.answer(302, location="/file/a")

    class Stays(FilesPipeline):
        def get_media_requests(self, item, info):
            return [Request(url, meta={"dont_redirect": True}) for url in item["file_urls"]]

    monkeypatch.setitem(SINS, "/moved", moved)

    async def run(kind: Any) -> list[Any]:
        async with serving() as server, opened(kind, tmp_path) as pipeline:
            item = await pipeline.process_item({"file_urls": [server.url("/moved")]})
            assert all(each["path"] == f"full/{sha1(server.url('/moved'))}" for each in item["files"])
            return item["files"]

    assert len(asyncio.run(run(FilesPipeline))) == 1
    assert asyncio.run(run(Stays)) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_that_is_too_large_leaves_nothing(stream: bool, tmp_path: Path) -> None:
    class Records(FilesPipeline):
        def item_completed(self, results, item, info):
            assert [type(result) for _, result in results] == [BodyTooLarge]
            return item

    async def run() -> None:
        limit = len(data_of("a")) - 1
        async with serving() as server, opened(Records, tmp_path, max_size=limit, stream=stream) as pipeline:
            await pipeline.process_item({"file_urls": [server.url("/file/a")]})

    asyncio.run(run())
    assert tree(tmp_path) == {}


def test_a_retried_download_writes_the_file_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(x: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(DATA)}\r\n\r\n".encode()
        await x.send(head + (DATA if x.tries() == 3 else b"wrong" * 999))

    monkeypatch.setitem(SINS, "/breaks", breaks)

    async def run() -> None:
        async with serving() as server, opened(FilesPipeline, tmp_path, stream=True) as pipeline:
            item = await pipeline.process_item({"file_urls": [server.url("/breaks")]})
            assert item["files"][0]["checksum"] == md5(DATA)
            assert server.paths() == ["/breaks"] * 3

    asyncio.run(run())
    assert list(tree(tmp_path).values()) == [DATA]


def test_an_item_without_its_files_may_be_dropped(tmp_path: Path) -> None:
    class Needs(FilesPipeline):
        async def item_completed(self, results, item, info):
            if not all(good for good, _ in results):
                raise DropItem("no file")
            return item

    async def run() -> Any:
        async with serving() as server, opened(Needs, tmp_path) as pipeline:
            items = [{"file_urls": [server.url("/404")]}, {"file_urls": [server.url("/file/a")]}]
            return await Pipelines([pipeline], None).process_page(items)

    passed = asyncio.run(run())
    assert (len(passed.items), passed.dropped) == (1, 1)


def test_an_error_of_the_users_code_fails_the_page(tmp_path: Path) -> None:
    class Wrong(FilesPipeline):
        def file_path(self, request, response=None, info=None, *, item=None):
            return item["nothing"]

    class Text(FilesPipeline):
        def get_media_requests(self, item, info):
            return item["file_urls"]

    async def run(kind: Any) -> None:
        async with opened(kind, tmp_path) as pipeline:
            await pipeline.process_item({"file_urls": ["http://127.0.0.1/x", "http://127.0.0.1/y"]})

    with pytest.raises(KeyError, match="nothing"):
        asyncio.run(run(Wrong))
    with pytest.raises(BadSpider, match=r"get_media_requests returned a str \('http://127.0.0.1/x'\): return Requests"):
        asyncio.run(run(Text))


def test_concurrent_downloads_of_an_item_are_bounded(tmp_path: Path) -> None:
    async def run() -> int:
        async with serving() as server, opened(FilesPipeline, tmp_path, concurrency=3) as pipeline:
            item = await pipeline.process_item({"file_urls": [server.url(f"/file/{n}") for n in range(20)]})
            assert len(item["files"]) == 20
            assert [each["url"] for each in item["files"]] == item["file_urls"]
            return pipeline.info.download.maximum

    assert asyncio.run(run()) == 3


def test_a_download_has_its_own_limits_unless_the_request_sets_them(tmp_path: Path) -> None:
    class Own(FilesPipeline):
        def get_media_requests(self, item, info):
            return [*super().get_media_requests(item, info), Request("http://127.0.0.1/y", timeout=5)]

    async def run() -> list[Any]:
        requested = []

        async def download(request: Request, into: Any) -> Any:
            requested.append((request.meta["download_timeout"], request.meta["download_maxsize"]))
            raise ConnectionLost

        async with opened(Own, tmp_path, max_size=7) as pipeline:
            pipeline.info = pipeline.info._replace(download=download)
            await pipeline.process_item({"file_urls": ["http://127.0.0.1/x"]})
        return requested

    assert asyncio.run(run()) == [(MEDIA_TIMEOUT_S, 7), (5, 7)]


def test_the_path_may_depend_on_the_response(tmp_path: Path) -> None:
    class ByKind(FilesPipeline):
        def file_path(self, request, response=None, info=None, *, item=None):
            return "before" if response is None else response.headers["content-type"] + "/x"

    async def run() -> None:
        async with serving() as server, opened(ByKind, tmp_path) as pipeline:
            for status in ("downloaded", "uptodate"):
                item = await pipeline.process_item({"file_urls": [server.url("/file/a")]})
                assert item["files"][0]["path"] == "application/pdf/x"
                assert item["files"][0]["status"] == status

    asyncio.run(run())
    assert list(tree(tmp_path)) == ["application/pdf/x"]


# ------------------------------------------------------------------------------------------------------- hostile names


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/x",
        "",
        ".",
        "..",
        "a//b",
        "a/./b",
        "a/",
        "x\0y",
        "x\ny",
        "\ud800",
        "n" * 256,
        "ä" * 128,
        "/".join(["abc"] * 300),
        ".parts/x",
        "out/x",
        "out/deep/er",
        "loop/x",
        "plain/x",
    ],
)
def test_names_that_lead_out_of_the_store_are_refused(name: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "outside").mkdir()
    (store / "out").symlink_to(tmp_path / "outside")
    (store / "loop").symlink_to(store / "loop")
    (store / "plain").write_bytes(b"a file")
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    async def run() -> None:
        async with serving() as server, opened(ByName, store) as pipeline:
            item = await pipeline.process_item({"name": name, "file_urls": [server.url("/file/a")]})
            assert item["files"] == []
            assert len(pipeline._failures) <= 1

    asyncio.run(run())
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_links_within_the_store_and_unusual_names_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").symlink_to("/etc/hostname")

    async def run() -> None:
        async with serving() as server, opened(ByName, tmp_path) as pipeline:
            for name in ("link/a", "file", "ä b/..c/.d", "-rf", "n" * 255, "CON", "a\\b"):
                item = await pipeline.process_item({"name": name, "file_urls": [server.url("/file/a")]})
                assert item["files"][0]["path"] == name

    asyncio.run(run())
    assert (tmp_path / "real/a").read_bytes() == data_of("a")
    assert not (tmp_path / "file").is_symlink()  # the link was replaced; its target was not written


# ------------------------------------------------------------------------------------------------ the store and kills


def test_partial_files_of_killed_runs_are_removed_but_those_of_live_runs_are_kept(tmp_path: Path) -> None:
    live = FolderStore(tmp_path)
    live.open()
    partial = live.new_file(100)
    partial(b"half")
    code = f"""
        import os, signal
        from lycosa.crawl.items.media.store import FolderStore
        store = FolderStore({str(tmp_path)!r})
        store.open()
        store.new_file(100)(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (tmp_path / PARTIAL_FOLDER / "no-lock").mkdir()
    (tmp_path / PARTIAL_FOLDER / "a-file").write_bytes(b"")
    assert len(list((tmp_path / PARTIAL_FOLDER).iterdir())) == 4
    other = FolderStore(tmp_path)
    other.open()
    names = {path.name for path in (tmp_path / PARTIAL_FOLDER).iterdir()}
    assert names >= {partial.path.parent.name}
    assert "no-lock" not in names
    assert len([name for name in names if name != "a-file"]) == 2
    live.save(partial, "whole")
    other.close()
    live.close()
    assert (tmp_path / "whole").read_bytes() == b"half"
    live.close()


@pytest.mark.parametrize("sync", [False, True])
def test_a_saved_file_replaces_the_previous_one(sync: bool, tmp_path: Path) -> None:
    store = FolderStore(tmp_path, sync=sync)
    store.open()
    for content in (b"one", b"other"):
        partial = store.new_file(100)
        partial(b"begun")
        partial.restart()
        partial(content)
        store.save(partial, "a/b/c")
        partial.discard()
        assert store.size("a/b/c") == len(content)
        assert (partial.checksum, partial.size) == (md5(content), len(content))
    store.close()
    assert tree(tmp_path) == {"a/b/c": b"other"}


def test_a_store_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="files cannot be stored in"):
        FolderStore(tmp_path / "file").open()
    with pytest.raises(StorageError, match="is not open"):
        FolderStore(tmp_path / "new").new_file(1)


def test_a_store_is_opened_while_another_run_closes_it(tmp_path, monkeypatch):
    """The other run removes the folder for partial files just after this run has found the folder."""
    mkdir, refused = os.mkdir, []

    def fail_once(path: str | Path, *arguments: Any) -> None:
        if Path(path).name == PARTIAL_FOLDER and not refused:
            refused.append(path)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        mkdir(path, *arguments)

    monkeypatch.setattr(os, "mkdir", fail_once)
    store = FolderStore(tmp_path)
    store.open()
    store.new_file(1).discard()
    store.close()
    assert len(refused) == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_a_full_disk_stops_the_crawl(hidden: bool, tmp_path: Path) -> None:
    async def run() -> None:
        async with serving() as server, opened(FilesPipeline, tmp_path) as pipeline:
            download = pipeline.info.download

            async def hiding(request: Request, into: Any) -> Any:
                """Report a full disk as libcurl does: as a failed transfer."""
                try:
                    return await download(request, into)
                except StorageFull as error:
                    raise ConnectionLost("failed writing body") from error

            if hidden:
                pipeline.info = pipeline.info._replace(download=hiding)
            with pytest.raises(StorageFull, match="no space left on the device"):
                await pipeline.process_item({"file_urls": [server.url("/file/a"), server.url("/file/b")]})

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        asyncio.run(run())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert tree(tmp_path) == {}


KILLED = """
    import asyncio, sys
    from pathlib import Path
    from lycosa.crawl.items.media.files import FilesPipeline
    from lycosa.storage.keystore.sqlite import SqliteKeyStore
    from tests.crawl.downloads import opened

    async def run(folder, address):
        memory = SqliteKeyStore(folder / "records.sqlite")
        async with opened(FilesPipeline, folder / "store", memory, stream=True) as pipeline:
            for page in range(40):
                urls = [f"{address}/file/{page}-{n}" for n in range(3)]
                item = await pipeline.process_item({"file_urls": urls})
                assert len(item["files"]) == 3
                await memory.flush()
                print(page, flush=True)

    asyncio.run(run(Path(sys.argv[1]), sys.argv[2]))
"""


def test_after_kills_files_are_complete_and_recorded_files_are_not_requested_again(tmp_path: Path) -> None:
    with running() as server:
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), server.url("")]
        kills = 0
        for pages in (3, 9, 17, 30, 99):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout
                for line in process.stdout:
                    if int(line) >= pages:
                        process.kill()
                        kills += 1
                        break
            for name, content in tree_of_store(tmp_path / "store").items():
                assert content.endswith(DATA), name
        assert kills == 4
        requested = server.paths()
    assert len(set(requested)) == 120
    assert len(requested) <= 120 + 3 * kills  # only files of interrupted pages are requested again
    assert len(tree(tmp_path / "store")) == 120


def tree_of_store(store: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in store.glob("full/*")}


# --------------------------------------------------------------------------------------------------------- settings


class MyFiles(FilesPipeline):
    EXPIRES = 7
    FILES_URLS_FIELD = "docs"


def test_settings_may_have_scrapys_names_our_names_or_the_prefix_of_a_pipeline_class(tmp_path: Path) -> None:
    plain = settings_of(FilesPipeline, {"FILES_STORE": "a", "FILES_EXPIRES": 2})
    assert (plain.store, plain.expires_s, plain.urls_field, plain.result_field) == ("a", 172_800, "file_urls", "files")
    ours = {"FILES_STORE": "file:///a/b", "media_expires": None, "media_max_size": 5, "media_concurrency": 2}
    read = settings_of(FilesPipeline, ours)
    assert (read.store, read.expires_s, read.max_size, read.concurrency) == ("/a/b", None, 5, 2)
    own = settings_of(MyFiles, {"FILES_STORE": "a", "MYFILES_FILES_STORE": "b", "media_expires": 9.0})
    assert (own.store, own.expires_s, own.urls_field) == ("b", 7 * 86_400, "docs")
    for wrong, message in (
        ({}, "MyFiles has no output folder: set FILES_STORE"),
        (
            {"FILES_STORE": "s3://bucket/x"},
            "files can only be stored in a folder",
        ),
    ):
        with pytest.raises(BadSetting, match=message):
            settings_of(MyFiles, wrong)


def test_settings_are_read_from_a_crawler(tmp_path: Path) -> None:
    view = SettingsView(Settings(files_store=str(tmp_path), media_expires=60.0, user={"MYFILES_FILES_STORE": "b"}))
    read = settings_of(FilesPipeline, view)
    assert (read.store, read.expires_s, read.urls_field) == (str(tmp_path), 60.0, "file_urls")
    never = SettingsView(Settings(files_store="a", media_expires=None))
    assert settings_of(FilesPipeline, never).expires_s is never["FILES_EXPIRES"] is None
    assert settings_of(MyFiles, view).store == "b"
    own = SettingsView(Settings(files_store="a", media_expires=60.0, user={"MYFILES_FILES_EXPIRES": 2}))
    assert settings_of(MyFiles, own).expires_s == 2 * 86_400
    images = SettingsView(Settings(images_store="i", images_thumbs={"t": (3, 4)}, images_min_width=5))
    assert settings_of(ImagesPipeline, images).thumbs == {"t": (3, 4)}
    assert settings_of(ImagesPipeline, images).min_width == 5
    with pytest.raises(BadSetting, match="FilesPipeline has no output folder"):
        settings_of(FilesPipeline, SettingsView(Settings()))


def test_a_pipeline_is_created_from_a_crawler(tmp_path: Path) -> None:
    class Crawler:
        settings = {"FILES_STORE": str(tmp_path)}
        spider = stats = None
        records = MemoryKeyStore()

        async def download(self, request, into):
            raise FileException("not today")

    async def run() -> Any:
        pipelines = Pipelines({FilesPipeline: 1}, None, Crawler())
        await pipelines.open()
        try:
            return await pipelines.process_page([{"file_urls": ["http://127.0.0.1/x"]}])
        finally:
            await pipelines.close()

    assert asyncio.run(run()).items[0]["files"] == []
    assert list(tmp_path.iterdir()) == []
