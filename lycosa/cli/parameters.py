"""Kinds of options and arguments, beside those of click."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range; what is none ("nan") is in no range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is not a valid number", param, ctx)
        return found


class NonEmptyText(click.types.StringParamType):
    """A text that is not empty: an empty one is mostly that of a variable that is not set, and meant otherwise."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        if not str(value).strip():
            self.fail("nothing is written there", param, ctx)
        return str(value)


NON_EMPTY = NonEmptyText()
