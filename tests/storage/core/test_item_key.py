"""Keys of items (C8): no two items of a crawl have the same."""

from __future__ import annotations

from lycosa.storage.core.item_key import ItemKey


def test_keys_tell_pages_segments_and_items_apart():
    pages = [
        (segment, fingerprint, number)
        for segment in ("", "day", "day/1")
        for fingerprint in (0, 1, 2**64 - 1)
        for number in (0, 1)
    ]
    keys = {ItemKey("http://a/", fingerprint, n, segment).text("crawl") for segment, fingerprint, n in pages}
    assert len(keys) == len(pages)
    assert ItemKey("http://a/", 255, 3, "2026-01-01").text("a") == "a/2026-01-01/00000000000000ff/3"
