"""The code in docs/scrapy.md runs, and the names in it exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lycosa
from lycosa.config.scrapy_names import SCRAPY_NAMES
from lycosa.config.scrapy_unsupported import IGNORED, UNSUPPORTED
from tests.cli.command import environment, items
from tests.cli.command import lycosa as command
from tests.conftest import ROOT
from tests.servers.file_site import FileSite, serve

PAGE = (ROOT / "docs" / "scrapy.md").read_text(encoding="utf-8")
SPIDER, SCRIPT = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
QUOTE = "<div class=quote><span class=text>{}</span></div><ul><li class=next><a href={}>next</a></ul>"
YOURS = {"SHOP_TOKEN", "HTTP"}
KINDS = ("HTTPAUTH_", "CLOSESPIDER_", "MEMUSAGE_", "LYCOSA_")
"""Settings that are recognised by their prefix."""


@pytest.fixture
def site() -> Iterator[FileSite]:
    pages = {
        "/": ("text/html", QUOTE.format("One", "/2")),
        "/2": ("text/html", QUOTE.format("Two", "/gone")),
        "/robots.txt": ("text/plain", ""),
    }
    with serve(pages) as shelf:
        yield shelf


@pytest.fixture
def home(site: FileSite, tmp_path: Path) -> Path:
    (tmp_path / "quotes.py").write_text(
        SPIDER.replace("https://quotes.example", site.url).replace("quotes.example", "127.0.0.1")
    )
    (tmp_path / "main.py").write_text(SCRIPT)
    return tmp_path


def test_the_spider_runs_unchanged(home: Path) -> None:
    done = command("runspider", "quotes.py", "-o", "quotes.jsonl", cwd=home)
    assert done.returncode == 0, done.stderr
    assert items(home / "quotes.jsonl") == [{"text": "One", "depth": 0}, {"text": "Two", "depth": 1}]
    assert re.search(r"quotes: http://127.0.0.1:\d+/gone: 404", done.stderr), done.stderr


def test_the_script_runs(home: Path) -> None:
    run = [sys.executable, "main.py"]
    done = subprocess.run(run, cwd=home, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["One", "Two", str({"200": 2, "404": 1})]


def test_every_name_that_the_page_imports_is_public() -> None:
    named = set(re.findall(r"lycosa\.([A-Z]\w+)", PAGE))
    for line in re.findall(r"from lycosa import ([\w, ]+)", PAGE):
        named |= {name.strip() for name in line.split(",")}
    assert {name for name in named if not hasattr(lycosa, name) and name != "signals"} == set()
    assert len(named) > 15


def test_every_setting_of_scrapy_that_the_page_names_is_known() -> None:
    known = {*SCRAPY_NAMES, *UNSUPPORTED, *IGNORED, *YOURS}
    named = {name for name in re.findall(r"`([A-Z]+_[A-Z_]+[A-Z*])\b", PAGE) if not name.startswith(KINDS)}
    assert named - known == set()
    assert len(named) > 20
