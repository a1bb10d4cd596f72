"""`lycosa frontier ...` on stopped states and on one with a live owner (F2, F6, F7, C8; issue 3 "Operations")."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.frontier import operations
from lycosa.cli.frontier import changes
from lycosa.cli.frontier import frontier as looking
from lycosa.cli.frontier.rows import format_time, parse_time
from lycosa.cli.main import main
from lycosa.core.errors import StateLocked, UsageError
from lycosa.core.url import fingerprint, host_key
from lycosa.frontier import remote
from lycosa.frontier.core.description import VERSION, Description
from lycosa.frontier.core.model import Extras, HostFacts, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.server import serve
from lycosa.frontier.state_dir import StateDir
from lycosa.http.core.model import Validators
from tests.cli.command import environment
from tests.conftest import PROVE

SITE = "http://a.example"
POLICY = Policy(robots=False, concurrency_per_host=1000)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(looking, "RATE_OVER_S", 0.05)
    monkeypatch.setattr(remote, "REPORT_AFTER_S", 60.0)  # no reports on a busy machine
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)


def record(url: str, extras: Extras | None = None, **fields: Any) -> UrlRecord:
    method, body = (extras.method, extras.body) if extras else ("GET", b"")
    return UrlRecord(1, fingerprint(method, url, body), url, host_key(url), extras=extras, **fields)


async def some_of_each(frontier: Any, now: float = 1e9) -> None:
    """Push URLs in several states: /0 is done, /1 dead, /2 to be retried, /3 to /5 are queued, /6 is delayed, and /7 is
    queued in the segment `monday`.
    """
    extras = Extras("POST", {"A": "b"}, b"\x00", "parse_it", {"n": 1})
    await frontier.push([record(f"{SITE}/{number}") for number in range(3)])
    for lease in await frontier.lease(3, now):
        number = lease.record.url[-1]
        if number == "0":
            await frontier.ack(lease, "200", (), now, validators=Validators('"e"', "", now))
        else:
            await frontier.nack(lease, "timeout", None if number == "1" else 3.9e9, now)
    await frontier.push([record(f"{SITE}/3", priority=3, depth=2, extras=extras)])
    await frontier.push([record(f"{SITE}/{number}") for number in (4, 5)])
    await frontier.push([record(f"{SITE}/6", not_before=4e9), record(f"{SITE}/7", segment="monday")])
    facts = HostFacts(b"User-agent: *\nDisallow: /private/\n", 200, now)
    await frontier.set_host_facts(f"{SITE}:80", facts, now)
    await frontier.commit({})


def a_state(path: str | Path, scenario: Callable[[Any], Any] = some_of_each, **described: Any) -> Path:
    """Create a stopped state, after running this scenario on its frontier."""

    async def create() -> None:
        with closing(StateDir(Path(path))) as state:
            usual = {"name": "it", "seeds": [f"{SITE}/0"], "scope": "host", "user_agent": "Lycosa/1"}
            state.describe(Description(**{**usual, **described}))
            frontier = embedded_frontier(state.frontier, POLICY)
            await scenario(frontier)
            await frontier.commit({"x": 1})
            await frontier.close()

    asyncio.run(create())
    return Path(path)


@contextmanager
def live(path: Path) -> Iterator[Any]:
    """Serve a state from a thread, with two URLs leased. Yields the frontier."""
    frontiers: list[Any] = []

    async def run_owner(started: threading.Event, stop: threading.Event) -> None:
        with closing(StateDir(path)) as state:
            frontier = embedded_frontier(state.frontier, POLICY)
            async with serve(state.socket, LocalOperations(frontier)):
                await frontier.lease(2, 1e9 + 10)
                frontiers.append(frontier)
                started.set()
                await asyncio.to_thread(stop.wait)
            await frontier.close()

    with in_thread(run_owner):
        yield frontiers[0]


@contextmanager
def in_thread(run_owner: Callable[[threading.Event, threading.Event], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """Run the owner of a state in a thread. The owner sets the first event when ready, and ends at the second."""
    started, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(run_owner(started, stop),))
    thread.start()
    try:
        assert started.wait(20)
        yield
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture(params=["stopped", "live"])
def state(request) -> Iterator[str]:
    """A state with URLs in all states, stopped or with a live owner."""
    path = a_state("s")
    if request.param == "stopped":
        yield str(path)
        return
    with live(path):
        yield str(path)


class CommandResult:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()[1:]]


@pytest.fixture
def frontier(capsys) -> Callable[..., CommandResult]:
    """Run `lycosa frontier ...` in this process."""

    def run(*argv: object, code: int | None = 0) -> CommandResult:
        returned = main(["frontier", *map(str, argv)])
        captured = capsys.readouterr()
        result = CommandResult(returned, captured.out, captured.err)
        assert "Traceback" not in result.err
        assert code is None or returned == code, result.err
        return result

    return run


def fails(frontier: Callable[..., CommandResult], *argv: object, code: int = 2) -> str:
    """Run a command that must fail with one line. Return the line."""
    result = frontier(*argv, code=code)
    assert result.out == ""
    assert result.err.startswith("lycosa: ")
    assert result.err.count("\n") == 1, result.err
    assert "internal error" not in result.err
    return result.err.removeprefix("lycosa: ").strip()


# Queries.


def test_status(frontier, state):
    (known,) = frontier("status", "--state", state, "--json").json
    assert known["running"] == (known["pid"] is not None)
    assert known["queued"] + known["leased"] == 4
    assert known["leased"] == (2 if known["running"] else 0)
    assert (known["delayed"], known["done"], known["dead"]) == (2, 1, 1)
    assert (known["reasons"], known["dead_reasons"]) == ({"200": 1}, {"timeout": 1})
    assert known["segments"] == {"open": 2}
    assert known["size_bytes"] > 1000
    text = frontier("status", "--state", state).out
    assert f"{state}: 1 start URL, {SITE}/0; " in text
    assert ("running in process" in text) == known["running"]
    assert "done      1 (200: 1)" in text
    assert "dead      1 (timeout: 1)" in text
    assert ("done/s" in text) == known["running"]


def test_status_shows_the_next_due_time(frontier):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/1", not_before=4e9)])

    a_state("s", scenario, spider="news", scope="")
    assert frontier("status", "--state", "s", "--json").json[0]["next_due"] == 4e9
    text = frontier("status", "--state", "s").out
    assert "spider news; stopped" in text
    assert "delayed   1\n  next due  2096-10-02 07:06:40 (in " in text


def test_segments(frontier, state):
    first, second = frontier("segments", "--state", state, "--json").json
    assert [first["name"], second["name"]] == ["", "monday"]
    assert first["queued"] + first["leased"] == 3
    assert (first["done"], first["dead"], first["delayed"]) == (1, 1, 2)
    rows = frontier("segments", "--state", state).rows
    assert [row[-6:-5] for row in rows] == [["-"], ["-"]]
    assert rows[0][:3] == ["(no", "name)", "open"]


def test_hosts(frontier, state):
    (host,) = frontier("hosts", "--state", state, "--json").json
    assert (host["host"], host["robots_status"]) == (f"{SITE}:80", 200)
    text = frontier("hosts", "--state", state).out
    assert text.splitlines()[0].split()[:2] == ["host", "queued"]
    assert text.splitlines()[1].startswith(f"{SITE}:80")


def test_hosts_can_be_sorted_by_queued_urls(frontier):
    async def scenario(each: Any) -> None:
        for number in range(30):
            await each.push([record(f"http://h{number:02}.example/{n}") for n in range(number % 7 + 1)])

    a_state("s", scenario)
    found = frontier("hosts", "--state", "s", "--sort", "queued", "--limit", 4, "--json").json
    assert [host["queued"] for host in found] == [7, 7, 7, 7]
    in_order = frontier("hosts", "--state", "s", "--json").json
    assert [host["host"] for host in in_order] == [f"http://h{number:02}.example:80" for number in range(30)]
    assert len(frontier("hosts", "--state", "s", "--limit", 4).rows) == 4
    assert "at most 1,000" in fails(frontier, "hosts", "--state", "s", "--sort", "queued", "--limit", 5000)


@contextmanager
def by_address(path: Path, paused: str = "") -> Iterator[None]:
    """Serve a state whose crawl allows two transfers per IP address, both running, and one start in 1000 s."""
    policy = Policy(robots=False, concurrency_per_ip=2, delay_per_ip_s=1000.0)

    async def run_owner(started: threading.Event, stop: threading.Event) -> None:
        with closing(StateDir(path)) as state:
            state.describe(Description(name="it", seeds=[f"{SITE}/0"], robots=False))
            frontier = embedded_frontier(state.frontier, policy)
            await frontier.push([record(f"http://{name}.example/{n}") for name in "ab" for n in range(3)])
            now = time.time()
            for lease in await frontier.lease(9, now - 2000):
                await frontier.set_address(lease.record.host, "10.0.0.1", now + 9999, now - 2000)
                await frontier.ack(lease, "resolved", (), now - 2000, contacted=False)
            assert len(await frontier.lease(9, now - 1000) + await frontier.lease(9, now)) == 2
            await frontier.commit({})
            async with serve(state.socket, LocalOperations(frontier, paused=lambda: paused)):
                started.set()
                await asyncio.to_thread(stop.wait)
            await frontier.close()

    with in_thread(run_owner):
        yield


def test_limits_of_an_ip_address_are_shown(frontier):
    with by_address(Path("s")):
        explanation = frontier("explain", "http://a.example/2", "--state", "s").out
        assert (
            "its IP address 10.0.0.1 is busy: 2 in flight, at most 2 at a time, and the next transfer not before 20"
            in explanation
        )
        assert "2 hosts share it" in explanation
        assert "may be contacted now" not in explanation
        lines = frontier("hosts", "--state", "s").out.splitlines()[1:]
        assert [" busy " in line and "10.0.0.1 (busy: 2 of 2)" in line for line in lines] == [True, True]
        (host, _) = frontier("hosts", "--state", "s", "--json").json
        assert (host["shared"]["address"], host["shared"]["in_flight"]) == ("10.0.0.1", 2)


def test_explain_status_and_hosts_say_why_a_crawl_is_paused(frontier):
    short = "5.0 MB free at /x, 11 MB needed"
    with by_address(Path("s"), short):
        assert f"the crawl is paused: {short}" in frontier("explain", "http://a.example/2", "--state", "s").out
        assert f"  paused    {short}\n" in frontier("status", "--state", "s").out
        assert frontier("status", "--state", "s", "--json").json[0]["paused"] == short
        assert short in frontier("hosts", "--state", "s").err
    explanation = frontier("explain", "http://a.example/2", "--state", "s").out
    assert "the crawl is not running: the command that started it resumes it" in explanation
    assert "the next run sets the limits of its host" in explanation
    assert "may be contacted" not in explanation
    assert "paused" not in explanation
    assert [host["concurrency"] for host in frontier("hosts", "--state", "s", "--json").json] == [0, 0]
    assert frontier("explain", "http://a.example/2", "--state", "s", "--json").json[0]["host"]["concurrency"] == 0


def test_urls_of_a_segment_that_has_not_started_count_as_queued(frontier):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/{number}", segment="2100-01-01") for number in range(3)])

    path = a_state("s", scenario)
    (known,) = frontier("status", "--state", path, "--json").json
    assert (known["queued"], known["not_started"], known["delayed"]) == (3, 3, 0)
    assert known["next_due"] == 4_102_444_800
    text = frontier("status", "--state", path).out
    assert "queued    3, 3 of them in segments that have not started" in text
    assert "next due  2100-01-01 00:00:00 (in " in text
    (view,) = frontier("segments", "--state", path, "--json").json
    assert (view["queued"], view["delayed"]) == (3, 0)
    assert {row["state"] for row in frontier("list", "--state", path, "--json").json} == {"queued"}


def test_unknown_times_are_null(frontier, state):
    for view in frontier("segments", "--state", state, "--json").json:
        assert view["starts_at"] is None
    (host,) = frontier("hosts", "--state", state, "--json").json
    (known,) = frontier("explain", f"{SITE}/4", "--state", state, "--json").json
    for view in (host, known["host"]):
        assert view["blocked_until"] is None
        assert view["robots_at"] == 1e9
    a_state("t", _one)
    (host,) = frontier("hosts", "--state", "t", "--json").json
    times = ("started_at", "blocked_until", "robots_at", "ready_at", "robots_status")
    assert {host[name] for name in times} == {None}


async def _one(frontier: Any) -> None:
    await frontier.push([record(f"{SITE}/1")])


def test_list(frontier, state):
    rows = frontier("list", "--state", state, "--json").json
    states = {row["url"][-1]: row["state"] for row in rows}
    waiting = {number: states.pop(number) for number in "3457"}
    assert states == {"0": "done", "1": "dead", "2": "retry", "6": "delayed"}
    assert set(waiting.values()) <= {"queued", "leased"}
    assert frontier("list", "--state", state, "--status", "dead").rows[0][-2:] == ["timeout", f"{SITE}/1"]
    assert len(frontier("list", "--state", state, "--status", "dead,done", "--status", "retry").rows) == 3
    assert [row["url"] for row in frontier("list", "--state", state, "--segment", "monday", "--json").json] == [
        f"{SITE}/7"
    ]
    assert len(frontier("list", "--state", state, "--segment", "", "--json").json) == 7
    assert len(frontier("list", "--state", state, "--host", f"{SITE}/any", "--json").json) == 8
    none = frontier("list", "--state", state, "--host", "http://b.example")
    assert (none.out, "no URL matches" in none.err) == ("", True)
    assert len(frontier("list", "--state", state, "--url", "*/[01]", "--reason", "2*").rows) == 1
    assert len(frontier("list", "--state", state, "--before", "1h").rows) == 2
    assert frontier("list", "--state", state, "--before", "2000-01-01").out == ""


def test_list_stops_at_the_limit_with_a_note(frontier, state):
    result = frontier("list", "--state", state, "--limit", 3)
    assert len(result.rows) == 3
    assert "only the first 3 are shown" in result.err
    assert frontier("list", "--state", state, "--limit", 8).err == ""
    assert frontier("list", "--state", state, "--limit", 0).err == ""


def test_explain(frontier, state):
    def explain(path: str) -> str:
        text = frontier("explain", SITE + path, "--state", state).out
        (known,) = frontier("explain", SITE + path, "--state", state, "--json").json
        assert text.splitlines() == [known["url"], *(f"  {line}" for line in known["why"])]
        return text

    assert "done in segment (no name) at 2001-09-09 01:46:40" in explain("/0")
    assert "lycosa frontier requeue --url 'http://a.example/1'" in explain("/1")
    assert "will be retried" in explain("/2")
    assert "its host http://a.example:80" in explain("/5") or "being fetched" in explain("/5")
    assert "delayed in segment (no name) until 2096" in explain("/6")
    assert "in segment monday" in explain("/7")
    assert "forbids it: Disallow: /private/" in explain("/private/x")
    assert "lycosa frontier import adds it" in explain("/8")
    assert "out of scope" in frontier("explain", "http://b.example/", "--state", state).out


def test_explain_uses_the_fingerprint_rules_of_the_crawl(frontier):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/?b=2&a=1")])

    a_state("s", scenario)
    assert "never seen" in frontier("explain", f"{SITE}/?a=1&b=2", "--state", "s").out

    async def sorted_(each: Any) -> None:
        url = f"{SITE}/?b=2&a=1"
        await each.push([UrlRecord(1, fingerprint("GET", f"{SITE}/?a=1&b=2"), url, host_key(url))])

    a_state("t", sorted_, key=["sort"])
    explanation = frontier("explain", f"{SITE}/?a=1&b=2", "--state", "t").out
    assert f"it counts as the same page as {SITE}/?b=2&a=1" in explanation
    a_state("u", sorted_, key=["it.key_resolver"], spider="it")
    assert "only a run of its spider can call it" in fails(frontier, "explain", f"{SITE}/", "--state", "u")


def test_control_characters_from_the_network_are_replaced(frontier):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/1")])
        for lease in await each.lease(1, 5.0):
            await each.nack(lease, "bad\x1b[2J\nthing", None, 5.0)

    a_state("s", scenario)
    for argv in (("list",), ("status",), ("explain", f"{SITE}/1")):
        result = frontier(*argv, "--state", "s")
        assert "\x1b" not in result.out
        assert "bad?[2J thing" in result.out


# Changes.


def test_requeue(frontier, state):
    assert frontier("requeue", "--state", state, "--reason", "503").out == "0 URLs queued again\n"
    assert frontier("requeue", "--state", state).out == "1 URL queued again\n"
    assert frontier("requeue", "--state", state, "--json").json == [{"requeued": 0}]
    (row,) = frontier("list", "--state", state, "--url", "*/1", "--json").json
    assert (row["state"], row["attempts"]) == ("queued", 0)
    assert frontier("requeue", "--state", state, "--done", "--before", "1h", "--into", "next").out.startswith("1 URL ")
    states = {row["segment"]: row["state"] for row in frontier("list", "--state", state, "--url", "*/0", "--json").json}
    assert states == {"": "done", "next": "queued"}
    (known,) = frontier("status", "--state", state, "--json").json
    assert (known["done"], known["dead"]) == (1, 0)


def test_requeue_of_many_urls_commits_in_slices(frontier, monkeypatch):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/{number}") for number in range(500)])
        for lease in await each.lease(500, 5.0):
            await each.nack(lease, "503", None, 5.0)

    a_state("s", scenario)
    monkeypatch.setattr(changes, "SLICE", 40)
    assert frontier("requeue", "--state", "s").out == "500 URLs queued again\n"
    (known,) = frontier("status", "--state", "s", "--json").json
    assert (known["queued"], known["dead"]) == (500, 0)


def test_only_the_last_dropped_segments_are_listed(frontier):
    async def scenario(opened: Any) -> None:
        await opened.push([record(f"{SITE}/1", segment=f"2026-11-21T{hour:02}") for hour in range(14)])
        for hour in range(12):
            opened.drop(f"2026-11-21T{hour:02}")

    a_state("s", scenario)
    listed = frontier("segments", "--state", "s")
    rows = [row[:2] for row in listed.rows]
    live = [[f"2026-11-21T{hour:02}", "open"] for hour in (12, 13)]
    assert rows == [*live, *([f"2026-11-21T{hour:02}", "dropped"] for hour in range(2, 12))]
    assert "not shown: 2 segments dropped earlier; --json lists all" in listed.err
    assert len(frontier("segments", "--state", "s", "--json").json) == 14


def test_drop(frontier, state):
    assert "'tuesday'" in fails(frontier, "drop", "tuesday", "--state", state)
    assert "-O" in fails(frontier, "drop", "", "--state", state)
    assert "the segment has 1 URL not fetched yet" in fails(frontier, "drop", "monday", "--state", state)
    assert frontier("drop", "monday", "--force", "--state", state).out == "segment monday dropped: 1 URL forgotten\n"
    assert [each["state"] for each in frontier("segments", "--state", state, "--json").json] == ["open", "dropped"]
    assert "a segment that was dropped: monday" in frontier("explain", f"{SITE}/7", "--state", state).out


@pytest.mark.parametrize("argv", ["list", "list --json", "export", "export rows.jsonl", "requeue", "requeue --done"])
def test_unknown_segment_is_reported_with_the_nearest_name(frontier, state, argv):
    message = fails(frontier, *argv.split(" "), "--segment", "mon", "--state", state)
    assert message == "there is no segment 'mon': the nearest is 'monday'; lycosa frontier segments lists them"
    frontier("drop", "monday", "--force", "--state", state)
    assert "segment 'monday' was dropped" in fails(frontier, *argv.split(" "), "--segment", "monday", "--state", state)
    assert not list(Path.cwd().glob("rows*"))


def test_missing_unnamed_segment_is_reported(frontier):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/1", segment="monday")])

    message = fails(frontier, "list", "--segment", "", "--state", a_state("s", scenario))
    assert message.startswith("there is no segment without a name: ")


def test_verify_and_compact(frontier):
    path = a_state("s")
    assert frontier("verify", "--state", path).out == "no errors found\n"
    assert frontier("verify", "--state", path, "--json").json == [{"found": []}]
    assert " before, " in frontier("compact", "--state", path).out
    assert sorted(frontier("compact", "--state", path, "--json").json[0]) == ["after_bytes", "before_bytes"]
    with live(path):
        assert frontier("verify", "--state", path).out == "no errors found\n"
        assert " before, " in frontier("compact", "--state", path).out


def test_verify_prints_errors_with_exit_code_1(frontier, monkeypatch):
    path = a_state("s")
    monkeypatch.setattr(LocalOperations, "verify", lambda self, say: _found(say))
    result = frontier("verify", "--state", path, code=1)
    assert result.out == "row 5 is\x1b odd\n".replace("\x1b", "?") + "1 error found\n"


async def _found(say: Callable[[str], None]) -> list[str]:
    say("50 %")
    return ["row 5\nis\x1b odd"]


# Export and import.


def exported(frontier: Callable[..., CommandResult], state: object, *argv: object) -> list[dict[str, Any]]:
    return sorted(frontier("export", "-", "--state", state, *argv).json, key=lambda row: row["url"])


def test_export_and_import_again(frontier, state):
    result = frontier("export", "rows.jsonl", "--state", state)
    assert (result.out, result.err) == ("", "8 URLs exported to rows.jsonl\n")
    lines = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert {line["url"][-1] for line in lines} == set("01234567")
    a_state("t", _nothing)
    result = frontier("import", "rows.jsonl", "--state", "t")
    assert result.out == "7 URLs queued, 0 already known, 1 skipped because done or archived\n"
    rows = {line["url"][-1]: line for line in exported(frontier, "t")}
    (three,) = [line for line in lines if line["url"].endswith("3")]
    assert (three["method"], three["callback"], three["priority"]) == ("POST", "parse_it", 3)
    assert _without(rows["3"], "at", "state") == _without(three, "at", "state")
    assert (rows["1"]["state"], rows["1"].get("attempts"), rows["1"].get("reason")) == ("queued", None, None)
    assert (rows["6"]["state"], rows["6"]["not_before"]) == ("delayed", 4e9)
    assert rows["7"]["segment"] == "monday"
    assert frontier("import", "rows.jsonl", "--state", "t").out.startswith("0 URLs queued, 7 already known")
    assert frontier("import", "rows.jsonl", "--state", "t", "--all").out == "1 URL queued, 7 already known\n"
    assert exported(frontier, "t", "--url", "*/0")[0]["etag"] == '"e"'


def _without(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in names}


async def _nothing(frontier: Any) -> None:
    return


def test_export_of_a_selection(frontier, state):
    assert [row["url"] for row in exported(frontier, state, "--status", "dead")] == [f"{SITE}/1"]


def test_export_never_overwrites_or_leaves_a_partial_file(frontier, monkeypatch):
    path = a_state("s")
    Path("there.jsonl").write_text("mine")
    assert "there.jsonl exists" in fails(frontier, "export", "there.jsonl", "--state", path)
    assert Path("there.jsonl").read_text() == "mine"
    assert "cannot be written" in fails(frontier, "export", "no/folder.jsonl", "--state", path, code=3)
    monkeypatch.setattr(changes, "to_line", lambda row: 1 / 0)
    frontier("export", "half.jsonl", "--state", path, code=3)
    assert sorted(each.name for each in Path.cwd().glob("half*")) == []


def test_import_of_plain_urls(frontier, state):
    text = f"\n# seeds\n{SITE}/new1\r\n  {SITE}/new2#part  \n\n{SITE}/4\n{SITE}/new3"
    Path("seeds.txt").write_text(text)
    assert frontier("import", "seeds.txt", "--state", state).out == "3 URLs queued, 1 already known\n"
    assert frontier("import", "seeds.txt", "--state", state, "--json").json == [
        {"queued": 0, "known": 4, "left_out": 0, "bad": 0}
    ]
    options = ("--segment", "next", "--priority", 9)
    assert frontier("import", "seeds.txt", "--state", state, *options).out == "4 URLs queued, 0 already known\n"
    rows = frontier("list", "--state", state, "--segment", "next", "--json").json
    assert {(row["url"], row["priority"]) for row in rows} == {
        (f"{SITE}/{name}", 9) for name in ("new1", "new2", "new3", "4")
    }


def test_import_creates_a_missing_state(frontier, state):
    frontier("export", "rows.jsonl", "--state", state)
    result = frontier("import", "rows.jsonl", "--state", "new")
    assert result.err == "new: created a new state\n"
    assert result.out == "7 URLs queued, 0 already known, 1 skipped because done or archived\n"
    assert len(exported(frontier, "new")) == 7
    second_import = frontier("import", "rows.jsonl", "--state", "new")
    assert (second_import.err, second_import.out[:14]) == ("", "0 URLs queued,")
    Path("empty").mkdir()
    assert "created" in frontier("import", "rows.jsonl", "--state", "empty").err


def seeds() -> str:
    Path("seeds.txt").write_text(f"{SITE}/1\n")
    return "seeds.txt"


def test_explain_names_the_command_that_starts_an_imported_state(frontier):
    frontier("import", seeds(), "--state", "a state")
    explanation = frontier("explain", f"{SITE}/1", "--state", "a state").out
    assert "no crawl has been started here: lycosa crawl START-URL --state 'a state' starts one" in explanation
    assert "is not running" not in explanation


@pytest.mark.parametrize("step", ["lock", "database", "description"])
def test_partially_created_state_is_completed(frontier, step):
    """The import was killed, or the disk was full, after this step."""
    with closing(StateDir(Path("new"))) as state:
        if step != "lock":
            embedded_frontier(state.frontier, Policy()).store.close()
    if step == "description":
        Path("new/crawl.json.new").write_text('{"for')
    result = frontier("import", seeds(), "--state", "new")
    assert (result.err[:24], result.out[:12]) == ("new: created a new state", "1 URL queued")
    assert len(exported(frontier, "new")) == 1


def test_imported_state_without_its_database_is_not_recreated(frontier):
    frontier("import", seeds(), "--state", "new")
    Path("new/frontier/data.mdb").unlink()
    assert "is missing or empty" in fails(frontier, "import", "seeds.txt", "--state", "new", code=3)


@pytest.mark.parametrize("listens", [True, False], ids=["a crawl", "an import"])
def test_import_waits_while_another_process_creates_the_state(frontier, monkeypatch, listens):
    """The owner of the lock describes the state only after the import has found it locked."""
    owned, met, done = threading.Event(), threading.Event(), threading.Event()

    def find_locked(path: Path) -> StateDir:
        try:
            return StateDir(path)
        except StateLocked:
            met.set()
            raise

    async def run_owner() -> None:
        with closing(StateDir(Path("new"))) as state:
            owned.set()
            assert await asyncio.to_thread(met.wait, 20)
            each = embedded_frontier(state.frontier, POLICY)
            state.describe(Description(imported=True))
            if listens:
                async with serve(state.socket, LocalOperations(each)):
                    await asyncio.to_thread(done.wait, 20)
            await each.close()

    monkeypatch.setattr(operations, "StateDir", find_locked)
    monkeypatch.setattr(operations, "START_MAX_S", 20.0)
    thread = threading.Thread(target=asyncio.run, args=(run_owner(),))
    thread.start()
    try:
        assert owned.wait(20)
        result = frontier("import", seeds(), "--state", "new")
    finally:
        met.set()
        done.set()
        thread.join(20)
    assert (result.err, result.out[:12]) == ("", "1 URL queued")


def test_import_stops_waiting_for_a_locked_state_after_a_while(frontier, monkeypatch):
    monkeypatch.setattr(operations, "START_MAX_S", 0.0)
    with closing(StateDir(Path("new"))):
        result = fails(frontier, "import", seeds(), "--state", "new", code=3)
    assert f"new: the state is open in process {os.getpid()}" in result


def test_import_into_a_wrong_place_creates_nothing(frontier):
    Path("seeds.txt").write_text(f"{SITE}/1\n")
    Path("file").write_text("mine")
    Path("photos").mkdir()
    Path("photos/a.jpg").write_text("mine")
    before = sorted(Path.cwd().rglob("*"))
    assert "the folder no does not exist" in fails(frontier, "import", "seeds.txt", "--state", "no/such")
    assert "not empty: give another --state" in fails(frontier, "import", "seeds.txt", "--state", "photos")
    assert "file is not the state of a crawl" in fails(frontier, "import", "seeds.txt", "--state", "file")
    assert "missing.txt cannot be read" in fails(frontier, "import", "missing.txt", "--state", "new")
    assert "There is no state in .lycosa/" in fails(frontier, "import", "seeds.txt")
    assert "new is not the state of a crawl" in fails(frontier, "list", "--state", "new")
    assert sorted(Path.cwd().rglob("*")) == before


def test_import_from_standard_input(frontier, monkeypatch):
    path = a_state("s")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{SITE}/new\n".encode())))
    assert frontier("import", "-", "--state", path).out == "1 URL queued, 0 already known\n"


def test_invalid_lines_are_reported_and_skipped(frontier, state):
    Path("seeds.txt").write_bytes(
        f"{SITE}/new1\nexample.com\n".encode() + b"\xff\xfe\n{}\n" + f"{SITE}/new2\n".encode()
    )
    result = frontier("import", "seeds.txt", "--state", state, code=1)
    assert result.out == "2 URLs queued, 0 already known, 3 invalid lines skipped\n"
    lines = result.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["line 2", "line 3", "line 4"]
    assert "write https://example.com" in lines[0]


def test_only_the_first_invalid_lines_are_shown(frontier):
    path = a_state("s")
    Path("seeds.txt").write_text("bad\n" * 100)
    result = frontier("import", "seeds.txt", "--state", path, code=1)
    assert result.err.count("\n") == changes.INVALID_SHOWN
    assert "100 invalid lines" in result.out


def test_strict_stops_at_the_first_invalid_line(frontier, state):
    Path("seeds.txt").write_text(f"{SITE}/new1\nbad\n{SITE}/new2\n")
    assert fails(frontier, "import", "seeds.txt", "--strict", "--state", state).startswith(
        "line 2: 'bad' has no scheme"
    )
    assert len(frontier("list", "--state", state, "--url", "*new*").rows) == 1


def test_very_long_line_does_not_fill_the_memory(frontier, monkeypatch):
    path = a_state("s")
    monkeypatch.setattr(changes, "LINE_MAX", 100)
    Path("seeds.txt").write_text(f"{SITE}/new1\n" + "x" * 1000 + f"\n{SITE}/new2\n{SITE}/" + "y" * 60_000)
    result = frontier("import", "seeds.txt", "--state", path, code=1)
    assert result.out == "2 URLs queued, 0 already known, 2 invalid lines skipped\n"
    assert [line.split(":")[0] for line in result.err.splitlines()] == ["line 2", "line 4"]


@pytest.mark.parametrize("name", ["missing.txt", "folder"])
def test_unreadable_file_is_reported(frontier, name):
    path = a_state("s")
    Path("folder").mkdir()
    assert name in fails(frontier, "import", name, "--state", path)


def test_killed_import_can_be_repeated(tmp_path):
    a_state("s", _nothing)
    count = 20_000
    Path("seeds.txt").write_text("".join(f"{SITE}/{number}\n" for number in range(count)))
    code = """
