"""Arrays in JSON texts, read entry by entry: the result of a complete decoder, with less memory."""

from __future__ import annotations

import json
import random
import string
import tracemalloc
from typing import Any

import pytest

from lycosa.core.errors import BadProxy
from lycosa.proxies.core.sources import json_array
from lycosa.proxies.core.sources.json_array import ENTRY_MAX, Step, read_array


def values(text: str, path: list[Step] | None = None) -> list[object]:
    return [each.value for each in read_array(text, path)]


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        ([], None, []),
        ([1, "a", None, {"b": [2]}], None, [1, "a", None, {"b": [2]}]),
        ({"count": 3, "note": "[{", "data": {"no": 1, "list": ["x"]}}, None, ["x"]),
        ({"a": {"b": {"c": {"d": [1]}}}}, None, "this JSON holds no array of proxies"),
        ({"a": {"b": 1}, "c": [1]}, None, "this JSON holds no array of proxies"),
        ("text", None, "this JSON holds no array of proxies"),
        ({"a": [[1], {"b\\": [], "b": [7, 8]}], "c": 1}, ["a", 1, "b"], [7, 8]),
        ({"a": [[1], [2, 3]]}, ["a", 1], [2, 3]),
        ([1], [], [1]),
        ({"a": 1}, [], "this JSON has no array at x"),
        ({"a": {"b": 1}}, ["a", "b"], "this JSON has no array at x"),
        ({"a": [1]}, ["a", 1], "this JSON has no array at x"),
        ({"a": [1]}, ["a", "b"], "this JSON has no array at x"),
        ([1], ["a"], "this JSON has no array at x"),
    ],
)
def test_the_array_at_a_path_is_found(data: object, path: list[Step] | None, expected: object) -> None:
    for text in (json.dumps(data), json.dumps(data, indent=3), f" \n{json.dumps(data, ensure_ascii=False)}\t"):
        if isinstance(expected, str):
            with pytest.raises(BadProxy) as caught:
                read_array(text, path, "" if path is None else "x")
            assert str(caught.value) == expected
        else:
            assert values(text, path) == expected


def test_each_entry_has_its_line() -> None:
    entries = read_array('{\n"a": [\n 1, 2,\n\n {\n"b": 3},\n "c"]}')
    assert [(each.line, each.value) for each in entries] == [(3, 1), (3, 2), (5, {"b": 3}), (7, "c")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1,\n2,\n3", "line 3: unexpected end"),
        ("[1,\n2 3]", "line 2: expected ',' or ']'"),
        ('[1,\n"é",\n\n,]', "line 4: invalid character"),
        ("[1]\n[2]", "line 2: trailing characters"),
        ("", "line 1: unexpected end"),
        ("[NaN]", "line 1: invalid character"),
        ("[" * 100_000 + "]" * 100_000, "it is nested too deeply"),
    ],
)
def test_the_error_for_invalid_json_has_the_line(text: str, message: str) -> None:
    with pytest.raises(BadProxy) as caught:
        read_array(text)
    assert str(caught.value) == f"this is not JSON: {message}"


def test_entries_equal_those_of_the_json_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "ENTRY_MAX", 300)  # so that the text is read in many windows
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)

    def random_value(depth: int) -> Any:
        kind = rng.randrange(8 if depth else 6)
        if kind < 2:
            return "".join(rng.choices(string.printable + '"\\[]{},:é\U0001f577', k=rng.randrange(12)))
        if kind < 6:
            return rng.choice([True, False, None, 0, -1, 80, 1.5, 2e30, 1 << 62])
        children = [random_value(depth - 1) for _ in range(rng.randrange(4))]
        return children if kind == 6 else {str(each)[:8]: each for each in children}

    for _ in range(300):
        data = [random_value(2) for _ in range(rng.randrange(40))]
        text = json.dumps(data, indent=rng.choice([None, 0, 2]), ensure_ascii=rng.random() < 0.5)
        assert values(text) == data, (seed, text)
        assert values(f'{{"x": {text[:0]}{json.dumps(random_value(0))}, "a b": {text}}}', ["a b"]) == data, (seed, text)


def test_the_length_of_an_entry_is_limited() -> None:
    longest = "x" * (ENTRY_MAX - 2)
    assert values(json.dumps(["a" * 60_000, longest, longest, 7])) == ["a" * 60_000, longest, longest, 7]
    for long in (f'"{longest * 2}"', "[" + "[]," * ENTRY_MAX + "[]]", "1" * (2 * ENTRY_MAX + 1)):
        with pytest.raises(BadProxy, match="line 2: an entry has more than 65,536 characters"):
            values(f"[1,\n{long}]")


def test_huge_numbers_are_read_as_infinity() -> None:
    assert values("[8080, 8080.0, " + "1" * 5_000 + "]") == [8080, 8080.0, float("inf")]


def test_the_number_of_skipped_values_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "SKIPPED_MAX", 100)
    for before in ('"a": 1,' * 101, '"a": ' + "[" * 60 + "]" * 60 + ","):
        with pytest.raises(BadProxy, match="more than 100 values come before the array"):
            read_array("{" + before + '"b": [1]}', ["b"])
    assert values("{" + '"a": 1,' * 100 + '"b": [1]}', ["b"]) == [1]


@pytest.mark.parametrize("small", ["[]", "{}", '{"a":1}', '"a"'])
def test_many_small_entries_take_little_memory(small: str) -> None:
    text = f"[{','.join([small] * 100_000)}]"
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_array(text)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < len(text) + 2_000_000
    finally:
        tracemalloc.stop()
