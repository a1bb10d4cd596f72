"""The folder of the embedded index: kill -9, locks, foreign and newer folders, other processes (C7, F1)."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lycosa.app.search import erase_index, open_index
from lycosa.core.errors import IndexFailure
from lycosa.search import index_folder
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.results import Document
from lycosa.search.core.schema import TORRENTS, IndexEntry
from lycosa.search.index_folder import Marker, failures
from lycosa.search.tantivy import TantivyIndex
from tests.conftest import PROVE, ROOT

DEADLINE_S = 60.0

# Adds documents 0, 1, 2... for ever, commits every 20, and prints the number after each commit.
WRITER = """
import sys
from collections.abc import Iterator
from pathlib import Path
from lycosa.search.core.results import Document
from lycosa.app.search import open_index
index = open_index(Path(sys.argv[1]), write=True)
done = index.positions().get("numbers", 0)
print("open", done, flush=True)
while True:
    index.add([Document(str(n), f"http://h/{n}", f"page n{n}", "body " * 50) for n in range(done, done + 20)])
    done += 20
    index.commit({"numbers": done})
    print("committed", done, flush=True)
"""

MAKER = """
import sys
from collections.abc import Iterator
from pathlib import Path
from lycosa.app.search import open_index
print("go", flush=True)
open_index(Path(sys.argv[1]), write=True)
"""

READER = """
import sys, time
from collections.abc import Iterator
from pathlib import Path
from lycosa.app.search import open_index
index = open_index(Path(sys.argv[1]))
for line in sys.stdin:
    print(index.search(line).total, index.count(), flush=True)
