"""What the commands that crawl pass to the application, and how they show its summary."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lycosa.cli.main import main
from lycosa.config import Settings
from lycosa.crawl.events.stats import Snapshot, Summary
from tests.cli.command import lycosa

SPIDER = """
from lycosa.crawl.spiders.spider import Spider
class Quotes(Spider):
    name = "quotes"
    custom_settings = {"DOWNLOAD_DELAY": 2, "depth": 4}
"""


@pytest.fixture
def application(monkeypatch, tmp_path):
    """Replaces the crawl: `calls` are its arguments, `summary` its result."""
    fake = SimpleNamespace(calls=[], summary=Summary(True, False, False, Snapshot(pages=2, done=2)))

    def run_crawl(settings, target, *, spider_args, observe):
        fake.calls.append((settings, target, spider_args))
        if observe:
            observe(Snapshot(pages=1, elapsed_s=6.0))
        return fake.summary

    monkeypatch.setitem(sys.modules, "lycosa.app.crawl.run", SimpleNamespace(run_crawl=run_crawl))
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield fake
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_urls_and_settings_are_passed_to_the_crawl(application):
    assert main(["crawl", "http://a/", "https://b/", "-O", "i.jl", "--no-robots", "--header", "A: b", "-q"]) == 0
    expected = Settings(output=("i.jl",), overwrite=True, robots=False, header=("A: b",), quiet=True)
    assert application.calls == [(expected, ["http://a/", "https://b/"], {})]


def test_dash_o_appends_even_if_a_settings_file_sets_overwrite(application, tmp_path):
    Path("lycosa.toml").write_text("overwrite = true\noutput = 'x.jsonl'")
    main(["crawl", "http://a/", "-o", "i.jl"])
    assert application.calls == [(Settings(output=("i.jl",)), ["http://a/"], {})]


def test_a_spider_with_arguments_and_settings_is_passed_to_the_crawl(application):
    Path("quotes.py").write_text(SPIDER)
    assert main(["runspider", "quotes.py", "-a", "tag=a=b", "--depth", "1", "-s", "CONCURRENT_REQUESTS=3"]) == 0
    ((settings, spider, arguments),) = application.calls
    assert settings == Settings(delay=2.0, depth=1, concurrency=3)
    assert spider.name == "quotes"
    assert arguments == {"tag": "a=b"}


def test_custom_settings_must_be_a_dict(application, capsys):
    Path("quotes.py").write_text(SPIDER + "    custom_settings = ['x']\n")
    assert main(["runspider", "quotes.py"]) == 2
    assert capsys.readouterr().err == "lycosa: Quotes.custom_settings is not a dict\n"


def test_progress_and_summary_go_to_standard_error(application, capsys):
    assert main(["crawl", "http://a/"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("6.0 s: 1 page,")
    assert "finished: 2 pages" in captured.err


def test_quiet_writes_nothing_and_returns_the_exit_code(application, capsys):
    application.summary = Summary(False, True, False, Snapshot())
    assert main(["crawl", "http://a/", "-q"]) == 130
    assert capsys.readouterr() == ("", "")


def test_dead_requests_give_exit_code_1(application, capsys):
    application.summary = Summary(True, False, False, Snapshot(dead=1), dead=[("http://a/", "timeout")])
    assert main(["crawl", "http://a/"]) == 1
    assert "http://a/  timeout" in capsys.readouterr().err


def test_the_log_goes_to_the_log_file_at_its_level(application, capsys):
    main(["crawl", "http://a/", "-q", "-L", "info", "--log-file", "my.log"])
    logging.getLogger("quotes").info("hello")
    logging.getLogger("quotes").debug("too much")
    assert capsys.readouterr().err == ""
    assert Path("my.log").read_text().endswith("INFO quotes: hello\n")


def test_a_log_file_that_cannot_be_opened_is_an_error(application, capsys):
    assert main(["crawl", "http://a/", "--log-file", "no/such.log"]) == 3
    assert capsys.readouterr().err == "lycosa: --log-file no/such.log: No such file or directory\n"
    assert application.calls == []


@pytest.mark.parametrize(("more", "shown"), [((), True), (("-q",), False)])
def test_the_address_of_the_metrics_is_shown_unless_quiet(tmp_path, more, shown):
    url = "http://127.0.0.1:9/"
    done = lycosa("crawl", url, "--no-robots", "-s", "retries=0", "--metrics", "0", *more, cwd=tmp_path)
    assert ("metrics: http://127.0.0.1:" in done.stderr) is shown, done.stderr
