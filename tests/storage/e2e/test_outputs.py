"""Real crawls with outputs of all kinds (C8).

Each item is written exactly once, even under kill -9. A resumed crawl continues its outputs, -O starts them afresh, and
an impossible output is refused in one line.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from secrets import token_hex

import pytest

from tests.cli.command import Running, assert_exactly_once, assert_one_line, interrupt, lycosa, start_command
from tests.conftest import PROVE
from tests.servers.redis import redis_server
from tests.servers.tree import Tree, grow
from tests.storage.output_files import READERS, csv_rows

KILLS = 20 if PROVE else 2
PAGES = 2_000 if PROVE else 240
DELAY_S = 0.1
SLOWER = () if PROVE else ("--delay", 0.02)
"""Options for a crawl that must not end before it is killed or interrupted, even if this process is slow."""
FILES = [f"items.{suffix}" for suffix in READERS]
POLL_S = 0.0005
STATE = ("--state", "state")


def outputs(option: str = "-o") -> list[object]:
    return [word for file in FILES for word in (option, file)]


def command(tree: Tree, *more: object) -> list[object]:
    return ["crawl", tree.url, "-q", *STATE, "--concurrency", 16, "--concurrency-per-host", 16, *more]


def succeed(*arguments: object, cwd: Path) -> str:
    done = lycosa(*arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def urls(home: Path) -> dict[str, list[str]]:
    """Return the URLs of the items in each file."""
    return {file: [item["url"] for item in READERS[file.partition(".")[2]](home / file)] for file in FILES}


def assert_complete(tree: Tree, home: Path) -> None:
    for file, found in urls(home).items():
        assert_exactly_once(found, tree.urls()), file


def until_it_grows(run: Running, file: Path) -> bool:
    """Wait until the crawl writes to this file; False if it ended before."""
    size = file.stat().st_size
    while file.stat().st_size == size and run.process.poll() is None:
        time.sleep(POLL_S)
    return file.stat().st_size > size


def kill_while_it_writes(run: Running, home: Path, rng: random.Random) -> bool:
    """Kill a crawl when one of its first files grows: the other files and the frontier do not have this commit yet.

    Return False if it ended before.
    """
    file = home / rng.choice(FILES[:6])
    assert run.until(file.exists), run.stderr
    for _ in range(rng.randint(1, 2)):
        until_it_grows(run, file)
    killed = run.kill()
    assert run.stderr == ""
    return killed


def pages_fetched(run: Running, tree: Tree, count: int) -> None:
    """Wait until the crawl has fetched this many pages in this run, or has ended."""
    before = len(tree.hits())
    run.until(lambda: len(tree.hits()) >= before + count)


@pytest.mark.parametrize("processes", [1, 2])
def test_after_kills_every_output_has_each_item_once(tmp_path: Path, rng: random.Random, processes: int) -> None:
    with grow(PAGES, delay_s=DELAY_S) as tree:
        crawl = command(tree, *outputs(), "--processes", processes)
        kills = 0
        for _ in range(KILLS):
            with start_command(*crawl, *SLOWER, cwd=tmp_path) as run:
                killed = kill_while_it_writes(run, tmp_path, rng)
            if not killed:
                break  # a slow machine: the crawl is over
            kills += 1
            assert (tmp_path / "items.json").read_bytes() == b"", "the array is written by runs that end"
        assert kills
        succeed(*crawl, cwd=tmp_path)
        assert_complete(tree, tmp_path)


def test_an_interrupted_crawl_leaves_complete_files_and_the_same_command_continues_them(tmp_path: Path) -> None:
    with grow(PAGES, delay_s=DELAY_S) as tree:
        crawl = command(tree, *outputs())
        with start_command(*crawl, *SLOWER, cwd=tmp_path) as run:
            pages_fetched(run, tree, PAGES // 4)
            interrupt(run.process)
            assert run.end() == 130, run.stderr
        found = urls(tmp_path)
        assert 0 < len(found["items.jsonl"]) < PAGES
        assert {file: sorted(each) for file, each in found.items()} == dict.fromkeys(
            FILES, sorted(found["items.jsonl"])
        )
        succeed(*crawl, cwd=tmp_path)
        assert_complete(tree, tmp_path)
        before = {file: (tmp_path / file).read_bytes() for file in FILES}
        succeed(*crawl, cwd=tmp_path)
        assert {file: (tmp_path / file).read_bytes() for file in FILES} == before, "nothing to do"
        (tmp_path / "items.json").unlink()
        succeed(*crawl, cwd=tmp_path)
        assert_complete(tree, tmp_path)


def test_a_capital_o_starts_every_output_afresh(tmp_path: Path) -> None:
    with grow(20) as tree:
        succeed(*command(tree, *outputs()), cwd=tmp_path)
        succeed(*command(tree, *outputs("-O")), cwd=tmp_path)
        assert len(tree.hits()) >= 2 * tree.pages
        assert_complete(tree, tmp_path)


def test_another_crawl_appends_to_every_output_but_an_array(tmp_path: Path) -> None:
    with grow(20) as tree, grow(10) as other:
        succeed(*command(tree, *outputs()), cwd=tmp_path)
        appended = [word for file in FILES if "json." not in f"{file}." for word in ("-o", file)]
        succeed("crawl", other.url, "-q", "--state", "other", *appended, cwd=tmp_path)
        for file, found in urls(tmp_path).items():
            assert_exactly_once(found, tree.urls() | (other.urls() if file in appended else set()))
        done = lycosa("crawl", other.url, "-q", "--state", "third", "-o", "items.json", cwd=tmp_path)
        assert done.returncode == 3
        assert "items.json exists, and items cannot be appended to a JSON array" in assert_one_line(done.stderr)


def test_standard_output_as_csv_with_chosen_columns(tmp_path: Path) -> None:
    with grow(20) as tree:
        written = succeed(*command(tree, "-o", "-:csv", "--fields", "url,status"), cwd=tmp_path)
        assert written.startswith("url,status\n")
        assert sorted(written.split()) == sorted(["url,status", *(f"{url},200" for url in tree.urls())])


def test_the_columns_of_a_file_are_kept_and_fields_without_a_column_are_named(tmp_path: Path) -> None:
    with grow(20) as tree:
        succeed(*command(tree, "-o", "items.csv", "--fields", "url,title", "--max-pages", 5), cwd=tmp_path)
        done = lycosa(*command(tree, "-o", "items.csv", "--fields", "title,url"), cwd=tmp_path)
        assert done.returncode == 3
        assert "items.csv has the columns url,title, not title,url" in assert_one_line(done.stderr)
        done = lycosa(*command(tree, "-o", "items.csv"), cwd=tmp_path)
        assert done.returncode == 0
        assert "fields without a column were left out: content_type (15)" in done.stderr
        assert_exactly_once([row["url"] for row in csv_rows(tmp_path / "items.csv")], tree.urls())


def test_a_resumed_crawl_with_another_output_says_where_the_earlier_items_are(tmp_path: Path) -> None:
    with grow(20) as tree:
        crawl = ["crawl", tree.url, *STATE]
        lycosa(*crawl, "-o", "items.jsonl", "--max-pages", 5, cwd=tmp_path)
        done = lycosa(*crawl, "-o", "items.jsonl", "-o", "items.csv", cwd=tmp_path)
        place = tmp_path.resolve()
        note = f"earlier items of this crawl are in {place}/items.jsonl, and not in {place}/items.csv; -O starts afresh"
        assert note in done.stderr
        assert len(csv_rows(tmp_path / "items.csv")) == 15


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        (3, ("-o", "no/items.csv"), "no/items.csv: there is no folder"),
        (3, ("-o", "no/items.sqlite"), "no/items.sqlite: there is no folder"),
        (3, ("-o", "no/items.json"), "no/items.json: there is no folder"),
        (3, ("-o", "folder.sqlite"), "folder.sqlite: items cannot be written: Is a directory"),
        (3, ("-o", "foreign.sqlite"), "foreign.sqlite"),
        (3, ("-o", "text.csv.gz"), "text.csv.gz is not a complete .gz file"),
        (3, ("-o", "text.jsonl.zst"), "text.jsonl.zst is not a complete .zst file"),
        (3, ("-o", "text.csv"), "text.csv: its first line is not the header of a CSV file"),
        (2, ("-o", "i.csv", "-o", "link.csv"), "i.csv is named twice"),
    ],
)
def test_an_impossible_output_is_refused_in_one_line(
    tmp_path: Path, code: int, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "folder.sqlite").mkdir()
    for name in ("foreign.sqlite", "text.csv.gz", "text.jsonl.zst", "text.csv"):
        (tmp_path / name).write_text("x" * 2_000_000 if name == "text.csv" else "some text")
    (tmp_path / "link.csv").symlink_to("i.csv")
    done = lycosa("crawl", "http://127.0.0.1:1/", *STATE, *options, cwd=tmp_path)
    assert done.returncode == code
    assert message in assert_one_line(done.stderr)


@pytest.mark.redis
def test_workers_on_redis_write_their_own_files(tmp_path: Path, rng: random.Random) -> None:
    with redis_server() as server, grow(PAGES, delay_s=2 * DELAY_S) as tree:
        name = token_hex(4)
        shared = ("--frontier", f"{server.url}", "--crawl-name", name, *SLOWER)
        homes = [tmp_path / "one", tmp_path / "two"]
        for home in homes:
            home.mkdir()
        crawl = command(tree, *outputs(), *shared)
        tree.process.send_signal(signal.SIGSTOP)
        with start_command(*crawl, cwd=homes[0]) as one, start_command(*crawl, cwd=homes[1]) as two:
            for run, home in zip((one, two), homes, strict=True):
                assert run.until((home / "items.jsonl").exists), run.stderr
            tree.process.send_signal(signal.SIGCONT)  # both are ready: neither can fetch everything alone
            for _ in range(2):  # when `one` begins its second commit, its first one is complete and survives the kill
                assert until_it_grows(one, homes[0] / "items.jsonl"), one.stderr
            assert kill_while_it_writes(one, homes[0], rng)
            assert two.end() == 0, two.stderr
        succeed(*crawl, cwd=homes[0])
        found = [urls(home) for home in homes]
        assert all(each["items.jsonl"] for each in found), "both workers have items"
        for file in FILES:
            assert_exactly_once([url for each in found for url in each[file]], tree.urls())
