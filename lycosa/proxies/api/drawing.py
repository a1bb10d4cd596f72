"""Calculates small SVG drawings: a sparkline of latencies, and a bar of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lycosa.proxies.core.pool.target_state import ProxyState

WIDTH, HEIGHT, EDGE = 120.0, 24.0, 2.0
RANGE_MIN = 0.3
"""Minimum range of a sparkline, as a share of the highest value: small changes must look small."""

BAR = 100.0
PART_MIN = 1.5
"""Minimum width of a part, in the same unit as BAR: even one proxy in a thousand must be visible."""


class Sparkline(NamedTuple):
    """The points of each polyline, and the last point (None if the last value is unknown)."""

    pieces: list[str]
    end: tuple[float, float] | None


class BarPart(NamedTuple):
    """One state in a bar."""

    state: ProxyState
    number: int
    x: float
    width: float


def sparkline(values: Sequence[float | None]) -> Sparkline | None:
    """Return a sparkline with a gap at each None; None if no value is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    height = max(high - low, RANGE_MIN * high) or 1.0  # 1.0: all values are zero
    bottom, step = (low + high - height) / 2, (WIDTH - 2 * EDGE) / max(1, len(values) - 1)
    pieces: list[list[tuple[float, float]]] = [[]]
    point: tuple[float, float] | None = None
    for index, value in enumerate(values):
        if value is None:
            point = None
            pieces.append([])
        else:
            point = (EDGE + index * step, EDGE + (HEIGHT - 2 * EDGE) * (1 - (value - bottom) / height))
            pieces[-1].append(point)
    lines = [" ".join(f"{x:.1f},{y:.1f}" for x, y in piece) for piece in pieces if len(piece) > 1]
    return Sparkline(lines, point)


def bar(counts: Mapping[ProxyState, int]) -> list[BarPart]:
    """Return the parts of a bar. States without proxies have none."""
    present = [(state, counts[state]) for state in ProxyState if counts.get(state)]
    total = sum(count for _, count in present)
    # Small parts are widened first, so the sum may exceed BAR: all are scaled to fit.
    widths = [max(PART_MIN, BAR * count / total) for _, count in present]
    scale, x, parts = BAR / sum(widths) if widths else 0.0, 0.0, []
    for (state, count), width in zip(present, widths, strict=True):
        parts.append(BarPart(state, count, round(x, 2), round(width * scale, 2)))
        x += width * scale
    return parts
