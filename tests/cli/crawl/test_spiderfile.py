"""A spider file that is wrong is explained in one line, with the file and the line to look at (bad input)."""

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
    """Undo what running a file leaves behind, and run in a folder of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "spider.py") -> str:
        (tmp_path / name).write_text(dedent(text))
        return name

    return write


def complaint(where: str) -> str:
    with pytest.raises(BadSpider) as caught:
        load_spider(where)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_one_spider_of_a_file(write):
    assert load_spider(write(GOOD)).name == "quotes"


def test_a_spider_that_others_build_on_or_that_is_imported_is_not_meant(write):
    write(GOOD, "base.py")
    text = """
    from base import Quotes
    class Common(Quotes): pass
    class Real(Common): name = "real"
    """
    assert load_spider(write(text)).name == "real"


def test_a_class_is_picked_by_name(write):
    file = write(GOOD + "class More(Spider): name = 'more'\n")
    assert load_spider(f"{file}:More").name == "more"
    assert complaint(file) == "spider.py holds several spiders (Quotes, More): pick one, as in spider.py:Quotes"
    assert complaint(f"{file}:Nope") == "spider.py holds no spider 'Nope', but: Quotes, More"


def test_a_class_that_others_build_on_runs_when_it_is_named(write):
    file = write(GOOD + "class More(Quotes): name = 'more'\n")
    assert load_spider(str(file)).name == "more"
    assert load_spider(f"{file}:Quotes").name == "quotes"


def test_a_file_called_like_a_module_of_python_hides_nothing(write):
    sys.modules.pop("colorsys", None)
    write("broken(", "colorsys.py")
    load_spider(write(GOOD + "import colorsys\n", "other.py"))
    import json

    assert load_spider(write(GOOD, "json.py")).name == "quotes"
    assert sys.modules["json"] is json


def test_dataclasses_in_the_file_find_their_module(write):
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
    ("text", "says"),
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
        ("", "spider.py holds no spider: write a class that inherits from lycosa.Spider"),
        ("from lycosa.crawl.spiders.spider import Spider", "spider.py holds no spider"),
        ("class Quotes: name = 'quotes'", "spider.py holds no spider"),
    ],
)
def test_what_is_wrong_in_the_file(write, text, says):
    assert complaint(write(text)).startswith(says)


def test_an_error_in_an_imported_file_names_that_file(write, tmp_path):
    write("\n1 / 0\n", "helper_of_spider.py")
    assert complaint(write("import helper_of_spider\n")) == (
        f"{tmp_path / 'helper_of_spider.py'}:2: ZeroDivisionError: division by zero"
    )


def test_what_is_no_spider_file(write, tmp_path):
    assert complaint("nowhere.py") == "nowhere.py: no such file"
    assert complaint("nowhere.py:Quotes") == "nowhere.py: no such file"
    assert "is a folder" in complaint(str(tmp_path))
    assert "must end in .py" in complaint(write(GOOD, "spider.txt"))
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    assert complaint("bytes.py").startswith("bytes.py")
