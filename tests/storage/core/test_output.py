"""How users name outputs (C8)."""

from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.storage.core.output import OutputTarget, parse_output

STREAM = "redis://:secret@h:6379/0?stream=x"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("items.jsonl", OutputTarget("items.jsonl")),
        ("a/b.2026.ndjson", OutputTarget("a/b.2026.ndjson")),
        ("items.JL.GZ", OutputTarget("items.JL.GZ", "jsonl", ".gz")),
        ("items.csv", OutputTarget("items.csv", "csv")),
        ("items.csv.zst", OutputTarget("items.csv.zst", "csv", ".zst")),
        ("items.json", OutputTarget("items.json", "json")),
        ("items.json.gz", OutputTarget("items.json.gz", "json", ".gz")),
        ("items.sqlite", OutputTarget("items.sqlite", "sqlite")),
        ("items:csv", OutputTarget("items", "csv")),
        ("items.txt:jsonl.gz", OutputTarget("items.txt", "jsonl", ".gz")),
        ("items:2.csv", OutputTarget("items:2.csv", "csv")),
        ("a:b/items.csv", OutputTarget("a:b/items.csv", "csv")),
        ("-", OutputTarget("")),
        ("-:csv", OutputTarget("", "csv")),
        (STREAM, OutputTarget("", stream=STREAM)),
    ],
)
def test_outputs_by_suffix_or_format(text: str, output: OutputTarget) -> None:
    assert parse_output(text) == output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("items", "'items': write a file that ends in .jsonl, .json or .csv"),
        ("items.xml", "write a file that ends in"),
        ("items.csv:", "write a file that ends in"),
        ("folder/", "write a file that ends in"),
        (".csv", "write a file that ends in"),
        ("items.csv.zip", "write a file that ends in"),
        ("items.gz", "write a file that ends in"),
        ("items.csv:xml", "write a file that ends in"),
        (":csv", "write a file that ends in"),
        ("", "write a file that ends in"),
        ("items.sqlite.gz", "a database cannot be compressed: write 'items.sqlite'"),
        ("items:sqlite.gz", "a database cannot be compressed: write 'items:sqlite'"),
        ("-:json", "standard output takes jsonl or csv"),
        ("-:csv.gz", "uncompressed"),
        ("ftp://h/x.csv", "items go to a file, or to a stream in Redis"),
    ],
)
def test_other_outputs_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_output(text)
    assert message in str(caught.value)


def test_messages_have_no_password() -> None:
    assert "secret" not in parse_output(STREAM).text
