"""`lycosa crawl --proxy-pool` (P1-P5): summary, exit codes, several processes, a kill."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.folder.pool import embedded_pool
from tests.cli.command import Running, assert_exactly_once, assert_one_line, items, lycosa, start_command
from tests.conftest import ROOT
from tests.servers.banning import Banning, BanResponse, banning
from tests.servers.ports import closed_port
from tests.servers.proxies import Microsocks, running
from tests.servers.redis import redis_server

DELAY_S = 0.02


def playing(play: Callable[[Banning], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(100), banning(**options) as server:
            await play(server)

    asyncio.run(main())


async def run(*words: object, cwd: Path) -> Any:
    return await asyncio.to_thread(lycosa, "crawl", *words, cwd=cwd)


async def create_pool(folder: Path, urls: list[str]) -> None:
    pool = await embedded_pool(folder, print)
    await pool.add(map(parse_proxy, urls))
    await pool.close()


def urls_of(server: Banning) -> list[str]:
    return [server.url(), *(server.url(f"/page/{number}") for number in range(1, server.page_count))]


def assert_one_at_a_time(server: Banning, proxies: list[Microsocks]) -> None:
    """Check that a proxy has one transfer at a time; the server takes DELAY_S for each."""
    starts: dict[str, list[float]] = defaultdict(list)
    for hit in server.hits:
        starts[hit.ip].append(hit.at)
    assert set(starts) <= {proxy.exit for proxy in proxies}
    gaps = [later - earlier for each in starts.values() for earlier, later in pairwise(each)]
    assert min(gaps) > DELAY_S * 0.9


@pytest.mark.proxies
def test_the_summary_counts_leases_and_bans(tmp_path):
    async def play(server: Banning) -> None:
        with running(*(Microsocks(user="ann", password="secret") for _ in range(5))) as proxies:
            (tmp_path / "proxies.txt").write_text("".join(f"{proxy.url}\n" for proxy in proxies))
            server.ban(proxies[0].exit, BanResponse.TOO_MANY, for_s=60)
            done = await run(server.url(), "--proxy-pool", "proxies.txt", "-o", "items.jsonl", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "proxies 42 leases in this run (banned: 1, sent again: 1)" in done.stderr
        assert "secret" not in done.stdout + done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], urls_of(server))

    playing(play, pages=40)


def test_without_a_working_proxy_the_crawl_ends_with_3_and_resumes_later(tmp_path):
    async def play(server: Banning) -> None:
        (tmp_path / "proxies.txt").write_text(f"127.0.0.1:{closed_port()}\n")
        words = (server.url(), "--proxy-pool", "proxies.txt", "-o", "items.jsonl", "-s", "proxy_wait=1")
        done = await run(*words, cwd=tmp_path)
        assert done.returncode == 3
        assert "closed (no proxy)" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("the crawl ends") == 1
        assert server.hits == []
        with running(Microsocks()) as [proxy]:
            (tmp_path / "proxies.txt").write_text(proxy.url)
            again = await run(*words, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], urls_of(server))

    playing(play, pages=5)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--proxy-pool", "http://127.0.0.1:1"], "is not a pool of proxies: write memory:, a folder, or redis://"),
        (["--proxy-pool", "proxies.txt", "--proxy", "http://127.0.0.1:1"], "proxy and proxy_pool"),
        (["--proxy-pool", "proxies.txt", "--processes", "2"], "only one process can use it"),
        (["--proxy-pool", "memory:"], "memory: stays empty: write [[proxies.sources]] into lycosa.toml"),
        (["--proxy-pool", "a" * 300], "is not a pool of proxies: the name is too long"),
        (["--proxy-pool", "."], "there is no pool in .: lycosa proxies add FILE --pool . creates one"),
        (["--proxy-pool", "ann:secret@gate.example:80/list.txt"], "there is no file ...@gate.example:80/list.txt"),
        (
            ["--proxy-pool", "bad.txt"],
            "bad.txt has no proxies (line 1: 'nonsense' has no port: write host:port): write",
        ),
        (["--proxy-pool", ""], "invalid value for '--proxy-pool': the value is empty"),
        (["--proxy", ""], "invalid value for '--proxy': the value is empty"),
        (["--proxy-pool", "proxies.txt", "-s", "proxy_tries=0"], "proxy_tries: '0' is not a whole number from 1"),
    ],
)
def test_bad_input_is_an_error_of_one_line(tmp_path, words, problem):
    (tmp_path / "proxies.txt").write_text("127.0.0.1:1\n")
    (tmp_path / "bad.txt").write_text("nonsense\n")
    (tmp_path / "pool").mkdir()
    done = lycosa("crawl", "http://127.0.0.1:1/", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert problem in done.stderr


USES = (
    ["crawl", "http://127.0.0.1:1/", "--proxy-pool"],
    ["proxies", "serve", "--bind", "127.0.0.1:0", "--pool"],
)


@pytest.mark.parametrize("words", USES)
def test_a_mistyped_pool_is_an_error_and_creates_nothing(tmp_path, words):
    done = lycosa(*words, "nosuch/deep/pool", cwd=tmp_path)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    what = "there is no pool in nosuch/deep/pool, nor a file of this name"
    assert f"{what}: lycosa proxies add FILE --pool nosuch/deep/pool creates one" in done.stderr
    assert not (tmp_path / "nosuch").exists()


MISTYPED = {
    "proxis.txt": "there is no file proxis.txt: did you mean proxies.txt?",
    "lists/Buyed.TXT": "there is no file lists/Buyed.TXT: did you mean lists/buyed.csv?",
    "nothing.json": "there is no file nothing.json, and no pool of this name",
    "lists/other": "there is no pool in lists/other, nor a file of this name: lycosa proxies add FILE --pool",
    "poool": "there is no pool in poool: did you mean pool? lycosa proxies add FILE --pool poool creates one",
}


@pytest.mark.parametrize("words", USES)
@pytest.mark.parametrize("mistyped", MISTYPED)
def test_a_mistyped_list_is_an_error_that_suggests_a_file(tmp_path, words, mistyped):
    (tmp_path / "lists").mkdir()
    asyncio.run(create_pool(tmp_path / "pool", []))
    for name in ("proxies.txt", "lists/buyed.csv"):
        (tmp_path / name).write_text("10.0.0.1:80\n")
    done = lycosa(*words, mistyped, cwd=tmp_path)
    assert done.returncode == 2
    assert assert_one_line(done.stderr).startswith(MISTYPED[mistyped])


@pytest.mark.parametrize("words", USES)
def test_an_empty_pool_without_sources_is_an_error(tmp_path, words):
    asyncio.run(create_pool(tmp_path / "empty", []))
    done = lycosa(*words, "empty", cwd=tmp_path)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert "the pool empty has no proxies, and the project has no [[proxies.sources]]: lycosa proxies" in done.stderr


@pytest.mark.proxies
def test_several_processes_share_a_pool_in_a_folder(tmp_path):
    """P2: each proxy is used by one process at a time."""

    async def play(server: Banning) -> None:
        with running(*(Microsocks() for _ in range(6))) as proxies:
            await create_pool(tmp_path / "pool", [proxy.url for proxy in proxies])
            server.ban(proxies[0].exit)
            words = (server.url(), "--proxy-pool", "pool", "-o", "items.jsonl", "--processes", 2)
            done = await run(*words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert_one_at_a_time(server, list(proxies))
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], urls_of(server))
        assert "leases in this run" in done.stderr

    playing(play, pages=100, delay_s=DELAY_S)


@pytest.mark.proxies
def test_the_proxies_of_a_killed_crawl_become_free(tmp_path):
    """P2, P5: its leases expire, bans are remembered, no page is lost."""

    async def play(server: Banning) -> None:
        (tmp_path / "lycosa.toml").write_text("[proxies.default]\nlease_s = 3\n")
        with running(*(Microsocks() for _ in range(4))) as proxies:
            await create_pool(tmp_path / "pool", [proxy.url for proxy in proxies])
            server.ban(
                proxies[0].exit, BanResponse.TOO_MANY, for_s=600
            )  # the Retry-After fixes the cool-down: other cool-downs are random
            words = ("crawl", server.url(), "--proxy-pool", "pool", "-o", "items.jsonl")

            def killed() -> bool:
                with start_command(*words, cwd=tmp_path) as first:
                    assert first.until(lambda: len(server.hits) > 40)
                    return first.kill()

            assert await asyncio.to_thread(killed)
            done = await run(*words[1:], cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert_one_at_a_time(server, list(proxies))
            refused = [hit.ip for hit in server.hits if not hit.good]
            assert refused == [proxies[0].exit], "the ban was remembered"
        found = [item["url"] for item in items(tmp_path / "items.jsonl")]
        assert_exactly_once(found, urls_of(server))

    playing(play, pages=200, delay_s=DELAY_S)


@pytest.mark.proxies
def test_a_crawl_fills_a_pool_in_memory_from_the_sources(tmp_path):
    """P4."""

    async def play(server: Banning) -> None:
        with running(*(Microsocks() for _ in range(2))) as proxies:
            (tmp_path / "list.txt").write_text("".join(f"{proxy.url}\n" for proxy in proxies))
            (tmp_path / "lycosa.toml").write_text(
                '[[proxies.sources]]\nname = "mine"\nkind = "file"\npath = "list.txt"\n'
            )
            done = await run(server.url(), "--proxy-pool", "memory:", "-o", "items.jsonl", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert set(server.by_client()) == {proxy.exit for proxy in proxies}
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], urls_of(server))

    playing(play, pages=30)


def test_a_crawl_that_waits_for_proxies_can_be_interrupted(tmp_path):
    def interrupted(run: Running) -> int:
        assert run.until(lambda: "the crawl waits" in run.stderr)
        run.process.send_signal(2)
        return run.end()

    asyncio.run(create_pool(tmp_path / "empty", []))
    (tmp_path / "lycosa.toml").write_text('[[proxies.sources]]\nname = "late"\nkind = "file"\npath = "none"\n')
    with start_command("crawl", "http://127.0.0.1:1/", "--proxy-pool", "empty", cwd=tmp_path) as waiting:
        assert interrupted(waiting) == 130


@pytest.mark.redis
@pytest.mark.parametrize(
    "words",
    [
        *USES,
        ["proxies", "list", "--pool"],
        ["proxies", "add", "10.0.0.1:80", "--pool"],
        ["frontier", "status", "--frontier"],
    ],
)
def test_a_wrong_password_of_redis_is_bad_usage(tmp_path, words):
    """The user must write another password. An unreachable server has another exit code."""
    with redis_server(password="secret") as server:
        done = lycosa(*words, f"redis://:wrong@127.0.0.1:{server.port}/0", cwd=tmp_path)
    assert done.returncode == 2
    assert "the server rejects this user and password" in assert_one_line(done.stderr)
    away = lycosa(*words, f"redis://:wrong@127.0.0.1:{closed_port()}/0", cwd=tmp_path)
    assert away.returncode == 3
    assert "wrong" not in done.stderr + away.stderr


@pytest.mark.parametrize("page", ["proxy-api.md", "proxy-gateway.md", "semantics.md"])
def test_the_documentation_has_the_exit_code_of_a_wrong_password(page):
    text = (ROOT / "docs" / page).read_text()
    assert re.search(r"\b2\b[^;]*?wrong password|wrong password[^;]*\b2\b", text)
