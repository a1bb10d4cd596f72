"""`lycosa shell [URL|FILE]`: a prompt with a response.

The prompt is IPython if it is installed, else Python's own with `await`. Its names:

    response request sel    the page, its request, its selector
    fetch(url_or_request)   fetches another page through the engine, and replaces the three names above
    view(response)          opens the page in the browser
    spider settings         the spider that --spider names, and its settings; without --spider, a plain spider and the
                            settings of the project
"""

from __future__ import annotations

import ast
import asyncio
import code
import inspect
import mimetypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import click

from lycosa.cli.crawl.spiders import require_url
from lycosa.cli.exit_codes import one_line
from lycosa.cli.options import set_option
from lycosa.config import Settings
from lycosa.core.errors import LycosaError, UsageError

PAGES = frozenset({".html", ".htm", ".xhtml", ".xml", ".json"})
"""A name with one of these suffixes is a file, not a host."""

HELP = "response, request, sel, fetch(url_or_request), view(response), spider, settings"


@click.command("shell")
@click.argument("url", required=False, metavar="[URL|FILE]")
@click.option("-c", "text", metavar="CODE", help="Run this code, print its result, and exit.")
@click.option("--spider", metavar="NAME", help="Fetch with the settings and middlewares of this spider of the project.")
@click.option("--no-redirect", is_flag=True, help="Do not follow redirects of the first page.")
@set_option
def command(url: str | None, text: str | None, spider: str | None, no_redirect: bool, sets: Sequence[str]) -> None:
    """Try out selectors and requests at a prompt, on a file or on a page fetched as in a crawl.

    \b
    lycosa shell https://example.com
    lycosa shell page.html -c "response.css('title::text').get()"
    """
    from lycosa.cli.crawl.crawl import spider_and_settings

    spider_class, settings = spider_and_settings(spider, sets)
    shell = Shell(settings, spider_class)
    if url is not None:
        shell.start(url, redirect=not no_redirect)
    if text is not None:
        shell.run(text)
    else:
        shell.interact()


class Shell:
    """The prompt. Each fetch replaces the names `response`, `request` and `sel`."""

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

    def start(self, location: str, *, redirect: bool) -> None:
        """Load the first page from a URL or a file. Raises `LycosaError`."""
        if "://" not in location and Path(location).is_file():
            self._set_page(_response_of(Path(location), self._settings.max_body))
        elif "://" not in location and Path(location).suffix in PAGES:
            raise UsageError(f"{location}: no such file")
        else:
            self.fetch(require_url(location), redirect=redirect)

    def fetch(self, request: Any, *, redirect: bool = True) -> Any:
        """Fetch through the engine, and set `response`, `request` and `sel`."""
        from lycosa import Request
        from lycosa.app.crawl.one_page import fetch

        request = Request(require_url(request)) if isinstance(request, str) else request
        if not redirect:
            request.meta["dont_redirect"] = True
        self._set_page(_call_without_loop(partial(fetch, self._settings, request, self._spider_class)))
        return self.names["response"]

    def run(self, text: str) -> None:
        """Run code and print its result, unless it is None. Raises `UsageError` if the code fails."""
        try:
            result = _execute(_compile(text), self.names)
        except LycosaError:
            raise
        except Exception as error:
            raise UsageError(one_line(f"-c: {type(error).__name__}: {error}")) from error
        if result is not None:
            print(result)

    def interact(self) -> None:
        try:
            ipython = import_module("IPython")
        except ImportError:
            _Console(self.names).interact(banner=f"Available: {HELP}", exitmsg="")
        else:
            print(f"Available: {HELP}")
            ipython.start_ipython(argv=["--no-banner"], user_ns=self.names)

    def _set_page(self, response: Any) -> None:
        self.names |= {"response": response, "request": response.request, "sel": _selector(response)}


class _Console(code.InteractiveConsole):
    """Python's prompt, with `await`."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(names)
        self._names = names
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def runcode(self, code: CodeType) -> None:
        try:
            _execute(code, self._names)
        except SystemExit:
            raise
        except BaseException:  # noqa: BLE001  a prompt shows every exception
            self.showtraceback()


def view(response: Any) -> bool:
    """Open a response in the browser, with its images and styles. Return False without a browser."""
    import tempfile
    import webbrowser
    from html import escape

    kind = str(response.headers.get("content-type") or "text/html").partition(";")[0].strip()
    body = response.body
    if kind in {"text/html", "application/xhtml+xml"} and b"<base" not in body:
        body = f'<base href="{escape(response.url)}">'.encode() + body
    suffix = mimetypes.guess_extension(kind) or ".txt"
    with tempfile.NamedTemporaryFile(prefix="lycosa-", suffix=suffix, delete=False) as file:
        file.write(body)
    return webbrowser.open(Path(file.name).as_uri())


def _compile(text: str) -> CodeType:
    """Compile an expression if possible, else statements."""
    try:
        return compile(text, "-c", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[no-any-return]
    except SyntaxError:
        return compile(text, "-c", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[no-any-return]


def _execute(compiled: CodeType, names: dict[str, Any]) -> Any:
    result = FunctionType(compiled, names)()
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


def _call_without_loop(fetch: Callable[[], Any]) -> Any:
    """Call `fetch`, in a thread if this thread already runs an event loop (`await` at the prompt)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return fetch()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fetch).result()


async def _awaited(result: Any) -> Any:
    return await result


def _selector(response: Any) -> Any:
    """Return the selector; None if there is none, as for an image."""
    try:
        return response.selector
    except (AttributeError, ValueError, LycosaError):
        return None


def _response_of(path: Path, size_max: int) -> Any:
    from lycosa import Response

    kind = mimetypes.guess_type(path.name)[0] or "text/html"
    with path.open("rb") as file:
        body = file.read(size_max + 1)
    if len(body) > size_max:
        raise UsageError(f"{path} is larger than max_body ({size_max:,} bytes)")
    return Response(path.absolute().as_uri(), 200, {"Content-Type": kind}, body)
