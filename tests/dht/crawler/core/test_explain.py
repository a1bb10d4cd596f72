"""Why a torrent is not in the store: every state of the queue and of the store, in words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.explain import STOPPED, Answer, HashFacts, answer_of, explain_infohash
from lycosa.dht.crawler.core.hash_records import ANNOUNCED, to_record
from lycosa.dht.crawler.core.retries import retry_at
from lycosa.frontier.core.model import Row
from lycosa.frontier.core.states import State
from lycosa.storage.core.torrent_record import Refusal, Standing, StoredFile, StoredTorrent, TorrentRecord

INFOHASH = bytes(range(20))
RECORD = to_record(INFOHASH)
AT = retry_at(2, 1_000_000.0, 0.0, CrawlOutcome.NO_PEERS)
FAILED = replace(RECORD, attempts=3, not_before=AT)
STORED = StoredTorrent(
    7,
    TorrentRecord(INFOHASH, None, "Big movie", (StoredFile("a", 3000), StoredFile("b", 2000)), 16384, 900),
    seen=950,
    seeders=1,
    leechers=4,
    counted=940,
)


def when(at: float) -> str:
    return f"<{at:.0f}>"


CASES = [
    (
        HashFacts(),
        Answer.NEVER_SEEN,
        ["never queued: no trusted node returned it, and no announce or request of it was accepted"],
    ),
    (
        HashFacts(Row(State.QUEUED, RECORD), runs=True),
        Answer.QUEUED,
        ["in the queue: found in a sample, or imported, waiting for a try"],
    ),
    (
        HashFacts(Row(State.QUEUED, to_record(INFOHASH, ANNOUNCED, 1_700_007_300.0))),
        Answer.QUEUED,
        [
            "in the queue (first queued in the hour from <1700007200>): announced to our node, waiting for a try",
            STOPPED,
        ],
    ),
    (
        HashFacts(Row(State.QUEUED, FAILED), runs=True),
        Answer.QUEUED,
        ["in the queue, to be tried again: 3 failed tries, most recently because no node returned a peer"],
    ),
    (
        HashFacts(Row(State.LEASED, RECORD, 2000.0), runs=True),
        Answer.BEING_TRIED,
        ["being tried now"],
    ),
    (
        HashFacts(Row(State.RETRY, replace(FAILED, attempts=1), AT), runs=True),
        Answer.RETRY,
        [f"next try at <{AT:.0f}>: 1 failed try, most recently because no node returned a peer"],
    ),
    (
        HashFacts(Row(State.DEAD, FAILED, 1500.0, "lease expired"), runs=True),
        Answer.ENDED,
        ["given up at <1500>: lease expired (3 failed tries, most recently because no node returned a peer)"],
    ),
    (
        HashFacts(Row(State.DONE, RECORD, 1500.0, "bad info: no name")),
        Answer.ENDED,
        ["not tried any more at <1500>: bad info: no name"],
    ),
    (
        HashFacts(Row(State.DONE, RECORD, 1500.0, "fetched"), stored=STORED),
        Answer.STORED,
        ["stored at <900>: Big movie (2 files, 5.0 kB)", "1 seeder and 4 leechers at <940>"],
    ),
    (
        HashFacts(stored=STORED),
        Answer.STORED,
        ["stored at <900>: Big movie (2 files, 5.0 kB)", "1 seeder and 4 leechers at <940>"],
    ),
    (
        HashFacts(Row(State.DONE, RECORD, 1500.0, "fetched"), refusal=Refusal(Standing.EVICTED, 9000.0)),
        Answer.EVICTED,
        [
            "evicted to keep the store within its maximum size: it will not be stored before <9000>",
            "fetched at <1500>",
        ],
    ),
    (
        HashFacts(refusal=Refusal(Standing.DENIED, None, "court order 7")),
        Answer.DENIED,
        ["denied (court order 7): it is neither fetched nor stored"],
    ),
]


@pytest.mark.parametrize(("facts", "answer", "lines"), CASES)
def test_the_facts_about_an_infohash_give_an_answer_in_one_word_and_in_sentences(
    facts: HashFacts, answer: Answer, lines: list[str]
) -> None:
    assert answer_of(facts) is answer
    assert explain_infohash(facts, when) == lines


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("private", "fetched at <1500>, but not stored: it is private, so it belongs to a closed tracker"),
        ("fetched", "fetched at <1500>, but not in the store: it was refused or removed, or the store was replaced"),
    ],
)
def test_a_fetched_torrent_that_is_not_in_the_store_is_private_or_was_removed(reason: str, text: str) -> None:
    facts = HashFacts(Row(State.DONE, RECORD, 1500.0, reason))
    assert answer_of(facts) is Answer.ENDED
    assert explain_infohash(facts, when) == [text]


def test_the_cases_cover_every_answer() -> None:
    assert {answer for _, answer, _ in CASES} == set(Answer)


@pytest.mark.parametrize("state", [each for each in State if each is not State.NEW])
def test_every_state_has_an_answer(state: State) -> None:
    assert explain_infohash(HashFacts(Row(state, RECORD, 1.0, "because")), when)
