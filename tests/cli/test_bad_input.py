"""Bad input and bad places: one clear line, the right exit code, nothing changed, nothing lost (issue 2, "Bad input").

What a single part refuses is tested with that part; here the whole command is tested, in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import assert_exactly_once, assert_indexed_once, assert_one_line, items, lycosa, start_command
from tests.conftest import need
from tests.servers.ports import closed_port
from tests.servers.tree import Tree, grow

UNKNOWN_HOST = "a" * 64 + ".invalid"
"""Labels of more than 63 letters are not looked up."""


def refused(code: int, *arguments: object, cwd: Path) -> str:
    """Run a command line that must fail with this exit code. Return its one line."""
    done = lycosa(*arguments, cwd=cwd)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    return assert_one_line(done.stderr)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def crawl(tree: Tree, **places: object) -> list[object]:
    """Return the command line that crawls a tree, with a state, an output and an index."""
    chosen = {"state": "state", "o": "items.jsonl", "index": "index", **places}
    options = {"--state": chosen["state"], "-o": chosen["o"], "--index": chosen["index"]}
    return ["crawl", tree.url, "-q", *(part for option in options.items() for part in option)]


def finishes(tree: Tree, cwd: Path, **places: object) -> None:
    """Run the same command to its end, and check that nothing was lost."""
    done = lycosa(*crawl(tree, **places), cwd=cwd)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    output = cwd / str(places.get("o", "items.jsonl"))
    assert_exactly_once([item["url"] for item in items(output)], tree.urls())
    assert_indexed_once(cwd / str(places.get("index", "index")), tree)


# ----------------------------------------------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://", "has no host name"),
        ("http://[::1/", "is not a valid URL"),
        ("http://a b/", "is not a valid URL"),
        ("http://%zz/", "is not a valid URL"),
        ("http://a.example:99999/", "is not a valid URL"),
        ("https://:80/", "is not a valid URL"),
        ("ftp://a.example/", "is not http: write a URL that begins with http:// or https://"),
        ("file:///etc/passwd", "is not http"),
    ],
)
def test_a_malformed_url_is_refused_before_any_file_is_created(tmp_path, url, says):
    line = refused(2, "crawl", "http://fine.example/", url, "-o", "items.jsonl", cwd=tmp_path)
    assert repr(url) in line
    assert says in line
    assert {path.name for path in tmp_path.iterdir()} == set()


@pytest.mark.parametrize("robots", ["--robots", "--no-robots"])
def test_urls_of_an_unreachable_host_are_dead_with_the_reason(tmp_path, robots):
    closed = f"http://127.0.0.1:{closed_port()}/"
    unknown = f"http://{UNKNOWN_HOST}/"
    done = lycosa("crawl", closed, unknown, "--retries", 0, robots, cwd=tmp_path)
    assert done.returncode == 1
    lines = [line.strip() for line in done.stderr.splitlines()]
    for url, why in ((closed, "connection refused"), (unknown, "host not found")):
        before = f"cannot fetch {url}robots.txt: " if robots == "--robots" else ""
        assert f"{url}  {before}{why}" in lines
    assert "Traceback" not in done.stderr


# --------------------------------------------------------------------------------------------------------------- states


def test_a_state_in_an_impossible_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below", "/proc/lycosa"):
        line = refused(3, "crawl", "http://127.0.0.1:9/", "--state", place, cwd=tmp_path)
        assert line.startswith(place)
    assert everything(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"thesis.txt": "mine"}, "contains files but no Lycosa state"),
        ({"crawl.json": "{}"}, "is not the description of a Lycosa state"),
        ({"crawl.json": "[1, 2]"}, "is not the description of a Lycosa state"),
        ({"crawl.json": "torn {"}, "is not the description of a Lycosa state"),
        ({"crawl.json": '{"format": "lycosa-crawl", "version": 3, "seeds": 7}'}, "is damaged"),
        ({"crawl.json": '{"format": "lycosa-crawl", "version": 1}'}, "which is too old"),
        ({"crawl.json": '{"format": "lycosa-crawl", "version": 99}'}, "has version 99, this Lycosa reads up to"),
    ],
)
def test_a_foreign_or_newer_state_is_refused_and_unchanged(tmp_path, files, says):
    state = tmp_path / "state"
    state.mkdir()
    for name, text in files.items():
        (state / name).write_text(text)
    before = everything(state)
    for option in ("-o", "-O"):
        line = refused(3, "crawl", "http://127.0.0.1:9/", "--state", "state", option, "items.jsonl", cwd=tmp_path)
        assert says in line
    assert {name: text for name, text in everything(state).items() if name != "lock"} == before
    assert not (tmp_path / "items.jsonl").exists()


def test_a_damaged_database_is_reported(tmp_path):
    with grow(20) as tree:
        assert lycosa(*crawl(tree), cwd=tmp_path).returncode == 0
        database = tmp_path / "state/frontier/data.mdb"
        written, damage = (tmp_path / "items.jsonl").read_bytes(), b"no database at all" * 1000
        database.write_bytes(damage)
        assert "state/frontier" in refused(3, *crawl(tree), cwd=tmp_path)
        assert database.read_bytes() == damage
        assert (tmp_path / "items.jsonl").read_bytes() == written


def test_files_in_use_by_another_process_are_refused_and_both_crawls_finish_later(tmp_path):
    with grow(60, delay_s=0.5) as tree, start_command(*crawl(tree), cwd=tmp_path) as first:
        assert first.until(lambda: len(tree.hits()) > 3), first.stderr
        first.process.send_signal(signal.SIGSTOP)  # asleep, but alive
        owner = str(first.process.pid)
        line = refused(3, *crawl(tree, o="other.jsonl", index="other"), cwd=tmp_path)
        assert line == f"state: the state is open in process {owner}; stop it or give another --state"
        line = refused(3, *crawl(tree, state="state2", index="other"), cwd=tmp_path)
        assert line == "items.jsonl: another process writes to it; give every crawl its own file"
        line = refused(3, *crawl(tree, state="state2", o="other.jsonl"), cwd=tmp_path)
        assert line == f"the index index is being written by process {owner}: wait until it ends"
        first.process.send_signal(signal.SIGCONT)
        assert first.end() == 0
        finishes(tree, tmp_path)
        finishes(tree, tmp_path, state="state2", o="other.jsonl", index="other")


# -------------------------------------------------------------------------------------------------- outputs and indexes


def test_an_impossible_output_loses_nothing(tmp_path):
    with grow(20) as tree:
        (tmp_path / "taken.jsonl").mkdir()
        for place in ("no/items.jsonl", "taken.jsonl", "/proc/items.jsonl"):
            assert refused(3, *crawl(tree, o=place), cwd=tmp_path).startswith(place)
        assert tree.hits() == []
        finishes(tree, tmp_path)


def test_an_output_changed_between_two_runs_is_refused_until_it_is_restored(tmp_path):
    with grow(60) as tree:
        output = tmp_path / "items.jsonl"
        assert lycosa(*crawl(tree), "--max-pages", 30, cwd=tmp_path).returncode == 0
        whole, hits = output.read_bytes(), len(tree.hits())
        changes = {
            "was cut, edited or replaced (holds": lambda: output.write_bytes(whole[: len(whole) // 2]),
            "was cut, edited or replaced (has other content": lambda: output.write_bytes(whole.replace(b"\n", b" ")),
            "no longer exists, but the crawl wrote items to it": output.unlink,
        }
        for says, change in changes.items():
            change()
            line = refused(3, *crawl(tree), cwd=tmp_path)
            assert says in line
            assert "restore the file, or start afresh with -O" in line
            output.write_bytes(whole)
        assert len(tree.hits()) == hits
        finishes(tree, tmp_path)


def test_a_changed_output_can_be_replaced_by_a_fresh_start(tmp_path):
    with grow(30) as tree:
        assert lycosa(*crawl(tree), cwd=tmp_path).returncode == 0
        (tmp_path / "items.jsonl").write_bytes(b"cut")
        assert lycosa(*afresh(crawl(tree)), cwd=tmp_path).returncode == 0
        finishes(tree, tmp_path)


def test_a_fresh_start_that_fails_deletes_nothing(tmp_path):
    with grow(30) as tree:
        assert lycosa(*crawl(tree), cwd=tmp_path).returncode == 0
        hits, written = len(tree.hits()), (tmp_path / "items.jsonl").read_bytes()
        (tmp_path / "foreign").mkdir()
        (tmp_path / "foreign/thesis.txt").write_text("mine")
        for places in ({"index": "foreign"}, {"o": "no/items.jsonl"}):
            refused(3, *afresh(crawl(tree, **places)), cwd=tmp_path)
        assert (tmp_path / "items.jsonl").read_bytes() == written
        finishes(tree, tmp_path)
        assert len(tree.hits()) == hits


def afresh(command: list[object]) -> list[object]:
    return ["-O" if part == "-o" else part for part in command]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"thesis.txt": "mine"}, "is not a search index"),
        ({"lycosa-index.json": '{"format": "lycosa-index", "version": 99}'}, "has version 99"),
        ({"lycosa-index.json": '{"format": "other", "version": 1}'}, "is a 'other', not a search index"),
        ({"lycosa-index.json": "torn {"}, "not an index of Lycosa"),
    ],
)
def test_a_foreign_or_newer_index_is_refused_and_unchanged(tmp_path, files, says):
    (tmp_path / "foreign").mkdir()
    for name, text in files.items():
        (tmp_path / "foreign" / name).write_text(text)
    before = everything(tmp_path / "foreign")
    with grow(10) as tree:
        for option in ("-o", "-O"):
            command = crawl(tree, index="foreign")
            assert says in refused(3, *(command if option == "-o" else afresh(command)), cwd=tmp_path)
        assert tree.hits() == []
        assert everything(tmp_path / "foreign") == before
        finishes(tree, tmp_path)


# ------------------------------------------------------------------------------------------------------- spiders, files


def kept(folder):
    state = {
        name: text for name, text in everything(folder / "state").items() if not name.endswith(("lock", "lock.mdb"))
    }
    return state, (folder / "items.jsonl").read_bytes()


def test_a_missing_class_is_reported_before_a_fresh_start_deletes_the_crawl(tmp_path):
    with grow(10) as tree:
        finishes(tree, tmp_path)
        before = kept(tmp_path)
        for setting in ("pipelines", "downloader_middlewares", "spider_middlewares", "extensions"):
            command = [*afresh(crawl(tree)), "-s", f"{setting}=shop.parts:Part=300"]
            assert f"{setting}: there is no module 'shop'" in refused(2, *command, cwd=tmp_path)
        assert kept(tmp_path) == before


SPIDER = """
import lycosa
class Broken(lycosa.Spider):
    name = "broken"
    start_urls = ["http://127.0.0.1:9/"]
