"""The parts of a crawl over several processes: what they say, who starts when, what is added up (C5, F8)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.core.errors import BadSpider, StateError
from lycosa.crawl.engine.verdict import Closing, Failed, NotYet
from lycosa.crawl.engine.visit import Done
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.workers import messages as say
from lycosa.crawl.workers import request_pacer as starts_module
from lycosa.crawl.workers.counts import Counts, SharedStats
from lycosa.crawl.workers.link import Link
from lycosa.crawl.workers.remote import AllCookies, FarAddresses, FarFrontier, FarLog, FarStore
from lycosa.crawl.workers.request_pacer import Pace, Starts
from lycosa.crawl.workers.visits import Visits
from lycosa.crawl.workers.worker import Hand
from lycosa.crawl.workers.worker_pool import ALONE_MAX, DEATHS_MAX, KILLS_ITS_PROCESS, Hands
from lycosa.frontier.core.model import Extras, HostFacts, Lease, UrlRecord
from lycosa.frontier.core.recent_fingerprints import Known
from lycosa.frontier.ports import VisitFrontier
from lycosa.http.core.model import Validators
from lycosa.storage.keystore.memory import MemoryRecords
from lycosa.storage.keystore.sqlite import SqliteRecords

HOST = "http://a.example:80"
RECORD = UrlRecord(1, 2**64 - 1, f"{HOST}/é", HOST, "day", 3, extras=Extras("POST", body=b"\0\xff", meta={"a": [1]}))
OUTCOMES = [
    Done("200", [[b"{}", b"{}"]], [RECORD], page=True, bytes=7, validators=Validators("e", "", 1.5), closing="enough"),
    Done("robots", contacted=False),
    Failed("timeout", 12.5, 13.5),
    Failed("dead", contacted=False),
    NotYet(99.5),
    Closing("enough"),
]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_arrives_as_it_was_sent(outcome):
    told = say.decode_report(say.told(7, outcome)[say.LENGTH.size :])
    assert told.token == 7
    found = say.outcome_of(told)
    assert type(found) is type(outcome)
    assert [list(each) if isinstance(each, (list, tuple)) else each for each in found] == [
        list(each) if isinstance(each, (list, tuple)) else each for each in outcome
    ]


def test_results_that_are_too_long_are_a_failure_of_their_page(monkeypatch):
    monkeypatch.setattr(say, "MESSAGE_MAX", 1000)
    told = say.decode_report(say.told(7, Done("200", [[b"x" * 2000]]))[say.LENGTH.size :])
    found = say.outcome_of(told)
    assert isinstance(found, Failed)
    assert (found.retry_at, "2,0" in found.reason) == (None, True)


def test_errors_keep_their_class_and_others_become_ours():
    assert type(say.error_of("BadSpider", "x")) is BadSpider
    assert type(say.error_of("os", "x")) is StateError
    assert type(say.error_of("KeyboardInterrupt", "x")) is StateError


class Heard:
    """What came over a link."""

    def __init__(self, decode: Any) -> None:
        self.said: list[Any] = []
        self.gone = asyncio.Event()
        self.stirred = asyncio.Event()
        self.link = Link(decode, self._hear, self.gone.set)

    def _hear(self, said: Any) -> None:
        self.said.append(said)
        self.stirred.set()


async def linked() -> tuple[Heard, socket.socket]:
    ours, theirs = socket.socketpair()
    heard = Heard(say.decode_report)
    await asyncio.get_running_loop().create_unix_connection(lambda: heard.link, sock=ours)
    return heard, theirs


def test_messages_come_whole_in_whatever_pieces():
    async def play():
        heard, other = await linked()
        data = say.encoded(say.Ask(1, HOST)) + say.encoded(say.Stopped(2)) + say.encoded(say.Close("x" * 5000))
        for start in range(0, len(data), 7):
            other.send(data[start : start + 7])
            await asyncio.sleep(0)
        while len(heard.said) < 3:
            heard.stirred.clear()
            await heard.stirred.wait()
        assert heard.said == [say.Ask(1, HOST), say.Stopped(2), say.Close("x" * 5000)]
        other.close()
        await heard.gone.wait()

    asyncio.run(play())


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        say.LENGTH.pack(3) + b"\xc1\xc1\xc1",
        say.encoded(say.Visit(1, RECORD)),
        say.LENGTH.pack(1) + b"\xc0",
    ],
    ids=["too long", "no msgpack", "an order among reports", "nothing"],
)
def test_who_does_not_speak_our_language_is_left(data):
    async def play():
        heard, other = await linked()
        other.sendall(data)
        await asyncio.wait_for(heard.gone.wait(), 60.0)
        assert heard.said == []
        other.close()

    asyncio.run(play())


VISITED: Any = SimpleNamespace(addresses=SimpleNamespace(why_lost=lambda _: ""), engine=SimpleNamespace(stopping=False))
OTHERS: Any = SimpleNamespace(outcome_of_death=lambda *_, **__: NotYet(1.0), stirred=lambda: None)


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_next_start_waits_until_the_one_before_was_told():
    async def play():
        time = Time()
        starts, paces = Starts(time), [Pace(HOST, 0.01)]
        first = await starts.next(paces)
        second = asyncio.create_task(starts.next(paces))
        await asyncio.sleep(0.05)
        assert not second.done(), "nobody knows when the first one starts"
        time.now = 200.0
        first.begun(199.995)
        await asyncio.sleep(0)
        assert not second.done(), "too early"
        time.now = 200.01
        (await second).over()
        assert (await asyncio.wait_for(starts.next(paces), 20.0)) is not None, "one that never started holds nobody up"

    asyncio.run(play())


def test_a_start_that_was_later_than_told_counts():
    async def play():
        time = Time()
        starts, paces = Starts(time), [Pace(HOST, 0.01)]
        (await starts.next(paces)).begun(100.0)
        starts.correct(paces, 100.5)
        time.now = 100.2
        task = asyncio.create_task(starts.next(paces))
        await asyncio.sleep(0.05)
        assert not task.done()
        time.now = 100.52
        await task

    asyncio.run(play())


def test_a_start_that_is_never_told_is_waited_for_no_longer_than_that(monkeypatch):
    async def play():
        monkeypatch.setattr(starts_module, "UNTOLD_MAX_S", 0.05)
        starts, paces = Starts(Time()), [Pace(HOST, 5.0)]
        first = await starts.next(paces)
        monkeypatch.setattr(starts_module, "UNTOLD_MAX_S", 20.0)
        second = await asyncio.wait_for(starts.next(paces), 20.0)
        third = asyncio.create_task(starts.next(paces))
        first.over()
        await asyncio.sleep(0)
        assert not third.done(), "the turn is the second one's"
        second.over()
        (await third).over()

    asyncio.run(play())


def test_who_gives_up_waiting_leaves_both_lines():
    async def play():
        starts, paces = Starts(Time()), [Pace(HOST, 5.0), Pace("192.0.2.1", 5.0)]
        first = await starts.next(paces)
        waits = asyncio.create_task(starts.next([Pace("other", 1.0), Pace("192.0.2.1", 5.0)]))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        first.over()
        for key in (HOST, "other", "192.0.2.1"):
            (await asyncio.wait_for(starts.next([Pace(key, 5.0)]), 20.0)).over()

    asyncio.run(play())


def test_stats_are_added_up_as_they_came_about():
    total = StatsCollector()
    for number in (1, 2):
        stats = SharedStats()
        counts = Counts(stats, RunStats(0.0), lambda: 0)
        stats.inc_value("sum", number)
        stats.max_value("most", number)
        stats.min_value("least", number)
        stats.set_value("last", number)
        apply(total, counts.taken())
        stats.inc_value("sum", 10)
        apply(total, counts.taken())
        apply(total, counts.taken())
    assert total.get_stats() == {"sum": 23, "most": 2, "least": 1, "last": 2}


def apply(total: StatsCollector, told: say.Counted) -> None:
    for name, value in told.sums.items():
        total.inc_value(name, value)
    for name, value in told.most.items():
        total.max_value(name, value)
    for name, value in told.least.items():
        total.min_value(name, value)
    for name, value in told.last.items():
        total.set_value(name, value)


def test_what_is_counted_under_names_that_are_no_texts_is_told():
    sums = {404: 1, None: 2, ("a", 1): 3, "text": 4}
    told = say.decode_report(say.encoded(say.Counted(sums=sums))[say.LENGTH.size :])
    assert told == say.Counted(sums=sums)


@pytest.mark.parametrize(("name", "value"), [("many", 1 << 70), ("half \udc80", 1)])
def test_counts_that_cannot_be_told_end_nothing(caplog, name, value):
    async def play():
        stats = SharedStats()
        visits = Visits(FarFrontier(sent.append, str), FarAddresses(), Known(), RunStats(0.0))
        visits.begin(None, [], AllCookies(), Counts(stats, RunStats(0.0), lambda: 0))  # type: ignore[arg-type]
        visits.link = Link(say.decode_order, visits.hear, str)
        stats.set_value(name, value)
        visits.count()

    sent: list[Any] = []
    asyncio.run(play())
    assert "what was counted here is not told: " in caplog.text


def test_a_line_of_the_log_with_half_a_character_is_told():
    async def play() -> list[Any]:
        sent: list[Any] = []
        log = FarLog(sent.append)
        log.emit(logging.makeLogRecord({"name": "spider", "levelno": 30, "msg": "half \udc80"}))
        await asyncio.sleep(0)
        return sent

    (said,) = asyncio.run(play())
    assert say.decode_report(say.encoded(said)[say.LENGTH.size :]).text == "half ?"


def test_the_frontier_of_a_process_has_every_name_of_its_port_with_the_same_parameters() -> None:
    names = [name for name in vars(VisitFrontier) if not name.startswith("_")]
    assert "claim" in names
    for name in names:
        wanted, there = getattr(VisitFrontier, name), getattr(FarFrontier, name)
        assert list(inspect.signature(there).parameters) == list(inspect.signature(wanted).parameters), name
        assert inspect.iscoroutinefunction(there) == inspect.iscoroutinefunction(wanted), name


def test_a_visit_that_is_given_up_as_its_process_dies_is_over():
    """Nobody is there any more who could say that it was given up."""

    async def play() -> bool:
        hand = Hand(VISITED, Starts(Time()), OTHERS, lambda: None)
        hand.link = Link(say.decode_report, hand.hear, hand.lose)
        visiting = asyncio.create_task(hand.visit(Lease(1, RECORD, 0.0), None))
        await asyncio.sleep(0)
        hand.lose()
        visiting.cancel()
        await asyncio.wait([visiting], timeout=60.0)
        return visiting.cancelled()

    assert asyncio.run(play())


def test_links_left_out_dropped_items_and_hints_are_told_once():
    stats = RunStats(0.0)
    counts = Counts(SharedStats(), stats, lambda: 7)
    stats.skip("scope")
    stats.dropped, stats.known = 2, 3
    stats.note("a hint")
    assert counts.taken() == say.Counted(skipped={"scope": 1}, dropped=2, known=3, notes=["a hint"], memory_bytes=7)
    stats.note("a hint")
    assert counts.taken() == say.Counted(memory_bytes=7)


def test_a_claim_is_granted_or_refused_by_message():
    async def play():
        sent: list[say.Message] = []
        frontier, woken = FarFrontier(sent.append, lambda: None), []
        lease = Lease(5, RECORD, 0.0)
        first = await frontier.claim(HOST, lambda: woken.append(1), 0.0, lease)
        second = await frontier.claim(HOST, lambda: woken.append(2), 0.0)
        assert sent == [say.Claim(1, HOST, 5), say.Claim(2, HOST, 0)]
        assert await frontier.turn(first, 0.0) == float("inf")
        frontier.granted(say.Granted(1, "192.0.2.1"))
        frontier.refused(say.Refused(2, "UsageError", "too many"))
        assert (woken, await frontier.turn(first, 0.0), first.address) == ([1, 2], 0.0, "192.0.2.1")
        with pytest.raises(Exception, match="too many"):
            await frontier.turn(second, 0.0)
        await frontier.unclaim(first, 0.0)
        await frontier.unclaim(first, 0.0)
        await frontier.unclaim(second, 0.0)
        assert sent[2:] == [say.Unclaim(1)]

    asyncio.run(play())


def test_a_question_is_answered_or_refused():
    async def play():
        sent: list[Any] = []
        frontier = FarFrontier(sent.append, lambda: None)
        asked = [asyncio.create_task(frontier.host_facts(HOST)) for _ in range(2)]
        await asyncio.sleep(0)
        frontier.answered(sent[0].number, HostFacts(b"x"))
        frontier.refused(say.Refused(sent[1].number, "StorageError", "no disk"))
        assert await asked[0] == HostFacts(b"x")
        with pytest.raises(StateError, match="no disk"):
            await asked[1]

    asyncio.run(play())


def test_what_a_process_keeps_is_read_from_it_first_and_told():
    sent: list[say.Message] = []
    committed = MemoryRecords()
    committed.put("t", "a", b"1")
    committed.put("t", "b", b"2")
    store = FarStore(committed, sent.append)
    store.put("t", "b", None)
    store.put("t", "c", b"3")
    assert (store.get("t", "a"), store.get("t", "b"), store.get("t", "c")) == (b"1", None, b"3")
    assert list(store.items("t")) == [("a", b"1"), ("c", b"3")]
    assert sent == [say.Keep("t", "b", None), say.Keep("t", "c", b"3")]


def test_what_another_process_has_kept_is_read_when_it_is_there(tmp_path):
    async def play():
        ours, theirs = SqliteRecords(tmp_path / "r"), SqliteRecords(tmp_path / "r", read_only=True)
        assert theirs.get("t", "a") is None
        (tmp_path / "r").touch()
        assert theirs.get("t", "a") is None, "its table is not made yet"
        ours.put("t", "a", b"1")
        await ours.flush()
        assert (theirs.get("t", "a"), list(theirs.items("t"))) == (b"1", [("a", b"1")])
        await theirs.close()
        await ours.close()

    asyncio.run(play())


def test_a_page_is_guilty_only_when_it_was_alone():
    class Owned:
        cookies = AllCookies()

        class clock:  # noqa: N801
            @staticmethod
            def now() -> float:
                return 1.0

    async def play():
        hands = Hands(Owned(), lambda _: None)  # type: ignore[arg-type]
        lease = Lease(1, RECORD, 0.0)
        for _ in range(DEATHS_MAX + ALONE_MAX + 5):
            assert hands.outcome_of_death(lease, alone=False) == NotYet(1.0)
        assert hands.outcome_of_death(lease, alone=True) == Failed(KILLS_ITS_PROCESS)

    asyncio.run(play())
