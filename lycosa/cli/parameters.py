"""Types of options and arguments."""

from __future__ import annotations

import math
from typing import Any

import click

from lycosa.core.units import parse_size


class Number(click.FloatRange):
    """A number in a range. NaN, which click accepts, is refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid number", param, ctx)
        return number


class NonEmptyText(click.types.StringParamType):
    """Non-empty text: an empty value usually comes from an unset shell variable."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value).strip():
            self.fail("the value is empty", param, ctx)
        return str(value)


class Size(click.types.IntParamType):
    """A number of bytes: 500000, 10GB or 10G (powers of 1000), 1.5GiB (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        size_bytes = parse_size(text) or parse_size(f"{text}B")
        if not size_bytes:
            self.fail(f"{text!r} is not a size: write 500MB, 10G or 1.5GiB", param, ctx)
        return size_bytes


NON_EMPTY = NonEmptyText()