"""


@pytest.mark.parametrize(
    ("code", "more", "says"),
    [
        (2, "    name = ''", "Broken has no name"),
        (2, "    start_urls = ['example.com']", "'example.com'"),
        (2, "    start_urls = ['ftp://a.example/']", "ftp://a.example/"),
        (2, "    pipelines = [int]", "the pipeline int has no method process_item"),
        (2, "    custom_settings = {'DEPHT_LIMIT': 1}", "did you mean DEPTH_LIMIT?"),
        (2, "    async def start(self):\n        yield 'http://a.example/'", "start"),
        (2, "    async def start(self):\n        yield lycosa.Request('http://a.example/', callback='nope')", "nope"),
        (2, "    async def start(self):\n        raise ValueError('oh no')\n        yield", "oh no"),
        (2, "    def start(self):\n        return 7", "start"),
        (2, "    def __init__(self, **arguments):\n        raise ValueError('oh no')", "oh no"),
    ],
)
def test_an_error_in_a_spider_is_one_line(tmp_path, code, more, says):
    (tmp_path / "spider.py").write_text(SPIDER + more + "\n")
    line = refused(code, "runspider", "spider.py", "-q", "--retries", 0, cwd=tmp_path)
    assert says in line


def test_an_invalid_settings_file_is_one_line_with_its_place(tmp_path):
    for content, says in ((b"delay = = 1", "line 1"), (b"\xff\xfe", "UTF-8"), (b"delay = 'soon'", "delay: 'soon'")):
        (tmp_path / "lycosa.toml").write_bytes(content)
        line = refused(2, "crawl", "http://127.0.0.1:9/", cwd=tmp_path)
        assert line.startswith("lycosa.toml")
        assert says in line


# ----------------------------------------------------------------------------------------------------------- full disks


@dataclass(slots=True)
class Disk:
    """A mounted file system in memory."""

    path: Path

    def resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,rw,size={size}", self.path], check=True)

    def protect(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "lycosa-test", path]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True, check=False).returncode == 0
    need("the right to mount a tmpfs (root)", bool(mounted))
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_a_read_only_disk_is_reported(tmp_path, disk):
    disk.protect()
    with grow(10) as tree:
        for place in ("state", "o", "index"):
            path = f"disk/{place}.jsonl"
            line = refused(3, *crawl(tree, **{place: path}), cwd=tmp_path)
            assert path in line
            assert "read-only file system" in line.lower()
        disk.resize("10m")
        finishes(tree, tmp_path, state="disk/state", o="disk/o.jsonl", index="disk/index")


@pytest.mark.parametrize(
    ("place", "path", "size", "pages"),
    [
        ("state", "disk/state", "100k", 600),
        ("o", "disk/items.jsonl", "300k", 600),
        ("index", "disk/index", "500k", 1500),
    ],
)
def test_a_full_disk_ends_the_crawl_and_with_room_the_same_command_finishes(tmp_path, disk, place, path, size, pages):
    disk.resize(size)
    with grow(pages, text_bytes=1000) as tree:
        for _ in range(2):
            done = lycosa(*crawl(tree, **{place: path}), cwd=tmp_path)
            assert (done.returncode, done.stdout) == (3, ""), done.stderr
            *before, last = done.stderr.splitlines(keepends=True)
            line = assert_one_line(last)
            assert path in line
            assert "no space left" in line
            # If the index fails before the crawl is over, the crawl says at once that it continues.
            assert [each.endswith("the crawl continues without the index\n") for each in before] in (
                [],
                [place == "index"],
            )
        assert len(tree.hits()) > 100
        disk.resize("64m")
        finishes(tree, tmp_path, **{place: path})


def test_a_disk_that_is_full_from_the_start_is_reported(tmp_path, disk):
    """At whatever step there is no more space, the command ends with an error and is never killed by a signal."""
    places = {"state": "disk/state", "o": "disk/items.jsonl", "index": "disk/index"}
    with grow(40) as tree:
        for pages in range(1, 16):
            disk.resize(str(pages * os.sysconf("SC_PAGESIZE")))
            assert "no space left" in refused(3, *crawl(tree, **places), cwd=tmp_path)
        disk.resize("64m")
        finishes(tree, tmp_path, **places)


def test_the_description_of_a_crawl_stays_complete_on_a_disk_that_others_fill(tmp_path, disk):
    disk.resize("1m")
    with grow(30) as tree:
        assert lycosa(*crawl(tree, state="disk/state"), "--max-pages", 10, cwd=tmp_path).returncode == 0
        filler = disk.path / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        assert "no space left" in refused(3, *crawl(tree, state="disk/state"), cwd=tmp_path)
        assert json.loads((disk.path / "state/crawl.json").read_bytes())["seeds"] == [tree.url]
        filler.unlink()
        finishes(tree, tmp_path, state="disk/state")
