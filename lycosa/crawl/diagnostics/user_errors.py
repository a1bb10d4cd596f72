"""Explains mistakes in the user's code in one line: what is wrong, where, and what to write instead.

Most `check_*` functions return such a line, or "" if they find no mistake. The checks run only at the start and after a
failure.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any

import msgspec

from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

SHOWN_MAX = 60

DEPTH_MAX = 50
"""Maximum depth of lists and dicts in the search for a value that cannot be stored."""

SIMILARITY_MIN = 0.8
"""Minimum `difflib` similarity (0 to 1) at which a name counts as a misspelling."""

AWAITED = "await it"
FETCHABLE = re.compile(r"(?:https?:)?//?\S+", re.IGNORECASE)

RETURNS = {
    "process_request": "None, a Response, a Request or an item, or raise IgnoreRequest",
    "process_response": "a Response, a Request or an item, or raise IgnoreRequest",
    "process_exception": "None, a Response, a Request or an item",
    "process_start": "an async generator of Requests",
    "process_spider_input": "None, or raise an exception",
    "process_spider_output": "items and Requests: a list or a generator of them",
    "process_spider_exception": "None, or items and Requests: a list or a generator of them",
    "process_results": "the Results",
    "process_item": "the item, or raise DropItem",
}
"""The valid return values of methods of middlewares and pipelines."""

MISPLACED_METHODS = {
    "process_item": "it is a method of pipelines: put the class into pipelines",
    "process_start_requests": "write async def process_start(self, start)",
    "process_spider_output_async": "write process_spider_output as an async generator instead",
}
"""Methods that middlewares define by mistake, and what to write instead."""

FORMER_ATTRIBUTES = {
    "download_delay": "DOWNLOAD_DELAY",
    "download_maxsize": "DOWNLOAD_MAXSIZE",
    "download_timeout": "DOWNLOAD_TIMEOUT",
    "max_concurrent_requests": "CONCURRENT_REQUESTS_PER_DOMAIN",
    "user_agent": "USER_AGENT",
}
"""Spider attributes that Scrapy used to read as settings, and the settings to write instead."""


def check_callback(value: object, spider: object, what: str = "callback") -> str:
    """Check that a callback or errback is a method of the spider."""
    owner = type(spider).__name__
    if isinstance(value, str):
        if callable(getattr(spider, value, None)):
            return ""
        near = _nearest(value, _methods(spider), 0.6)
        return f"{owner} has no method {value!r} for the {what}" + (f": did you mean {near!r}?" if near else "")
    if called := _coroutine_name(value):
        return f"the {what} is the result of {called}(): write {what}=self.{called}, without the parentheses"
    if isinstance(value, partial):
        return f"the {what} is a functools.partial: give the method itself, and its arguments in cb_kwargs"
    if not callable(value):
        return f"the {what} is {_shown(value)}: write {what}=self.method, without parentheses"
    name = getattr(value, "__name__", "")
    if callable(getattr(spider, name, None)):
        return ""
    # A callback is stored by name, so a function that is not an attribute would be lost on a restart.
    named = "a lambda" if name == "<lambda>" else f"{name or _kind(value)}, which is not a method of {owner}"
    return f"the {what} is {named}: it could not be found again after a restart, so make it a method of {owner}"


def check_arguments(function: Callable[..., Any], cb_kwargs: Mapping[str, Any]) -> str:
    """Check that a callback (a bound method) takes a response and the `cb_kwargs`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    name = getattr(function, "__name__", "the callback")
    if not parameters:
        return f"{name} takes no response: write def {name}(self, response)"
    keywords = parameters[1:]
    names = {each.name for each in keywords}
    if any(each.kind is each.VAR_KEYWORD for each in keywords):
        names |= set(cb_kwargs)
    missing = [each.name for each in keywords if each.default is each.empty and not _is_variadic(each)]
    for each in missing:
        if each not in cb_kwargs:
            return f"{name} takes {each!r}, which is not in cb_kwargs: put it there, or give it a default"
    for each in cb_kwargs:
        if each not in names:
            return f"cb_kwargs has {each!r}, which {name} does not take: add the argument, or **kwargs"
    return ""