import os, sys
from lycosa.cli.frontier import changes
from lycosa.cli.frontier import frontier as looking
from lycosa.cli.main import main
push, left = changes.Importer._push, [7]
async def killed(self):
    await push(self)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), 9)
if sys.argv[1] == "killed":
    changes.Importer._push = killed
sys.exit(main(["frontier", "import", "seeds.txt", "--state", "s"]))
"""
    done = [
        subprocess.run(
            [sys.executable, "-c", code, ending],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        for ending in ("killed", "whole")
    ]
    assert done[0].returncode == -9
    known = 7 * changes.BATCH_ROWS
    assert done[1].stdout == f"{count - known:,} URLs queued, {known:,} already known\n", done[1].stderr


@pytest.mark.parametrize("verb", ["import", "export", "requeue", "list", "hosts", "verify"])
def test_ctrl_c_stops_long_commands_and_leaves_no_partial_file(tmp_path, verb):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/{number}") for number in range(3000)])
        for lease in await each.lease(1000, 5.0):
            await each.nack(lease, "503", None, 5.0)

    a_state("s", scenario)
    Path("seeds.txt").write_text("".join(f"{SITE}/new{number}\n" for number in range(20_000)))
    arguments = {"import": ["seeds.txt"], "export": ["rows.jsonl"], "list": ["--limit", "0"]}.get(verb, [])
    code = f"""
