"""`fetch` and `shell`: what they request from the engine, and how they show the response."""

from __future__ import annotations

import builtins
import io
import logging
import os
import sys
import webbrowser
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import lycosa.app
from lycosa.cli.crawl import shell as shell_module
from lycosa.cli.main import main
from lycosa.core.errors import ConnectFailed

SPIDER = """
from lycosa import Spider
class Quotes(Spider):
    name = "quotes"
    custom_settings = {"DOWNLOAD_TIMEOUT": 5}
"""
HTML = b"<html><head><title>Hello</title></head><body>\xc3\xa9</body></html>"


@pytest.fixture
def engine(monkeypatch, tmp_path):
    """Replaces the engine: responds with `status`, `headers` and `body`, and records `calls`."""
    answer = SimpleNamespace(calls=[], status=200, headers={"Content-Type": "text/html"}, body=HTML, error=None)

    def fetch(settings, request, spider_class):
        answer.calls.append((settings, request, spider_class))
        if answer.error is not None:
            raise answer.error
        return lycosa.Response(request.url, answer.status, answer.headers, answer.body, request=request)

    module = SimpleNamespace(fetch=fetch)
    monkeypatch.setitem(sys.modules, "lycosa.app.crawl.one_page", module)
    monkeypatch.setattr(lycosa.app, "oneshot", module, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield answer
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.modules.pop("quotes_of_test", None)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "quotes_of_test.py").write_text(SPIDER)
    (tmp_path / "lycosa.toml").write_text("spider_modules = ['quotes_of_test']\n")


def test_the_body_goes_unchanged_to_standard_output(engine, capfdbinary):
    assert main(["fetch", "http://a.example/"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == HTML
    assert captured.err == b"200 http://a.example/, %d B, text/html\n" % len(HTML)


def test_the_body_can_go_to_a_file_and_the_headers_to_standard_output(engine, capsys):
    engine.headers = {"Content-Type": "text/html", "X-Evil": "a\x1b[2J"}
    assert main(["fetch", "http://a.example/", "--headers", "-o", "page.html", "-s", "header=X-Y: z"]) == 0
    assert Path("page.html").read_bytes() == HTML
    assert capsys.readouterr().out.splitlines() == ["< 200", "< content-type: text/html", "< x-evil: a?[2J"]
    assert engine.calls[0][0].header == ("X-Y: z",)


@pytest.mark.parametrize("status", [404, 301, 500])
def test_a_response_of_any_status_is_shown(engine, capsys, status):
    engine.status = status
    assert main(["fetch", "http://a.example/", "--headers"]) == 0
    assert f"< {status}\n" in capsys.readouterr().out


def test_no_redirect_does_not_follow_redirects(engine, capfd):
    main(["fetch", "http://a.example/", "--no-redirect"])
    main(["fetch", "http://a.example/"])
    assert [request.meta.get("dont_redirect") for _, request, _ in engine.calls] == [True, None]


def test_the_settings_of_a_spider_are_used(engine, project, capfd):
    assert main(["fetch", "http://a.example/", "--spider", "quotes"]) == 0
    settings, _, spider = engine.calls[0]
    assert (settings.timeout, spider.name) == (5.0, "quotes")


@pytest.mark.parametrize("verb", ["fetch", "shell"])
@pytest.mark.parametrize(
    ("argv", "error", "code", "line"),
    [
        (["a.example"], None, 2, "'a.example' has no scheme: write https://a.example"),
        (["/page"], None, 2, "'/page' is not a URL: write https://..."),
        (["http://a.example/", "--spider", "qotes"], None, 2, "no spider is called 'qotes': did you mean quotes?"),
        (["http://a.example/", "-s", "depht=1"], None, 2, "-s depht: unknown setting 'depht': did you mean depth?"),
        (["http://a.example/"], ConnectFailed("nobody answers"), 3, "nobody answers"),
    ],
)
def test_errors_are_one_line(engine, project, capsys, verb, argv, error, code, line):
    engine.error = error
    assert main([verb, *argv]) == code
    assert capsys.readouterr().err == f"lycosa: {line}\n"


def test_a_spider_name_without_a_project_is_an_error(engine, capsys):
    assert main(["fetch", "http://a.example/", "--spider", "quotes"]) == 2
    assert "there is no project here" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_an_error(engine, capsys):
    assert main(["fetch", "http://a.example/", "-o", "no/such/file"]) == 3
    assert capsys.readouterr().err == "lycosa: -o no/such/file: no such file or directory\n"


# --- shell


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("response.css('title::text').get()", "Hello"),
        ("sel.css('title::text').get()", "Hello"),
        ("request.url", "http://a.example/"),
        ("spider.name", "shell"),
        ("settings.getint('CONCURRENT_REQUESTS'), settings['delay']", "(64, 0.0)"),
        ("fetch('http://b.example/').url, response.url, request.url", "('http://b.example/',) + 2"),
        ("None", ""),
        ("x = 1; print(x + 1)", "2"),
        ("for n in range(3):\n    print(n, end=';')", "0;1;2;"),
        ("import asyncio\nprint(await asyncio.sleep(0, 'waited'))", "waited"),
        ("await __import__('asyncio').sleep(0, 'awaited')", "awaited"),
        ("fetch(Request('http://c.example/', method='POST')).request.method", "POST"),
        ("lycosa.Request is Request", "True"),
    ],
)
def test_code_can_use_the_page(engine, capsys, code, printed):
    assert main(["shell", "http://a.example/", "-c", code]) == 0
    wanted = "('http://b.example/', 'http://b.example/', 'http://b.example/')" if "+ 2" in printed else printed
    assert capsys.readouterr().out.rstrip("\n") == wanted


