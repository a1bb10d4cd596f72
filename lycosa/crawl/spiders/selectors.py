"""Faster parsel selectors: the results of a query become `Selector`s only when they are used one by one.

`getall`, `get`, `re` and further queries work on lxml's results directly, and compiled queries are cached. parsel
itself handles everything unusual: registered namespaces, variables, JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, wraps
from typing import Any

import parsel
from lxml import etree, html
from parsel.utils import extract_regex

QUERIES_MAX = 2048

DEFAULT_NAMESPACES: Mapping[str, str] = dict(parsel.Selector._default_namespaces)  # noqa: SLF001  no public name
PREFIXES = tuple(f"{prefix}:" for prefix in DEFAULT_NAMESPACES)
MARKUP = ("html", "xml")
BOM = b"\xef\xbb\xbf"
_thread = threading.local()
"""`parser`: the HTML parser of this thread, with the options that parsel uses."""


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_utf8(body: bytes, url: str) -> Any:
    """Return the root element of a UTF-8 page, as parsel does. The encoding that the page declares is ignored."""
    parser = getattr(_thread, "parser", None)
    if parser is None:
        parser = _thread.parser = html.HTMLParser(recover=True, encoding="utf-8", huge_tree=True)
    if b"\0" in body:
        body = body.replace(b"\0", b"")
    root = etree.fromstring(body.strip() or b"<html/>", parser=parser, base_url=url)
    return etree.fromstring(b"<html/>", parser=parser, base_url=url) if root is None else root


@lru_cache(QUERIES_MAX)
def _compiled(query: str) -> etree.XPath:
    return etree.XPath(query, smart_strings=False)  # smart strings would keep the whole tree alive


@lru_cache(QUERIES_MAX)
def _compiled_css(query: str, markup: str) -> tuple[str, etree.XPath | None]:
    """Return the XPath of a CSS query, and its compiled form (None if it uses namespaces)."""
    xpath = _css_to_xpath(query, markup)
    return xpath, None if any(prefix in xpath for prefix in PREFIXES) else _compiled(xpath)


def _text(result: Any, markup: str) -> str:
    if type(result) is str:
        return result
    if isinstance(result, etree._Element):  # noqa: SLF001  lxml's elements have no public name
        return etree.tostring(result, method=markup, encoding="unicode", with_tail=False)
    if result is True or result is False:
        return "1" if result else "0"
    return str(result)


class Selector(parsel.Selector):
    """A `parsel.Selector`. All selectors of a page share `namespaces` until one of them registers a namespace."""

    __slots__ = ()

    @classmethod
    def of_page(cls, body: bytes, encoding: str, text: str | None, kind: str | None, url: str) -> Selector:
        """Parse a page: the bytes of HTML in UTF-8 directly, anything else as decoded text."""
        if text is None and encoding == "utf-8" and kind == "html" and not body.startswith(BOM) and _is_utf8(body):
            return cls(root=_parse_utf8(body, url), type=kind)
        decoded = body.decode(encoding, "replace") if text is None else text
        return cls(text=decoded, type=kind, base_url=url)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **kwargs: Any) -> parsel.SelectorList[Any]:
        root = self.root
        if not _is_usual(query, namespaces, kwargs, self.namespaces) or self.type not in MARKUP:
            return super().xpath(query, namespaces, **kwargs)
        if not isinstance(root, etree._Element):  # noqa: SLF001
            return super().xpath(query)
        return SelectorList.of_results(_run(query, root), self, query)

    def _css2xpath(self, query: str) -> str:
        return _css_to_xpath(query, "html" if self.type == "text" else self.type)

    def css(self, query: str) -> parsel.SelectorList[Any]:
        markup, root = self.type, self.root
        if markup not in MARKUP or self.namespaces != DEFAULT_NAMESPACES or not isinstance(root, etree._Element):  # noqa: SLF001
            return super().css(query)
        xpath, compiled = _compiled_css(query, markup)
        if compiled is None:
            return super().xpath(xpath)
        return SelectorList.of_results(_run(xpath, root, compiled), self, xpath)

    def get(self) -> Any:
        """Return the markup of an element, or the selected text."""
        return _text(self.root, self.type) if self.type in MARKUP else self.root

    extract = get

    def register_namespace(self, prefix: str, uri: str) -> None:
        self.namespaces = {**self.namespaces, prefix: uri}


def _is_usual(query: Any, namespaces: object, variables: object, registered: Mapping[str, str]) -> bool:
    plain = not variables and namespaces is None and isinstance(query, str) and registered == DEFAULT_NAMESPACES
    return plain and not any(prefix in query for prefix in PREFIXES)


def _run(query: str, root: Any, compiled: etree.XPath | None = None) -> list[Any]:
    try:
        results = (compiled or _compiled(query))(root)
    except etree.XPathError as error:
        raise ValueError(f"XPath error: {error} in {query}") from error
    return results if isinstance(results, list) else [results]


class SelectorList(parsel.SelectorList[Any]):
    """A `parsel.SelectorList` that holds the plain results of a query until one of its elements is used."""

    _origin: tuple[type[Selector], str, dict[str, str], str] | None = None
    """Class, query, namespaces and markup of the selectors to create; None once they exist."""

    @classmethod
    def of_results(cls, results: Iterable[Any], parent: Selector, query: str) -> SelectorList:
        selected = cls(results)
        selected._origin = (type(parent), query, parent.namespaces, parent.type)
        return selected

    def _create_selectors(self) -> None:
        origin, self._origin = self._origin, None
        if origin is None:
            return
        kind, query, namespaces, markup = origin
        selectors = []
        for root in list.__iter__(self):
            selector = kind.__new__(kind)
            selector.root, selector.type, selector.namespaces = root, markup, namespaces
            selector._expr, selector._huge_tree, selector._text = query, True, None  # noqa: SLF001
            selectors.append(selector)
        list.__setitem__(self, slice(None), selectors)

    def getall(self) -> list[str]:
        if self._origin is None:
            return [each.get() for each in list.__iter__(self)]
        markup = self._origin[3]
        return [each if type(each) is str else _text(each, markup) for each in list.__iter__(self)]

    extract = getall

    def get(self, default: Any = None) -> Any:
        if not list.__len__(self):
            return default
        first = list.__getitem__(self, 0)
        return first.get() if self._origin is None else _text(first, self._origin[3])

    extract_first = get

    def xpath(self, xpath: str, namespaces: Mapping[str, str] | None = None, **kwargs: Any) -> parsel.SelectorList[Any]:
        origin = self._origin
        if origin is None or origin[3] not in MARKUP or not _is_usual(xpath, namespaces, kwargs, origin[2]):
            return self.__class__([each for one in self for each in one.xpath(xpath, namespaces=namespaces, **kwargs)])
        results: list[Any] = []
        for root in list.__iter__(self):
            if isinstance(root, etree._Element):  # noqa: SLF001
                results += _run(xpath, root)
            elif xpath.strip() == ".":
                results.append(root)
        selected = SelectorList(results)
        selected._origin = (origin[0], xpath, origin[2], origin[3])
        return selected

    def css(self, query: str) -> parsel.SelectorList[Any]:
        if not list.__len__(self):
            return self.__class__()
        origin = self._origin
        if origin is None or origin[3] not in MARKUP:
            return self.__class__([each for one in self for each in one.css(query)])
        return self.xpath(_compiled_css(query, origin[3])[0])

    def re(self, regex: Any, replace_entities: bool = True) -> list[str]:
        return [found for text in self.getall() for found in extract_regex(regex, text, replace_entities)]

    def re_first(self, regex: Any, default: Any = None, replace_entities: bool = True) -> Any:
        for each in list.__iter__(self):
            text = each.get() if self._origin is None else _text(each, self._origin[3])
            for found in extract_regex(regex, text, replace_entities):
                return found
        return default

    def __getitem__(self, pos: Any) -> Any:
        self._create_selectors()
        found = list.__getitem__(self, pos)
        return self.__class__(found) if isinstance(pos, slice) else found

    def __iter__(self) -> Iterator[Any]:
        self._create_selectors()
        return list.__iter__(self)

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self]


def _css_to_xpath(query: str, markup: str) -> str:
    from parsel.selector import _ctgroup

    try:
        return _ctgroup[markup]["_csstranslator"].css_to_xpath(query)
    except (SyntaxError, RuntimeError) as error:  # cssselect's message does not contain the query
        raise type(error)(f"{error} in {query!r}") from None


def _on_selectors(name: str) -> Any:
    plain = getattr(list, name)

    @wraps(plain)
    def method(self: SelectorList, *args: Any, **kwargs: Any) -> Any:
        self._create_selectors()
        return plain(self, *args, **kwargs)

    return method


LIST_METHODS = (
    *("__add__", "__contains__", "__delitem__", "__eq__", "__ge__", "__gt__", "__iadd__", "__imul__", "__le__"),
    *("__lt__", "__mul__", "__ne__", "__repr__", "__reversed__", "__rmul__", "__setitem__", "append", "copy", "count"),
    *("extend", "index", "insert", "pop", "remove", "reverse", "sort"),
)
for _name in LIST_METHODS:
    setattr(SelectorList, _name, _on_selectors(_name))

Selector.selectorlist_cls = SelectorList