def usual_cause(error: BaseException) -> str:
    """Return a hint at the usual cause of an exception, to append to its text, or ""."""
    if isinstance(error, (AttributeError, TypeError)) and str(error).startswith("'coroutine' object"):
        return ": await async calls, such as self.fetch(...)"
    if isinstance(error, AttributeError) and str(error) == "'str' object has no attribute 'decode'":
        return ": header fields are already text"
    return ""


def check_storable(where: str, value: object) -> str:
    """Check that `value` can be stored. `where`: "meta" or "cb_kwargs"."""
    found = _unstorable(where, value, 0)
    if found is None:
        return ""
    path, wrong = found
    return f"{path} is {_kind(wrong)}, which cannot be stored: {_storage_advice(wrong)}"


def check_result(value: object, name: str) -> str:
    """Explain a value yielded by the callback `name` that is neither an item nor a request."""
    return f"{name} yielded {_shown(value)}: {_yield_advice(value)}"


def check_lost_return(function: Callable[..., Any]) -> str:
    """Check that a generator returns no value, which would be lost."""
    function = inspect.unwrap(function)
    if not inspect.isgeneratorfunction(function):
        return ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, ValueError, IndexError):
        return ""
    if not isinstance(tree, ast.FunctionDef):
        return ""
    for node in _own_nodes(tree):
        if isinstance(node, ast.Return) and not _is_nothing(node.value):
            line = function.__code__.co_firstlineno + node.lineno - 1
            what = ast.unparse(node)[:SHOWN_MAX]
            name = function.__qualname__
            return f"{name} is a generator, so `{what}` in line {line} is lost: yield the value, then return"
    return ""


def check_lost_returns(spider: object) -> Iterator[str]:
    """Yield a line for each generator method of a spider whose return value is lost.

    A method called with `yield from` is skipped, because its caller gets the value.
    """
    for owner in type(spider).__mro__:
        if owner.__module__.partition(".")[0] == "lycosa":
            continue
        for name, method in vars(owner).items():
            line = check_lost_return(method) if inspect.isfunction(method) else ""
            if line and not _is_delegated_to(owner, name):
                yield line


def _is_delegated_to(owner: type, name: str) -> bool:
    with suppress(OSError, TypeError):
        return f"yield from self.{name}(" in inspect.getsource(owner)
    return False


def check_missing_method(spider: object, name: str, advice: str = "write it") -> str:
    """Explain that the spider lacks a method, and suggest a similar name if there is one."""
    owner = type(spider)
    methods = {method for each in _user_classes(owner) for method, value in vars(each).items() if callable(value)}
    near = _nearest(name, sorted(methods), SIMILARITY_MIN)
    return f"{owner.__name__} has no {name}()" + (f"; did you mean {near}?" if near else f": {advice}")


def check_start(spider: object) -> str:
    """Check that `start` is an async generator, and that `start_requests` is not defined instead of it."""
    owner = type(spider)
    if never_called := check_start_requests(spider):
        return never_called
    if inspect.isasyncgenfunction(getattr(owner, "start", None)):
        return ""
    if inspect.iscoroutinefunction(getattr(owner, "start", None)):
        return f"{owner.__name__}.start yields nothing: yield Requests in it"
    return f"{owner.__name__}.start is not async: write async def start(self), and yield Requests"


def check_start_requests(spider: object) -> str:
    """Find a `start_requests` that is defined without a `start`: only `start` is called."""
    owner = type(spider)
    # The first class in the MRO with either method decides: its `start` overrides an inherited `start_requests`.
    defined: Mapping[str, Any] = next(
        (vars(each) for each in owner.__mro__ if {"start", "start_requests"} & set(vars(each))), {}
    )
    if "start" in defined or "start_requests" not in defined:
        return ""
    return f"{owner.__name__}.start_requests is never called: write async def start(self) instead"


