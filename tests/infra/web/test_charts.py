"""Line charts: the scale is easy to read, and lines stay within it."""

from __future__ import annotations

import pytest

from lycosa.infra.web.charts import line_chart, round_up


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (-3, 1), (1, 1), (1.1, 2), (3, 5), (5.1, 10), (730, 1000), (0.03, 0.05), (1e9, 1e9)]
)
def test_the_upper_edge_is_easy_to_read(value: float, top: float) -> None:
    assert round_up(value) == pytest.approx(top)


def test_lines_go_from_edge_to_edge_in_proportion_to_time_and_value() -> None:
    chart = line_chart([10.0, 20.0, 50.0], [[0.0, 100.0, 50.0], [200.0, 0.0, 0.0]])
    assert chart.top == 200.0
    assert chart.lines == ["0.00,40.00 25.00,20.00 100.00,30.00", "0.00,0.00 25.00,40.00 100.00,40.00"]
    assert chart.area == f"0,40 {chart.lines[0]} 100,40"


@pytest.mark.parametrize("times", [[], [3.0], [3.0, 3.0]])
def test_a_chart_needs_two_moments(times: list[float]) -> None:
    chart = line_chart(times, [[7.0] * len(times)])
    assert (chart.lines, chart.area) == ([""], "")