import os, signal, sys
from lycosa.cli.main import main
from lycosa.frontier.operations import LocalOperations
name = {{"import": "push", "export": "rows", "list": "rows"}}.get({verb!r}, {verb!r})
real = getattr(LocalOperations, name)
async def interrupted(self, *arguments):
    os.kill(os.getpid(), signal.SIGINT)
    return await real(self, *arguments)
setattr(LocalOperations, name, interrupted)
sys.exit(main({["frontier", verb, *arguments, "--state", "s"]!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == "lycosa: interrupted"
    assert len(done.stdout.splitlines()) <= 1100
    assert list(tmp_path.glob("rows*")) == []


# Errors.


def test_default_state(frontier, monkeypatch):
    assert "There is no state in .lycosa/" in fails(frontier, "status")
    a_state(".lycosa/one")
    assert ".lycosa/one: " in frontier("status").out
    a_state(".lycosa/two")
    assert "Give --state with one of .lycosa/one, .lycosa/two" in fails(frontier, "status")
    assert ".lycosa/two: " in frontier("status", "--state", ".lycosa/two").out
    monkeypatch.setenv("LYCOSA_STATE", ".lycosa/one")
    assert ".lycosa/one: " in frontier("status").out


def test_states_of_the_project_are_used_from_a_subfolder(frontier, monkeypatch, tmp_path):
    Path("lycosa.toml").touch()
    (tmp_path / "below" / "deep").mkdir(parents=True)
    monkeypatch.chdir("below/deep")
    assert f"There is no state in {tmp_path}/.lycosa/" in fails(frontier, "status")
    a_state(tmp_path / ".lycosa" / "one")
    assert f"{tmp_path}/.lycosa/one: " in frontier("status").out
    (tmp_path / "lycosa.toml").write_text("home = 'kept'")
    a_state(tmp_path / "kept" / "other")
    assert f"{tmp_path}/kept/other: " in frontier("status").out


@pytest.mark.parametrize("path_", ["nothing", "empty", "file", "foreign"])
def test_path_that_is_not_a_state_is_reported_and_not_changed(frontier, path_):
    path = Path("s")
    if path_ == "file":
        path.write_text("mine")
    elif path_ != "nothing":
        path.mkdir()
    if path_ == "foreign":
        (path / "photo.jpg").write_text("mine")
    before = sorted(path.rglob("*"))
    assert "is not the state of a crawl" in fails(frontier, "status", "--state", "s")
    assert sorted(path.rglob("*")) == before
    assert path.exists() == (path_ != "nothing")


@pytest.mark.parametrize(
    ("description", "message", "code"),
    [
        (b"[]", "is not the description", 3),
        (b"{}", "is not the description", 3),
        (b"\xff", "is not the description", 3),
        (b'{"format":"lycosa-crawl","version":99}', "upgrade Lycosa", 3),
        (b'{"format":"lycosa-crawl","version":%d,"seeds":5}' % VERSION, "is damaged", 3),
        (b'{"format":"lycosa-crawl","version":%d,"name":"x"}' % VERSION, "missing or empty", 3),
    ],
)
def test_damaged_state_prints_one_line(frontier, description, message, code):
    Path("s").mkdir()
    Path("s/crawl.json").write_bytes(description)
    assert message in fails(frontier, "status", "--state", "s", code=code)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("frobnicate", "frobnicate"),
        ("list --status lost", "--status: 'lost' is not one of queued,"),
        ("list --status dead,,", "--status: ''"),
        ("list --limit -1", "-1"),
        ("list --before tomorrow", "--before: 'tomorrow' is neither an age"),
        ("list --before 3y", "--before: '3y' is neither an age"),
        ("list --before 99999999999999999d", "neither an age"),
        ("list --host example.com", "write https://example.com"),
        ("list --url", "requires an argument"),
        ("hosts --sort age", "age"),
        ("explain", "explain needs URL"),
        ("explain example.com", "write https://example.com"),
        ("drop", "drop needs SEGMENT"),
        ("import", "import needs FILE|-"),
        ("import seeds.txt --priority high", "high"),
        ("requeue extra", "extra"),
    ],
)
def test_wrong_usage_prints_one_line(frontier, argv, message):
    a_state(".lycosa/one", _nothing)
    assert message in fails(frontier, *argv.split(" "))


@pytest.mark.parametrize("option", ["--host", "--url", "--reason", "--before"])
def test_empty_option_is_rejected(frontier, option):
    a_state("s")
    assert f"{option} is empty" in fails(frontier, "requeue", "--state", "s", option, "")


def test_owner_without_a_socket_is_reported(frontier, monkeypatch):
    path = a_state("s")
    monkeypatch.setitem(operations.open_state.__wrapped__.__kwdefaults__, "start_max_s", 0.2)
    with closing(StateDir(path)):
        for stale in (False, True):
            if stale:
                create_stale_socket(path / "socket")
            message = fails(frontier, "status", "--state", path, code=3)
            assert f"the state is open in process {os.getpid()}, which does not answer (" in message
            assert ("connection refused" in message) == stale


def create_stale_socket(path: Path) -> None:
    """Create a socket file without a listener."""
    import socket

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_stale_socket_is_ignored(frontier):
    path = a_state("s")
    create_stale_socket(path / "socket")
    assert "stopped" in frontier("status", "--state", path).out
    assert frontier("requeue", "--state", path).out == "1 URL queued again\n"


def test_command_waits_for_an_owner_that_is_about_to_end(frontier):
    path = a_state("s")
    state_dir = StateDir(path)
    timer = threading.Timer(0.3, state_dir.close)
    timer.start()
    assert "stopped" in frontier("status", "--state", path).out
    timer.join()


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is permitted to root")
def test_inaccessible_socket_is_reported(frontier):
    path = a_state("s")
    with live(path):
        (path / "socket").chmod(0)
        assert "no permission to connect to process" in fails(frontier, "status", "--state", path, code=3)


def test_path_of_a_live_state_may_be_long(frontier):
    path = a_state(Path("x" * 100) / ("y" * 100))
    with live(path):
        assert frontier("status", "--state", path, "--json").json[0]["running"]


def test_closed_output_pipe_ends_the_command_quietly():
    path = a_state("s")
    command = f"{sys.executable} -m lycosa frontier list --state {path} --limit 0 | head -1"
    done = subprocess.run(command, shell=True, env=environment(), capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.split()[0]) == ("", "state")


def test_ages_and_times():
    assert parse_time("3d", 1e9) == 1e9 - 3 * 86_400
    assert parse_time(" 1.5h ", 1e9) == 1e9 - 5400
    assert parse_time("2001-09-09T01:46:40+00:00", 0.0) == 1e9
    assert parse_time("2w", 1e9) == 1e9 - 14 * 86_400
    for text in ("", "3", "d", "-3d", "nan", "2026-13-01", "1e9s", "99999w"):
        with pytest.raises(UsageError):
            parse_time(text, 1e9)
    assert format_time(1e300, 0.0) == "1e+300"


# Constant memory.

ROWS = 10_000_000 if PROVE else 200_000
ANON_MAX_MB = 400 if PROVE else 220
WATCHED = """
import sys, threading, time
from lycosa.cli.main import main

def anonymous() -> int:
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

def watch() -> None:
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.005)

peak = [0]
threading.Thread(target=watch, daemon=True).start()
code = main(sys.argv[1:])
print("peak", max(peak[0], anonymous()), file=sys.stderr)
sys.exit(code)
"""


def peak_mb(*argv: object) -> float:
    """Run a command. Return its peak of anonymous memory."""
    command = [sys.executable, "-c", WATCHED, "frontier", *map(str, argv)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-1]) / 1024