def check_start_urls(urls: object, owner: str) -> str:
    """Check that `start_urls` is a list of URLs. `owner`: the name of the spider's class."""
    if isinstance(urls, str):
        return f"start_urls of {owner} is a string: write a list, [{urls!r}]"
    if not isinstance(urls, Iterable):
        return f"start_urls of {owner} is {_shown(urls)}: write a list of URLs"
    for number, url in enumerate(urls if isinstance(urls, (list, tuple)) else ()):
        if not isinstance(url, str):
            return f"start_urls[{number}] of {owner} is {_shown(url)}: write a URL as a string"
        if not re.match(r"[a-z][a-z0-9+.-]*://", url.strip(), re.IGNORECASE):
            return f"start_urls[{number}] of {owner} is {url!r:.60}: write 'https://{url.strip().lstrip('/'):.60}'"
    return ""


def check_allowed_domains(domains: object, owner: str) -> str:
    """Check that `allowed_domains` is a list of domains. `owner`: the name of the spider's class."""
    if isinstance(domains, str):
        return f"allowed_domains of {owner} is a string: write a list, [{domains!r}]"
    if not isinstance(domains, Iterable):
        return f"allowed_domains of {owner} is {_shown(domains)}: write a list of domains"
    for domain in domains:
        if domain is None:  # ignored, as in Scrapy
            continue
        if not isinstance(domain, str):
            return f"allowed_domains of {owner} has {_shown(domain)}: write domains as strings, 'example.com'"
        plain = re.sub(r"^[a-z][a-z0-9+.-]*://|^\*?\.", "", domain.strip(), flags=re.IGNORECASE)
        plain = plain.rpartition("@")[2] if "@" in plain.partition("/")[0] else plain
        bare = re.split(r"[/?#]", plain)[0]
        bare = bare if bare.startswith("[") else bare.partition(":")[0]
        if bare != domain.strip().removeprefix("."):
            return f"allowed_domains of {owner} has {domain!r:.60}: write {bare!r:.60}, which includes its subdomains"
    return ""


def check_attributes(spider: object) -> str:
    """Find a misspelled or former option among the attributes, unless the spider's code uses it."""
    known = ("start_urls", "allowed_domains", "custom_settings")
    owner = type(spider)
    for name in vars(owner):
        if name in FORMER_ATTRIBUTES and not _is_used(owner, name):
            setting = f"custom_settings = {{{FORMER_ATTRIBUTES[name]!r}: {vars(owner)[name]!r:.60}}}"
            return f"{owner.__name__}.{name} has no effect: write {setting}"
        near = _nearest(name, known, 0.9)
        if near and name not in known and not _has_own(owner, near) and not _is_used(owner, name):
            return f"{owner.__name__}.{name} has no effect: did you mean {near}?"
    return ""


def check_methods(part: object, known: Iterable[str]) -> str:
    """Find a middleware or pipeline method that is never called: its name is misspelled or out of date."""
    known = list(known)
    owner = part if isinstance(part, type) else type(part)
    for name in dir(owner):
        if name.startswith("_") or name in known or not callable(getattr(owner, name, None)):
            continue
        if name in MISPLACED_METHODS:
            return f"{owner.__name__}.{name} is never called: {MISPLACED_METHODS[name]}"
        near = _nearest(name, known, SIMILARITY_MIN)
        if near:
            return f"{owner.__name__}.{name} is never called: did you mean {near}?"
    return ""


def check_returned(where: str, value: object) -> str:
    """Explain a wrong return value of a middleware or pipeline method; `where` is `Class.method`."""
    method = where.rpartition(".")[2]
    right = RETURNS.get(method, "a valid value")
    if _coroutine_name(value):
        right += " (a plain method that calls an async one has to be async too, and await it)"
    elif value is None and method == "process_response":
        right += " (it usually ends with return response)"
    return f"{where} returned {'None' if value is None else _shown(value)}: return {right}"


def _kind(value: object) -> str:
    name = "class" if isinstance(value, type) else type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  the user's __repr__ may raise anything
        return _kind(value)
    return f"{_kind(value)} ({text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + '...'})"


