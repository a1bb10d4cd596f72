"""Line charts as polylines of SVG, which the page scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 100.0, 40.0
STEPS = (1.0, 2.0, 5.0, 10.0)
"""The upper edge of a chart is one of these, times a power of ten."""


class LineChart(NamedTuple):
    """The points of each polyline, and the value of the upper edge; the lower edge is 0."""

    lines: list[str]
    top: float

    @property
    def area(self) -> str:
        return f"0,{HEIGHT:g} {self.lines[0]} {WIDTH:g},{HEIGHT:g}" if self.lines and self.lines[0] else ""


def line_chart(times: Sequence[float], series: Sequence[Sequence[float]]) -> LineChart:
    """Draw values at these ascending times. If there are fewer than two times, the lines are empty."""
    top = round_up(max((value for values in series for value in values), default=0.0))
    if len(times) < 2 or times[-1] <= times[0]:
        return LineChart(["" for _ in series], top)
    xs = [WIDTH * (time - times[0]) / (times[-1] - times[0]) for time in times]
    return LineChart(
        [
            " ".join(f"{x:.2f},{HEIGHT * (1 - value / top):.2f}" for x, value in zip(xs, values, strict=True))
            for values in series
        ],
        top,
    )


def round_up(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten; 1 if `value` is not positive."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in STEPS if value <= step * power * (1 + 1e-9))
