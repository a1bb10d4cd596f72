"""docs/signals-and-stats.md lists every signal, stat, finish reason and error name, with the meaning in the code."""

from __future__ import annotations

import pytest

from lycosa.crawl.events.signals import SIGNALS
from lycosa.crawl.events.stats_collector import STAT_NAMES
from lycosa.crawl.spiders.failure import EXCEPTION_ALIASES
from tests.conftest import ROOT
from tests.crawl.events.finish_reasons import FINISH_REASONS

PAGE = (ROOT / "docs" / "signals-and-stats.md").read_text(encoding="utf-8")
ROWS = [
    *(f"| `{name}` | {', '.join(f'`{each}`' for each in signal.arguments)} | " for name, signal in SIGNALS.items()),
    *(f"| `{name}` | {meaning} |" for name, meaning in [*STAT_NAMES.items(), *FINISH_REASONS.items()]),
    *(
        f"| `{name}` | {', '.join(f'`{kind.__name__}`' for kind in kinds)} |"
        for name, kinds in EXCEPTION_ALIASES.items()
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_the_page_has_a_row_for_each_name(row: str) -> None:
    assert f"\n{row}" in PAGE


def test_the_page_has_no_other_names() -> None:
    names = {line.split("`")[1] for line in PAGE.split("\n") if line.startswith("| `")}
    documented = {row.split("`")[1] for row in ROWS} | {
        "CloseSpider(reason)",
        "DontCloseSpider",
        "StopDownload(fail=...)",
    }
    assert names == documented
