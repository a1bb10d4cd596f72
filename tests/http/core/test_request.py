"""Header fields of a request (C8)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lycosa import Request


@pytest.mark.parametrize(
    "values",
    [["a", b"b", 3], ("a", "b", "3"), (each for each in ("a", "b", 3)), {"a": 1, "b": 2, 3: 3}.keys(), map(str, "ab3")],
    ids=["list", "tuple", "generator", "keys", "map"],
)
def test_several_values_of_a_field_are_joined(values: Iterable[object]) -> None:
    request = Request("http://a.example/", headers={"X-Values": values})
    assert request.headers["x-values"] == "a, b, 3"