def test_many_seeds_stream_in_and_out_in_constant_memory(frontier):
    a_state("s", _nothing)
    with Path("seeds.txt").open("w") as file:
        file.writelines(f"http://host{number % 5000}.example/path/to/page/{number}\n" for number in range(ROWS))
    peaks = {"import": peak_mb("import", "seeds.txt", "--state", "s")}
    peaks["again"] = peak_mb("import", "seeds.txt", "--state", "s")
    peaks["export"] = peak_mb("export", "rows.jsonl", "--state", "s")
    with Path("rows.jsonl").open("rb") as file:
        assert sum(1 for _ in file) == ROWS
    assert max(peaks.values()) < ANON_MAX_MB, peaks
    shutil.rmtree("s")


def test_import_and_requeue_into_a_closed_segment_are_rejected(frontier, tmp_path):
    """Otherwise the URLs would be lost silently."""

    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/1"), record(f"{SITE}/2", segment="monday")])
        for lease in await each.lease(2, 5.0):
            await each.nack(lease, "503", None, 5.0)

    path = a_state("s", scenario)
    frontier("drop", "monday", "--state", path)
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(f'{SITE}/3\n{{"url": "{SITE}/4", "segment": "monday"}}\n{{"url": "{SITE}/5", "segment": "a/b"}}\n')
    result = frontier("import", seeds, "--state", path, code=1)
    assert "line 2: segment 'monday' was dropped and accepts no URLs" in result.err
    assert "line 3: segment 'a/b' is not a valid name" in result.err
    assert result.out.startswith("1 URL queued")
    assert "was dropped" in fails(frontier, "import", seeds, "--segment", "monday", "--state", path)
    assert "was dropped" in fails(frontier, "requeue", "--into", "monday", "--state", path)
    assert "is not a valid name" in fails(frontier, "requeue", "--into", "../x", "--state", path)


def test_last_attempt_of_a_dead_url_is_counted(frontier):
    async def scenario(each: Any) -> None:
        await each.push([record(f"{SITE}/1")])
        (lease,) = await each.lease(1, 5.0)
        await each.nack(lease, "503", None, 5.0)

    (row,) = frontier("list", "--state", a_state("s", scenario), "--json").json
    assert row["attempts"] == 1