def _coroutine_name(value: object) -> str:
    """Return the name of the function that created this generator or coroutine, or ""."""
    is_running = inspect.isgenerator(value) or inspect.iscoroutine(value) or inspect.isasyncgen(value)
    return str(getattr(value, "__name__", "")) if is_running else ""


def _nearest(name: str, known: Iterable[str], cutoff: float) -> str:
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def _methods(spider: object) -> list[str]:
    return [name for name in dir(type(spider)) if not name.startswith("_") and callable(getattr(spider, name, None))]


def _user_classes(owner: type) -> list[type]:
    return [each for each in owner.__mro__ if each.__module__.partition(".")[0] not in {"lycosa", "builtins"}]


def _has_own(owner: type, name: str) -> bool:
    """Whether the user's classes define this attribute. `start` counts as `start_urls`."""
    accepted = {name, "start"} if name == "start_urls" else {name}
    return any(accepted & vars(each).keys() for each in _user_classes(owner))


def _is_used(owner: type, name: str) -> bool:
    """Whether the source of the user's classes mentions the attribute more than once."""
    mentions = 0
    for each in _user_classes(owner):
        with suppress(OSError, TypeError):  # no source: created by a call, or typed into a shell
            mentions += len(re.findall(rf"\b{name}\b", inspect.getsource(each)))
    return mentions > 1


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}


def _unstorable(path: str, value: object, depth: int) -> tuple[str, object] | None:
    """Return the path to the innermost value that cannot be stored, and the value; or None."""
    try:
        msgspec.msgpack.encode(value)
    except Exception as error:  # noqa: BLE001  any failure means that it cannot be stored
        # A RecursionError means that the value, or one inside it, contains itself or has too many levels. A deep search
        # would go in circles, so only the children of the outermost value are tried.
        endless = depth and isinstance(error, RecursionError)
        for key, inner in _children(value) if depth < DEPTH_MAX and not endless else ():
            found = _unstorable(f"{path}[{key!r}]", inner, depth + 1)
            if found is not None:
                return found
        return path, value
    return None


def _children(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) and not _is_selector(value) else ()


def _storage_advice(value: object) -> str:
    if isinstance(value, Response):
        return "keep what you need from it, response.url or response.text"
    if _is_selector(value):
        return "keep its text, with .get() or .getall()"
    if isinstance(value, Request):
        return "keep its url"
    if _coroutine_name(value):
        return "keep what it yields, list(...)" if inspect.isgenerator(value) else f"{AWAITED} first"
    if isinstance(value, io.IOBase):
        return "keep the path, and open the file in the callback"
    if isinstance(value, int):
        return "keep a number this large as text, str(...)"
    if isinstance(value, (dict, list)):
        return "it contains itself, or has too many levels"
    if callable(value):
        return "keep the name of a method"
    return "use numbers, strings, bytes, lists and dicts"


def _yield_advice(value: object) -> str:
    if isinstance(value, str):
        follow = f"yield response.follow({value[:SHOWN_MAX]!r}) to fetch it, or "
        return (follow if FETCHABLE.fullmatch(value) else "") + "yield an item, {'text': ...}"
    if isinstance(value, Response):
        return "yield an item made from it, or response.follow(...) to fetch another page"
    if _is_selector(value):
        return "yield an item with its text, {'text': selected.get()}"
    if isinstance(value, (list, tuple, set, frozenset)) or inspect.isgenerator(value):
        return "write yield from, to yield each of its elements"
    if inspect.isasyncgen(value):
        return "write async for each in ...: yield each"
    if inspect.iscoroutine(value):
        return f"{AWAITED}, as in yield await ..."
    if isinstance(value, BaseException):
        return "raise it"
    if isinstance(value, type):
        return f"yield an instance of it, {value.__name__}(...)"
    if type(value).__module__.partition(".")[0] == "scrapy":
        return f"write from lycosa import {type(value).__name__}"
    return "yield items (a dict, a dataclass...) or Requests"


def _is_selector(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "parsel" or (
        hasattr(value, "xpath") and hasattr(value, "getall")
    )


def _own_nodes(function: ast.FunctionDef) -> Iterable[ast.AST]:
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _is_nothing(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
