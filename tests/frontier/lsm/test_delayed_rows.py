"""Delayed records come back as they were, whichever form their rows have."""

from __future__ import annotations

import pytest

from lycosa.frontier.core.model import RECORD_VERSION, Extras, UrlRecord
from lycosa.frontier.lsm.delayed_rows import SHORT, decode_delayed, delayed_row
from lycosa.frontier.lsm.rows import encode

INFOHASH = UrlRecord(RECORD_VERSION, 2**63, "dht:" + "ab" * 20, "dht:", priority=1, not_before=1.5, attempts=3)
PAGE = UrlRecord(RECORD_VERSION, 7, "https://a.example/b", "https://a.example:443", not_before=2.0)


@pytest.mark.parametrize(
    "record",
    [INFOHASH, PAGE, UrlRecord(RECORD_VERSION, 7, "https://a.example/", "https://a.example:443", extras=Extras())],
)
def test_a_delayed_record_comes_back(record: UrlRecord) -> None:
    row = delayed_row(record)
    assert isinstance(row, bytes) == (record is INFOHASH)
    stored = row if isinstance(row, bytes) else encode(row)
    assert stored.startswith(SHORT) == (record is INFOHASH)
    assert decode_delayed(stored) == record
