"""`lycosa shell [URL]`: a prompt with a response at hand. IPython where there is one, else Python's own with `await`.

response request sel    the page, what was asked, its selector
fetch(url_or_request)   fetches another one through the engine, and puts it in the place of these
view(response)          opens it in the browser
spider settings         those of --spider, else plain ones
"""

from __future__ import annotations

import ast
import asyncio
import code
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import click

from lycosa.cli.crawl.spiders import enter_project, load_named, project_settings, require_url
from lycosa.cli.exit_codes import one_line
from lycosa.cli.options import set_option
from lycosa.config import Settings
from lycosa.core.errors import LycosaError, UsageError

PAGES = frozenset({".html", ".htm", ".xhtml", ".xml", ".json"})
"""Endings of names that are files rather than hosts."""

HELP = "response, request, sel, fetch(url_or_request), view(response), spider, settings"


@click.command("shell")
@click.argument("url", required=False, metavar="[URL|FILE]")
@click.option("-c", "text", metavar="CODE", help="Run this, print what comes out, and end.")
@click.option("--spider", metavar="NAME", help="As this spider of the project would, with its settings.")
@click.option("--no-redirect", is_flag=True, help="Do not follow redirects of the first page.")
@set_option
def command(url: str | None, text: str | None, spider: str | None, no_redirect: bool, sets: Sequence[str]) -> None:
    """Try out selectors and requests at a prompt, on a page fetched as a crawl would fetch it, or on a file.

    \b
    lycosa shell https://example.com
    lycosa shell page.html -c "response.css('title::text').get()"
    """
    from lycosa.cli.crawl.crawl import set_up_log, settings_for

    enter_project()
    chosen = load_named(spider, project_settings(sets)) if spider else None
    settings = settings_for(chosen, {}, sets)
    set_up_log(settings)
    shell = Shell(settings, chosen)
    if url is not None:
        shell.start(url, redirect=not no_redirect)
    if text is not None:
        shell.run(text)
    else:
        shell.talk()


class Shell:
    """What is at hand at the prompt: `names`. A page that is fetched takes the place of the one before."""

    def __init__(self, settings: Settings, spider_class: type[Any] | None) -> None:
        import lycosa
        from lycosa.app.crawl.parts import make_shell_spider
        from lycosa.config.view import SettingsView

        self._settings = settings
        self._spider_class = spider_class
        self.names: dict[str, Any] = {
            "lycosa": lycosa,
            "Request": lycosa.Request,
            "settings": SettingsView(settings),
            "spider": make_shell_spider(spider_class),
            "response": None,
            "request": None,
            "sel": None,
            "fetch": self.fetch,
            "view": view,
        }

    def start(self, where: str, *, redirect: bool) -> None:
        """Take the first page from a URL or a file. Raises `LycosaError`."""
        if "://" not in where and Path(where).is_file():
            self._take(_response_of(Path(where), self._settings.max_body))
        elif Path(where).suffix in PAGES:
            raise UsageError(f"{where}: no such file")
        else:
            self.fetch(require_url(where), redirect=redirect)

    def fetch(self, request: Any, *, redirect: bool = True) -> Any:
        """Fetch a URL or a request through the engine. Return the response; `response`, `request` and `sel` are its."""
        from lycosa import Request
        from lycosa.app.crawl.one_page import fetch

        request = Request(require_url(request)) if isinstance(request, str) else request
        if not redirect:
            request.meta["dont_redirect"] = True
        self._take(_outside_the_loop(partial(fetch, self._settings, request, self._spider_class)))
        return self.names["response"]

    def run(self, text: str) -> None:
        """Run code and print what it comes to, if it comes to anything. Raises `UsageError` when it fails."""
        try:
            result = _ran(_compiled(text), self.names)
        except LycosaError:
            raise
        except Exception as error:
            raise UsageError(one_line(f"-c: {type(error).__name__}: {error}")) from error
        if result is not None:
            print(result)

    def talk(self) -> None:
        """Read and run code until the end of the input."""
        try:
            ipython = import_module("IPython")
        except ImportError:
            _Console(self.names).interact(banner=f"At hand: {HELP}", exitmsg="")
        else:
            print(f"At hand: {HELP}")
            ipython.start_ipython(argv=["--no-banner"], user_ns=self.names)

    def _take(self, response: Any) -> None:
        self.names |= {"response": response, "request": response.request, "sel": _selector(response)}


class _Console(code.InteractiveConsole):
    """Python's prompt, with `await`."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(names)
        self._names = names
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def runcode(self, code: CodeType) -> None:
        """Run what was typed."""
        try:
            _ran(code, self._names)
        except SystemExit:
            raise
        except BaseException:  # noqa: BLE001  a prompt shows every exception, and goes on
            self.showtraceback()


def view(response: Any) -> bool:
    """Open a response in the browser, with its pictures and styles. Return whether there is one."""
    import tempfile
    import webbrowser
    from html import escape

    kind = str(response.headers.get("content-type") or "text/html").partition(";")[0].strip()
    body = response.body
    if kind in {"text/html", "application/xhtml+xml"} and b"<base" not in body:
        body = f'<base href="{escape(response.url)}">'.encode() + body
    import mimetypes

    suffix = mimetypes.guess_extension(kind) or ".txt"
    with tempfile.NamedTemporaryFile(prefix="lycosa-", suffix=suffix, delete=False) as file:
        file.write(body)
    return webbrowser.open(Path(file.name).as_uri())


def _compiled(text: str) -> CodeType:
    """Return the code as an expression where it is one."""
    for mode in ("eval", "exec"):
        try:
            compiled: CodeType = compile(text, "-c", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError:
            if mode == "exec":
                raise
        else:
            return compiled
    raise AssertionError


def _ran(compiled: CodeType, names: dict[str, Any]) -> Any:
    result = FunctionType(compiled, names)()
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


def _outside_the_loop(fetch: Callable[[], Any]) -> Any:
    """Run what has a loop of its own: in a thread where one runs already, under an `await` at the prompt."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return fetch()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fetch).result()


async def _awaited(result: Any) -> Any:
    return await result


def _selector(response: Any) -> Any:
    """Return the selector of a page of text, None for others: a picture has none."""
    try:
        return response.selector
    except (AttributeError, ValueError, LycosaError):
        return None


def _response_of(path: Path, size_max: int) -> Any:
    """Return a file as if it had been fetched. Raises `UsageError`."""
    import mimetypes

    from lycosa import Response

    kind = mimetypes.guess_type(path.name)[0] or "text/html"
    with path.open("rb") as file:
        body = file.read(size_max + 1)
    if len(body) > size_max:
        raise UsageError(f"{path} is larger than max_body ({size_max:,} bytes)")
    return Response(path.absolute().as_uri(), 200, {"Content-Type": kind}, body)
