"""Items as CSV: cells, columns, header (C8)."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Any

from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.formats import Csv
from tests.storage.written_sinks import put, run_error


def csv_text(tmp_path: Path, *batches: list[Any], fields: tuple[str, ...] = ()) -> str:
    async def write() -> None:
        sink = FileSink(tmp_path / "i.csv", Csv("i.csv", fields))
        await sink.open(None)
        for batch in batches:
            for item in batch:
                put(sink, item)
            await sink.flush()
        await sink.close()

    asyncio.run(write())
    return (tmp_path / "i.csv").read_bytes().decode()


def test_cells_of_a_csv_file_are_read_back(tmp_path):
    texts = ['a"b', "a,b", "a\nb", "a\rb", "a\r\nb", " a ", "", "=1+1", "ä\u2028😀", "a\0b"]
    csv_text(tmp_path, [{"n": n, "text": text} for n, text in enumerate(texts)])
    with (tmp_path / "i.csv").open(newline="", encoding="utf-8") as file:
        assert [row["text"] for row in csv.DictReader(file, strict=True)] == texts


def test_values_of_a_csv_file(tmp_path):
    item = {"b": True, "none": None, "l": ["x", 1, False], "d": {"a": 1}, "ll": [[1], None], "f": 1.5, "i": 2**70}
    assert csv_text(tmp_path, [item]).splitlines() == [
        "b,none,l,d,ll,f,i",
        f'true,,"x,1,false","{{""a"":1}}","[[1],null]",1.5,{2**70}',
    ]


def test_columns_are_those_of_the_first_batch_with_fields_and_later_fields_are_counted(tmp_path, caplog):
    written = csv_text(tmp_path, [{}], [{"a": 1}, {"b": 2}], [{"c": 3, "a": 4}, {"c": 5}, {"d": 6}])
    assert written.split() == ["a,b", "1,", ",2", "4,", ",", ","]
    assert "fields without a column were left out: c (2), d (1); name the columns with --fields" in caplog.text


def test_chosen_columns_come_in_their_order_and_without_a_warning(tmp_path, caplog):
    assert csv_text(tmp_path, [{"a": 1, "b": 2, "c": 3}], fields=("c", "x", "a")).split() == ["c,x,a", "3,,1"]
    assert caplog.text == ""


def test_the_columns_of_a_file_are_kept_and_others_refused(tmp_path):
    csv_text(tmp_path, [{"a": 1, "b": 2}])
    assert csv_text(tmp_path, [{"b": 3, "c": 4}]).split() == ["a,b", "1,2", ",3"]
    assert csv_text(tmp_path, [{"b": 5}], fields=("a", "b")).split()[-1] == ",5"
    message = run_error(FileSink(tmp_path / "i.csv", Csv("i.csv", ["b", "a"])), None)
    assert "i.csv has the columns a,b, not b,a: continue without --fields" in message


def test_a_header_can_always_be_read_again(tmp_path):
    item = {f"{'n' * 100}{number}": number for number in range(20_000)}
    csv_text(tmp_path, [item])
    before = (tmp_path / "i.csv").read_text().splitlines()[0]
    assert len(before) < 1_000_000
    csv_text(tmp_path, [item])
    header, *rows = (tmp_path / "i.csv").read_text().splitlines()
    assert header == before
    assert [len(row.split(",")) for row in rows] == [len(header.split(","))] * 2
