"""An error in a spider file is reported in one line, with the file and the line (bad input)."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from lycosa.cli.crawl.spiderfile import load_spider
from lycosa.core.errors import BadSpider

GOOD = """
from lycosa.crawl.spiders.spider import Spider
class Quotes(Spider):
    name = "quotes"
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    """Undo the changes of a run to `sys`, and run in a new folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "spider.py") -> str:
        (tmp_path / name).write_text(dedent(text))
        return name

    return write


def load_error(location: str) -> str:
    with pytest.raises(BadSpider) as caught:
        load_spider(location)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_only_spider_of_a_file_is_loaded(write):
    assert load_spider(write(GOOD)).name == "quotes"


def test_base_classes_and_imported_spiders_are_not_chosen(write):
    write(GOOD, "base.py")
    text = """
    from base import Quotes
    class Common(Quotes): pass
    class Real(Common): name = "real"
    """
    assert load_spider(write(text)).name == "real"


def test_a_class_is_loaded_by_name(write):
    file = write(GOOD + "class More(Spider): name = 'more'\n")
    assert load_spider(f"{file}:More").name == "more"
    assert load_error(file) == "spider.py contains several spiders (Quotes, More): pick one, as in spider.py:Quotes"
    assert load_error(f"{file}:Nope") == "spider.py contains no spider 'Nope', only: Quotes, More"


def test_a_base_class_is_loaded_by_name(write):
    file = write(GOOD + "class More(Quotes): name = 'more'\n")
    assert load_spider(str(file)).name == "more"
    assert load_spider(f"{file}:Quotes").name == "quotes"


def test_a_file_named_like_a_standard_module_does_not_hide_it(write):
    sys.modules.pop("colorsys", None)
    write("broken(", "colorsys.py")
    load_spider(write(GOOD + "import colorsys\n", "other.py"))
    import json

    assert load_spider(write(GOOD, "json.py")).name == "quotes"
    assert sys.modules["json"] is json


def test_dataclasses_in_the_file_resolve_their_annotations(write):
    text = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import get_type_hints
    @dataclass
    class Item:
        title: str
    assert get_type_hints(Item) == {"title": str}
    """
    assert load_spider(write(GOOD + dedent(text).replace("from __future__ import annotations\n", ""))).name == "quotes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", "spider.py:1: SyntaxError: '(' was never closed"),
        ("a = 1\n  b = 2\n", "spider.py:2: IndentationError: unexpected indent"),
        ("\nimport not_there\n", "spider.py:2: ModuleNotFoundError: No module named 'not_there'"),
        ("\n\n1 / 0\n", "spider.py:3: ZeroDivisionError: division by zero"),
        (
            "raise ModuleNotFoundError(\"No module named 'scrapy'\", name='scrapy')\n",
            "spider.py:1: ModuleNotFoundError: No module named 'scrapy': write import lycosa, as docs/scrapy.md says",
        ),
        ("def f():\n    raise KeyError\nf()\n", "spider.py:2: KeyError"),
        ("raise SystemExit(3)\n", "spider.py:1: SystemExit: 3"),
        ("import json\njson.loads('x')\n", "spider.py:2: JSONDecodeError: Expecting value"),
        ("raise ValueError('two\\nlines')\n", "spider.py:1: ValueError: two lines"),
        ("", "spider.py contains no spider: write a class that inherits from lycosa.Spider"),
        ("from lycosa.crawl.spiders.spider import Spider", "spider.py contains no spider"),
        ("class Quotes: name = 'quotes'", "spider.py contains no spider"),
    ],
)
def test_errors_in_the_file(write, text, message):
    assert load_error(write(text)).startswith(message)


def test_an_error_in_an_imported_file_names_that_file(write):
    write("\n1 / 0\n", "helper_of_spider.py")
    assert load_error(write("import helper_of_spider\n")) == (
        "helper_of_spider.py:2: ZeroDivisionError: division by zero"
    )


def test_paths_that_are_not_spider_files(write, tmp_path):
    assert load_error("nowhere.py") == "nowhere.py: no such file"
    assert load_error("nowhere.py:Quotes") == "nowhere.py: no such file"
    assert "is a folder" in load_error(str(tmp_path))
    assert "must end in .py" in load_error(write(GOOD, "spider.txt"))
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    assert load_error("bytes.py").startswith("bytes.py")
