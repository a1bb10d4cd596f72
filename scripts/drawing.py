"""Boxes and arrows as SVG, for the pictures in docs/. They are readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

ROUND = 10
"""Corner radius of boxes and arrows."""

LINE_HEIGHT = 15

Point = tuple[float, float]

STYLE = """\
  svg { --paper: #ffffff; --ink: #1f2328; --line: #59636e; --asleep: #ddf4ff; --lent: #fff8c5; --ended: #eaeef2;
        color: var(--ink) }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --line: #9198a1; --asleep: #10304d; --lent: #4a3a08; --ended: #2a313c } }
  text { font: 16px system-ui, sans-serif; fill: currentColor }
  .state { font-weight: 600; text-anchor: middle }
  .note { font-size: 12px; text-anchor: middle }
  .label { font-size: 13px }
  .caption { font-size: 13px; font-weight: 600 }
  .paper { fill: var(--paper) }
  .box { stroke: currentColor; stroke-width: 1.5; fill: var(--paper) }
  .asleep { fill: var(--asleep); stroke-dasharray: 5 3 }
  .lent { fill: var(--lent) }
  .ended { fill: var(--ended) }
  .group { stroke: var(--line); stroke-width: 1.2; stroke-dasharray: 2 4; fill: none }
  .arrow { stroke: var(--line); stroke-width: 1.8; fill: none; marker-end: url(#head) }
  .both { marker-start: url(#head) }
  #head path { fill: var(--line) }
"""

ARROW_HEAD = """\
<defs><marker id="head" viewBox="0 0 8 8" refX="7.4" refY="4" markerWidth="5" markerHeight="5" \
orient="auto-start-reverse">
<path d="M0 0L8 4L0 8z"/></marker></defs>"""


class Box(NamedTuple):
    """A box around the point (x, y) with a title and lines of small text below it."""

    title: str
    x: float
    y: float
    width: float
    height: float
    look: str = "plain"
    notes: tuple[str, ...] = ()


def picture(title: str, description: str, size: tuple[float, float], parts: Iterable[str]) -> str:
    """Return the SVG with these parts, in this size."""
    width, height = size
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>",
        f"<style>\n{STYLE}</style>\n{ARROW_HEAD}",
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="{ROUND}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def box(drawn: Box) -> Iterator[str]:
    """Yield a box with its text, centred."""
    x, y = drawn.x - drawn.width / 2, drawn.y - drawn.height / 2
    yield (
        f'<rect class="box {drawn.look}" x="{x:g}" y="{y:g}" width="{drawn.width:g}" height="{drawn.height:g}" '
        f'rx="{ROUND}"/>'
    )
    first = drawn.y + 5.5 - len(drawn.notes) * LINE_HEIGHT / 2
    yield f'<text class="state" x="{drawn.x:g}" y="{first:g}">{escape(drawn.title)}</text>'
    for number, note in enumerate(drawn.notes, 1):
        yield f'<text class="note" x="{drawn.x:g}" y="{first + number * LINE_HEIGHT:g}">{escape(note)}</text>'


def group(caption: str, x: float, y: float, width: float, height: float) -> Iterator[str]:
    """Yield a dotted frame whose upper left corner is (x, y), with its caption inside."""
    yield f'<rect class="group" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{ROUND}"/>'
    yield f'<text class="caption" x="{x + 12:g}" y="{y + 20:g}">{escape(caption)}</text>'


def arrow(points: tuple[Point, ...], *, both: bool = False) -> str:
    """Return an arrow through the points, with a head at both ends when `both`."""
    return f'<path class="arrow{" both" if both else ""}" d="{path(points)}"/>'


def label(text: str, x: float, y: float, anchor: str = "middle", look: str = "") -> str:
    """Return text at a point; `anchor` as in SVG."""
    styled = f' class="{look}"' if look else ""
    return f'<text{styled} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def path(points: tuple[Point, ...]) -> str:
    """Return an SVG path through the points, its corners rounded."""
    drawn = f"M{points[0][0]:g} {points[0][1]:g}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        entry, leaving = _toward(corner, before), _toward(corner, after)
        drawn += f"L{entry[0]:g} {entry[1]:g}Q{corner[0]:g} {corner[1]:g} {leaving[0]:g} {leaving[1]:g}"
    return drawn + f"L{points[-1][0]:g} {points[-1][1]:g}"


def _toward(corner: Point, other: Point) -> Point:
    """Return the point that lies ROUND from the corner."""
    (x, y), (to_x, to_y) = corner, other
    length = abs(to_x - x) + abs(to_y - y)  # lines are horizontal or vertical
    return x + (to_x - x) * ROUND / length, y + (to_y - y) * ROUND / length
