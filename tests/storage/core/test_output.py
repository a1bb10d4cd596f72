"""How users name outputs (C8)."""

from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.storage.core.output import Output, parse_output

STREAM = "redis://:secret@h:6379/0?stream=x"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("items.jsonl", Output("items.jsonl")),
        ("a/b.2026.ndjson", Output("a/b.2026.ndjson")),
        ("items.JL.GZ", Output("items.JL.GZ", "jsonl", ".gz")),
        ("items.csv", Output("items.csv", "csv")),
        ("items.csv.zst", Output("items.csv.zst", "csv", ".zst")),
        ("items.json", Output("items.json", "json")),
        ("items.json.gz", Output("items.json.gz", "json", ".gz")),
        ("items.sqlite", Output("items.sqlite", "sqlite")),
        ("items:csv", Output("items", "csv")),
        ("items.txt:jsonl.gz", Output("items.txt", "jsonl", ".gz")),
        ("a:b/items.csv", Output("a:b/items.csv", "csv")),
        ("-", Output("")),
        ("-:csv", Output("", "csv")),
        (STREAM, Output("", stream=STREAM)),
    ],
)
def test_outputs_by_suffix_or_format(text: str, output: Output) -> None:
    assert parse_output(text) == output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("items", "'items': write a file that ends in .jsonl, .json, .csv or .sqlite"),
        ("items.xml", "write a file that ends in"),
        ("items.gz", "write a file that ends in"),
        ("items.csv:xml", "write a file that ends in"),
        (":csv", "write a file that ends in"),
        ("", "write a file that ends in"),
        ("items.sqlite.gz", "a database cannot be compressed: write 'items.sqlite'"),
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
