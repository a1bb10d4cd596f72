"""Keys of items (C8): all items of a crawl have different keys."""

from __future__ import annotations

from lycosa.storage.core.item_key import ItemKey


def test_keys_differ_by_page_segment_and_item():
    pages = [
        (segment, fingerprint, number)
        for segment in ("", "day", "day/1")
        for fingerprint in (0, 1, 2**64 - 1)
        for number in (0, 1)
    ]
    keys = {ItemKey("http://a/", fingerprint, n, segment).text("crawl") for segment, fingerprint, n in pages}
    assert len(keys) == len(pages)
    assert ItemKey("http://a/", 255, 3, "2026-01-01").text("a") == "a/2026-01-01/00000000000000ff/3"