def test_code_runs_without_a_page(engine, capsys):
    assert main(["shell", "-c", "response, request, sel"]) == 0
    assert capsys.readouterr().out == "(None, None, None)\n"
    assert engine.calls == []


def test_a_picture_has_no_selector(engine, capsys):
    engine.headers, engine.body = {"Content-Type": "image/png"}, b"\x89PNG\r\n\x1a\n\x00"
    assert main(["shell", "http://a.example/", "-c", "len(response.body)"]) == 0
    assert capsys.readouterr().out == "9\n"


def test_a_file_is_loaded_as_a_page(engine, capsys):
    Path("page.html").write_bytes(HTML)
    assert main(["shell", "page.html", "-c", "response.css('title::text').get(), response.url"]) == 0
    assert capsys.readouterr().out == f"('Hello', '{Path('page.html').absolute().as_uri()}')\n"
    assert engine.calls == []
    assert main(["shell", "page.html", "-s", "max_body=10"]) == 2
    assert main(["shell", "page2.html"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "lycosa: page.html is larger than max_body (10 bytes)",
        "lycosa: page2.html: no such file",
    ]


def test_a_url_that_ends_like_a_file_is_fetched(engine, capsys):
    assert main(["shell", "http://a.example/page.html", "-c", "response.url"]) == 0
    assert len(engine.calls) == 1


def test_an_error_in_a_spider_constructor_is_one_line(engine, project, capsys, tmp_path):
    with (tmp_path / "quotes_of_test.py").open("a") as file:
        file.write("    def __init__(self, tag): pass\n")
    assert main(["shell", "--spider", "quotes", "-c", "1"]) == 2
    assert "Quotes.__init__ failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("1 / 0", "-c: ZeroDivisionError: division by zero"),
        ("x = (", "-c: SyntaxError: '(' was never closed (-c, line 1)"),
        ("nowhere", "-c: NameError: name 'nowhere' is not defined"),
    ],
)
def test_an_error_in_the_code_is_one_line(engine, capsys, code, line):
    assert main(["shell", "-c", code]) == 2
    assert capsys.readouterr().err == f"lycosa: {line}\n"


def test_pythons_own_prompt_awaits_and_continues_after_errors(engine, monkeypatch, capsys):
    """The prompt is Python's own if IPython is not installed."""
    monkeypatch.setitem(sys.modules, "IPython", None)
    typed = ["import asyncio", "x = await asyncio.sleep(0, 20)", "1 / 0", "print(x + 1, response.status)"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(typed) + "\n"))
    monkeypatch.setattr(builtins, "input", lambda prompt="": _line())
    lines = iter(typed)

    def _line() -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    assert main(["shell", "http://a.example/"]) == 0
    captured = capsys.readouterr()
    assert "21 200\n" in captured.out
    assert "ZeroDivisionError" in captured.err
    assert "Available: response, request" in captured.err


def test_ipython_gets_the_variables(engine, monkeypatch, capsys):
    seen = {}
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(start_ipython=lambda argv, user_ns: seen.update(user_ns))
    )
    assert main(["shell", "http://a.example/"]) == 0
    assert {"response", "request", "sel", "fetch", "view", "spider", "settings"} <= set(seen)


@pytest.mark.parametrize(
    ("kind", "body", "suffix", "written"),
    [
        ("text/html; charset=utf-8", HTML, ".html", b'<base href="http://a.example/?a=1&amp;b=&quot;">' + HTML),
        ("text/html", b'<base href="/x">', ".html", b'<base href="/x">'),
        ("application/json", b"{}", ".json", b"{}"),
        ("application/x-nobody-knows", b"x", ".txt", b"x"),
    ],
)
def test_view_opens_the_page_in_the_browser(monkeypatch, tmp_path, kind, body, suffix, written):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: opened.append(uri) or True)
    monkeypatch.setattr(import_module("tempfile"), "tempdir", str(tmp_path))
    assert shell_module.view(lycosa.Response('http://a.example/?a=1&b="', 200, {"Content-Type": kind}, body))
    (file,) = tmp_path.iterdir()
    assert opened == [file.as_uri()]
    assert (file.suffix, file.read_bytes()) == (suffix, written)
