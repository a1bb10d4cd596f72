"""Small drawings as numbers for SVG: a line of latencies, a bar of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lycosa.proxies.core.pool.target_state import ProxyState

WIDTH, HEIGHT, EDGE = 120.0, 24.0, 2.0
SPREAD = 0.3
BAR = 100.0
PART_MIN = 1.5
"""Width of the smallest part of a bar, of BAR: one of a thousand is to be seen."""


class Sparkline(NamedTuple):
    """Points of the pieces of a line, and where it ends."""

    pieces: list[str]
    end: tuple[float, float] | None


class BarPart(NamedTuple):
    """One state in a bar."""

    state: ProxyState
    number: int
    x: float
    width: float


def sparkline(values: Sequence[float | None]) -> Sparkline | None:
    """Return a line of values, broken where nothing is known. None when there is none.

    It goes from the least to the greatest, but small changes stay small: the height is SPREAD of the greatest, or more.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    least, greatest = min(known), max(known)
    height = max(greatest - least, SPREAD * greatest) or 1.0
    bottom, step = (least + greatest - height) / 2, (WIDTH - 2 * EDGE) / max(1, len(values) - 1)
    points = [
        None if each is None else (EDGE + at * step, _y((each - bottom) / height)) for at, each in enumerate(values)
    ]
    pieces: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(point)
    lines = [" ".join(f"{x:.1f},{y:.1f}" for x, y in piece) for piece in pieces if len(piece) > 1]
    return Sparkline(lines, points[-1])


def bar(counts: Mapping[ProxyState, int]) -> list[BarPart]:
    """Return the parts of a bar, all of them to be seen."""
    there = [(state, counts.get(state, 0)) for state in ProxyState if counts.get(state, 0)]
    total = sum(count for _, count in there)
    widths = [max(PART_MIN, BAR * count / total) for _, count in there]
    scale, x, parts = BAR / sum(widths) if widths else 0.0, 0.0, []
    for (state, count), width in zip(there, widths, strict=True):
        parts.append(BarPart(state, count, round(x, 2), round(width * scale, 2)))
        x += width * scale
    return parts


def _y(share: float) -> float:
    return EDGE + (HEIGHT - 2 * EDGE) * (1 - share)