"""


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def answer(process: subprocess.Popen[str]) -> str:
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert ready, "no answer"
    return process.stdout.readline().strip()


def fill(path: Path, *documents: Document) -> None:
    index = open_index(path, write=True)
    index.add(documents)
    index.commit({"items": 10})
    index.close()


ONE = Document("1", "http://h/1", "One", "the first page")


def test_adjacent_words_are_ranked_first(tmp_path):
    fill(
        tmp_path,
        Document("apart", "http://h/a", "Aaa", "list of things. a comprehension of it. list, list"),
        Document("near", "http://h/b", "Aaa", "other words here. a list comprehension and so on"),
    )
    index = open_index(tmp_path)
    assert [hit.url for hit in index.search("list comprehension").hits] == ["http://h/b", "http://h/a"]


def test_positions_are_never_ahead_of_documents_after_kill_9(tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = tmp_path / "index"
    reported = 0
    for _ in range(30 if PROVE else 6):
        process = python(WRITER, path)
        try:
            assert answer(process).startswith("open"), "a killed writer's lock must not block the next"
            for _ in range(rng.randint(0, 3)):
                reported = int(answer(process).split()[1])
            time.sleep(rng.uniform(0, 0.02))  # not a wait, but another moment for the kill each time
        finally:
            stop(process)
        reader = open_index(path)
        position = reader.positions().get("numbers", 0)
        assert reported <= position <= reader.count()
        assert all(reader.search(f'"page n{n}"').total == 1 for n in rng.sample(range(position), min(position, 30)))
        reader.close()


def test_interrupted_creation_is_repeated(tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number in range(60 if PROVE else 8):
        path = tmp_path / str(number)
        process = python(MAKER, path)
        answer(process)
        time.sleep(rng.uniform(0, 0.01))  # another moment each time
        stop(process)
        fill(path, ONE)
        assert open_index(path).search("first").total == 1


def test_interrupted_commit_of_replaced_documents_can_be_repeated(tmp_path):
    """It leaves a list of deleted documents with the name that the next commit uses."""
    path, old = tmp_path / "index", tmp_path / "old"
    documents = [Document(str(n), f"http://h/{n}", f"page n{n}", "body") for n in range(30)]
    fill(path, *documents)
    shutil.copytree(path, old)
    fill(path, *documents[:20])
    (deletions,) = (path / "tantivy").glob("*.del")
    for file in (deletions, path / "tantivy/.managed.json"):
        shutil.copy(file, old / "tantivy")
    fill(old, *documents[:20])
    assert open_index(old).count() == 30


@pytest.mark.parametrize("file", [["lycosa-index.json.new"], []])
def test_unfinished_folder_is_recognized(tmp_path, file):
    for name in file:
        (tmp_path / name).write_text("{")
    fill(tmp_path, ONE)
    assert open_index(tmp_path).count() == 1


def test_positions_without_documents_are_dropped(tmp_path):
    fill(tmp_path, ONE)
    for file in (tmp_path / "tantivy").iterdir():
        file.unlink()
    index = open_index(tmp_path, write=True)
    assert index.positions() == {}
    index.close()


def test_damaged_positions_count_as_none(tmp_path):
    fill(tmp_path, ONE)
    (tmp_path / "positions.json").write_text('{"items": 1')
    assert open_index(tmp_path).positions() == {}


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "index"
    process = python(WRITER, path)
    try:
        answer(process)
        with pytest.raises(IndexFailure, match=f"is being written by process {process.pid}") as caught:
            open_index(path, write=True)
        assert "\n" not in str(caught.value)
        with pytest.raises(IndexFailure, match="is being written"):
            erase_index(path)
        while answer(process) == "":
            pass
        assert open_index(path).count() > 0, "readers may open it"
    finally:
        stop(process)
    open_index(path, write=True).close()


def test_one_of_two_concurrent_creations_is_refused(tmp_path, monkeypatch):
    make = index_folder.write_marker

    def create(path: Path, marker: Marker) -> None:
        monkeypatch.setattr(index_folder, "write_marker", make)
        with pytest.raises(IndexFailure, match=f"is being written by process {os.getpid()}"):
            open_index(path, write=True)
        make(path, marker)

    monkeypatch.setattr(index_folder, "write_marker", create)
    fill(tmp_path / "index", ONE)
    assert open_index(tmp_path / "index").count() == 1


def test_reader_in_another_process_sees_a_commit_at_once(tmp_path):
    fill(tmp_path, ONE)
    process = python(READER, tmp_path)
    try:
        assert_search_result(process, "first", "1 1")
        writer = open_index(tmp_path, write=True)
        for n in range(2, 30):
            writer.add([Document(str(n), f"http://h/{n}", "More", "the first and more")])
            writer.commit({})
            assert_search_result(process, "first", f"{n} {n}")
        writer.close()
        erase_index(tmp_path)
        fill(tmp_path, ONE, ONE._replace(key="other"))
        assert_search_result(process, "first", "2 2")
    finally:
        stop(process)


def assert_search_result(process: subprocess.Popen[str], query: str, expected: str) -> None:
    process.stdin.write(query + "\n")
    process.stdin.flush()
    assert answer(process) == expected


def test_close_drops_uncommitted_documents(tmp_path):
    fill(tmp_path, ONE)
    index = open_index(tmp_path, write=True)
    index.add([ONE._replace(key="2")])
    index.close()
    assert open_index(tmp_path).count() == 1


def test_erase_starts_afresh(tmp_path):
    fill(tmp_path, ONE)
    erase_index(tmp_path)
    index = open_index(tmp_path, write=True)
    assert (index.count(), index.positions()) == (0, {})
    index.close()


def test_an_interrupted_erase_leaves_an_empty_index(tmp_path, monkeypatch):
    """An exception when a file is removed stands for the kill; each kind of file is tried."""

    def unlink_until(suffix: str, remove: Callable[..., None] = os.unlink) -> Callable[..., None]:
        def unlink(name: str, **options: object) -> None:
            remove(name, **options)
            if Path(name).suffix == suffix:
                raise KeyboardInterrupt

        return unlink

    fill(tmp_path, ONE)
    suffixes = {file.suffix for file in (tmp_path / "tantivy").iterdir() if file.suffix} - {".json", ".lock"}
    assert ".fieldnorm" in suffixes
    for suffix in sorted(suffixes):
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", unlink_until(suffix))
            with pytest.raises(KeyboardInterrupt):
                erase_index(tmp_path)
        index = open_index(tmp_path, write=True)
        assert (index.count(), index.positions()) == (0, {})
        index.close()
        assert {entry.name for entry in tmp_path.iterdir()} == {
            "lycosa-index.json",
            "tantivy",
            "words",
            "writer.lock",
        }
        fill(tmp_path, ONE)


def marker(path: Path, **changes: object) -> None:
    path.mkdir(exist_ok=True)
    (path / "lycosa-index.json").write_text(json.dumps({"format": "lycosa-index", "version": 1, **changes}))


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: (path.mkdir(), (path / "photo.jpg").touch()), "is not a search index"),
        (lambda path: marker(path, version=2), "has version 2, this Lycosa reads 1: update Lycosa"),
        (lambda path: marker(path, format="other"), "is a 'other', not a search index"),
        (lambda path: (path.mkdir(), (path / "lycosa-index.json").write_text("[")), "not an index of Lycosa"),
        (lambda path: (path.parent / "index").write_text("a file"), "index"),
        (lambda path: (fill(path, ONE), (path / "tantivy" / "meta.json").write_text("{")), "cannot be opened"),
    ],
)
def test_foreign_folder_is_refused_in_one_line_and_not_changed(tmp_path, prepare, message, write):
    path = tmp_path / "index"
    prepare(path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.j*")}
    with pytest.raises(IndexFailure, match=message) as caught:
        open_index(path, write=write)
    assert "\n" not in str(caught.value)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.j*")} == before


def test_reader_needs_an_index(tmp_path):
    with pytest.raises(IndexFailure, match="does not exist"):
        open_index(tmp_path / "nowhere")
    marker(tmp_path / "new")
    with pytest.raises(IndexFailure, match="still empty: fill it with `lycosa index build`"):
        open_index(tmp_path / "new")


def test_reader_cannot_write(tmp_path):
    fill(tmp_path, ONE)
    with pytest.raises(IndexFailure, match="not open for writing"):
        open_index(tmp_path).add([ONE])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_cannot_be_created_is_reported(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(IndexFailure, match="cannot be created: permission denied"):
        open_index(tmp_path / "index", write=True)


def test_system_errors_of_tantivy_are_one_plain_line(tmp_path):
    raw = (
        "Failed to open file for read: 'IoError { io_error: Os { code: 13, kind: PermissionDenied, message:"
        ' "Permission denied" }, filepath: ".managed.json" }\''
    )
    with pytest.raises(IndexFailure) as caught, failures(tmp_path, "cannot be opened"):
        raise ValueError(raw)
    assert str(caught.value) == f"the index {tmp_path} cannot be opened: permission denied"


@pytest.mark.parametrize(
    "raw",
    [
        'Failed to write: IoError { io_error: Os { code: 28, kind: StorageFull, message: "No space left on device" } }',
        "An index writer was killed. A worker thread encountered an error (io::Error most likely) or panicked.",
    ],
)
def test_a_full_device_is_named_although_the_files_that_did_not_fit_are_removed(small_device, raw):
    with pytest.raises(IndexFailure) as caught, failures(small_device, "cannot commit"):
        raise ValueError(raw)
    assert str(caught.value) == f"the index {small_device} cannot commit: no space left on the device"


def test_sigterm_leaves_no_lock(tmp_path):
    process = python(WRITER, tmp_path / "index")
    answer(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    open_index(tmp_path / "index", write=True).close()


def test_a_search_while_another_generation_is_adopted_finds_its_documents(tmp_path, monkeypatch):
    """The writer then removes the files that the reader was about to check."""
    entry = IndexEntry(1, {"name": "debian", "files": ""}, {"found": 1, "size": 1}, {"type": ["video"], "language": []})
    with closing(TantivyIndex(tmp_path / "index", TORRENTS, write=True)) as writer:
        writer.commit({})
        rebuilt = writer.rebuild()
        rebuilt.add([entry], new=True)
        with closing(TantivyIndex(tmp_path / "index", TORRENTS)) as reader:
            commit_stamp = reader._commit_stamp

            def adopting() -> tuple[int, int]:
                monkeypatch.setattr(reader, "_commit_stamp", commit_stamp)
                writer.adopt(rebuilt)
                return commit_stamp()

            monkeypatch.setattr(reader, "_commit_stamp", adopting)
            assert reader.find(SearchRequest()).total == 1
            shutil.rmtree(tmp_path / "index" / "tantivy.1")
            with pytest.raises(IndexFailure, match="cannot be searched"):
                reader.find(SearchRequest())
