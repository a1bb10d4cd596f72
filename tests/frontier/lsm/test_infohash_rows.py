"""Rows of infohashes come back as they were, packed or not, and so do those that earlier versions wrote."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.hash_records import to_record
from lycosa.dht.crawler.core.retries import COUNTED_MAX, retry_at
from lycosa.frontier.core.model import RECORD_VERSION, Extras, UrlRecord
from lycosa.frontier.lsm.done_rows import done_row, record_of
from lycosa.frontier.lsm.infohash_rows import (
    arrival_of,
    decode_delayed,
    decode_done_row,
    decode_queued,
    delayed_key,
    delayed_row,
    due_ms,
    key_of,
    mark_of,
    queued_row,
)
from lycosa.frontier.lsm.rows import encode

NOW = 1_790_000_000.0
NEW = to_record(bytes(range(20)), 1, NOW)
FAILED = replace(NEW, attempts=60_000, not_before=retry_at(5, NOW, 0.3, CrawlOutcome.NO_PEERS))
POSTPONED = replace(FAILED, not_before=NOW + CrawlOutcome.POSTPONED / 1000 + COUNTED_MAX / 1_000_000)
PAGE = UrlRecord(RECORD_VERSION, 7, "https://a.example/b", "https://a.example:443", not_before=2.0)
UNUSUAL = [
    PAGE,
    replace(PAGE, extras=Extras(), url="https://a.example/"),
    replace(FAILED, fingerprint=7),
    replace(FAILED, priority=2),
    replace(FAILED, attempts=1 << 16),
    replace(FAILED, depth=1 << 19),
    replace(FAILED, segment="2026"),
    replace(FAILED, guarded=True),
    replace(FAILED, url="dht:" + bytes(range(20)).hex().upper()),
    replace(FAILED, not_before=NOW + 0.000_000_5),
]


@pytest.mark.parametrize("record", [NEW, FAILED, POSTPONED, *UNUSUAL])
def test_queued_and_delayed_records_come_back(record: UrlRecord) -> None:
    key = delayed_key(record.not_before, 5)
    for row_of, decode in ((delayed_row, decode_delayed), (queued_row, decode_queued)):
        row = row_of(record)
        assert isinstance(row, bytes) == (record not in UNUSUAL)
        assert decode(key, row if isinstance(row, bytes) else encode(row)) == record


def test_a_delayed_infohash_takes_26_bytes() -> None:
    row = delayed_row(FAILED)
    assert isinstance(row, bytes)
    assert len(row) == 26


@pytest.mark.parametrize("record", [NEW, *UNUSUAL])
@pytest.mark.parametrize("reason", ["fetched", "refused: names", ""])
def test_done_records_come_back(record: UrlRecord, reason: str) -> None:
    done = decode_done_row(b"", done_row(record, 3, reason, NOW, None))
    assert (done.host, done.reason, done.at) == (3, reason, int(NOW))
    expected = replace(record, segment="", attempts=0, not_before=0.0)
    assert record_of(done, record.host, "") == expected


def test_a_delayed_record_is_found_by_its_mark() -> None:
    key = delayed_key(NOW, 5)
    assert (due_ms(key), arrival_of(key)) == (int(NOW) * 1000, 5)
    assert key_of(mark_of(key)) == key
    assert key_of((5).to_bytes(6)) is None


def test_rows_and_keys_of_earlier_versions_are_read() -> None:
    short = [0, FAILED.fingerprint, bytes(range(20)), "dht:", FAILED.not_before, 60_000, 1, FAILED.depth]
    key = delayed_key(NOW, 5)[:8] + (5).to_bytes(8)
    assert decode_delayed(key, encode(short)) == FAILED
    assert (due_ms(key), arrival_of(key)) == (int(NOW) * 1000, 5)
    assert mark_of(key) == b"s" + key
    assert key_of(b"s" + key) == key
