"""parsel's selectors, made quick: what a query finds becomes `Selector`s only when somebody looks at them one by one.

The results are parsel's in every respect; `getall`, `get`, `re`, `attrib` and further queries work on what lxml found
directly, and compiled queries are kept. Where anything is unusual (namespaces of one's own, variables, JSON) parsel
itself does the work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import parsel
from lxml import etree, html
from parsel.utils import extract_regex

QUERIES_MAX = 2048
"""Compiled queries that are kept."""

USUAL: Mapping[str, str] = dict(parsel.Selector._default_namespaces)  # noqa: SLF001  parsel has no other name for them
PREFIXES = tuple(f"{prefix}:" for prefix in USUAL)
MARKUP = ("html", "xml")
BOM = b"\xef\xbb\xbf"
_mine = threading.local()
"""`parser`: the HTML parser of this thread, with the options of parsel's."""


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _root_of(body: bytes, url: str) -> Any:
    """Return the root of a page as parsel would: its bytes are UTF-8, as we have seen, whatever it says itself."""
    parser = getattr(_mine, "parser", None)
    if parser is None:
        parser = _mine.parser = html.HTMLParser(recover=True, encoding="utf-8", huge_tree=True)
    if b"\0" in body:
        body = body.replace(b"\0", b"")
    root = etree.fromstring(body.strip() or b"<html/>", parser=parser, base_url=url)
    return etree.fromstring(b"<html/>", parser=parser, base_url=url) if root is None else root


@lru_cache(QUERIES_MAX)
def _compiled(query: str) -> etree.XPath:
    return etree.XPath(query, smart_strings=False)


@lru_cache(QUERIES_MAX)
def _compiled_css(query: str, markup: str) -> tuple[str, etree.XPath | None]:
    """Return the XPath that CSS stands for, and compiled, where it needs no name spaces."""
    xpath = _translated(query, markup)
    return xpath, None if any(prefix in xpath for prefix in PREFIXES) else _compiled(xpath)


def _text(found: Any, kind: str) -> str:
    """Return what `Selector.get` returns for a result."""
    if type(found) is str:
        return found
    if isinstance(found, etree._Element):  # noqa: SLF001  lxml's elements have no public name
        return etree.tostring(found, method=kind, encoding="unicode", with_tail=False)
    if found is True or found is False:
        return "1" if found else "0"
    return str(found)


class Selector(parsel.Selector):
    """See parsel. `namespaces` is shared by all selectors of a page until one of them registers its own."""

    __slots__ = ()

    @classmethod
    def of_page(cls, body: bytes, encoding: str, text: str | None, kind: str | None, url: str) -> Selector:
        """Parse a page: its bytes where these are the UTF-8 of HTML, else its decoded text."""
        if text is None and encoding == "utf-8" and kind == "html" and not body.startswith(BOM) and _is_utf8(body):
            return cls(root=_root_of(body, url), type=kind)
        decoded = body.decode(encoding, "replace") if text is None else text
        return cls(text=decoded, type=kind, base_url=url)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **kwargs: Any) -> parsel.SelectorList[Any]:
        """Select by XPath."""
        root = self.root
        if not _is_usual(query, namespaces, kwargs, self.namespaces) or self.type not in MARKUP:
            return super().xpath(query, namespaces, **kwargs)
        if not isinstance(root, etree._Element):  # noqa: SLF001
            return super().xpath(query)
        return SelectorList.found(_run(query, root), self, query)

    def _css2xpath(self, query: str) -> str:
        return _translated(query, "html" if self.type == "text" else self.type)

    def css(self, query: str) -> parsel.SelectorList[Any]:
        """Select by CSS."""
        markup, root = self.type, self.root
        if markup not in MARKUP or self.namespaces != USUAL or not isinstance(root, etree._Element):  # noqa: SLF001
            return super().css(query)
        xpath, compiled = _compiled_css(query, markup)
        if compiled is None:
            return super().xpath(xpath)
        return SelectorList.found(_run(xpath, root, compiled), self, xpath)

    def get(self) -> Any:
        """Return the markup of the element, or the text that was selected."""
        return _text(self.root, self.type) if self.type in MARKUP else self.root

    extract = get

    def register_namespace(self, prefix: str, uri: str) -> None:
        """Give a name space a prefix, for this selector and what it selects."""
        self.namespaces = {**self.namespaces, prefix: uri}


def _is_usual(query: Any, namespaces: object, variables: object, registered: Mapping[str, str]) -> bool:
    plain = not variables and namespaces is None and isinstance(query, str) and registered == USUAL
    return plain and not any(prefix in query for prefix in PREFIXES)


def _run(query: str, root: Any, compiled: etree.XPath | None = None) -> list[Any]:
    try:
        found = (compiled or _compiled(query))(root)
    except etree.XPathError as error:
        raise ValueError(f"XPath error: {error} in {query}") from error
    return found if isinstance(found, list) else [found]


class SelectorList(parsel.SelectorList[Any]):
    """See parsel. Holds the bare results, and their selectors from the moment that somebody looks at one."""

    _about: tuple[type[Selector], str, dict[str, str], str] | None = None

    @classmethod
    def found(cls, results: Iterable[Any], parent: Selector, query: str) -> SelectorList:
        """Hold the results of a query."""
        made = cls(results)
        made._about = (type(parent), query, parent.namespaces, parent.type)
        return made

    def _wrap(self) -> None:
        """Make a selector of each result."""
        about, self._about = self._about, None
        if about is None:
            return
        kind, query, namespaces, markup = about
        selectors = []
        for root in list.__iter__(self):
            selector = kind.__new__(kind)
            selector.root, selector.type, selector.namespaces = root, markup, namespaces
            selector._expr, selector._huge_tree, selector._text = query, True, None  # noqa: SLF001
            selectors.append(selector)
        list.__setitem__(self, slice(None), selectors)

    def getall(self) -> list[str]:
        """Return the text of each."""
        if self._about is None:
            return [each.get() for each in list.__iter__(self)]
        markup = self._about[3]
        return [each if type(each) is str else _text(each, markup) for each in list.__iter__(self)]

    extract = getall

    def get(self, default: Any = None) -> Any:
        """Return the text of the first, or `default`."""
        if not list.__len__(self):
            return default
        first = list.__getitem__(self, 0)
        return first.get() if self._about is None else _text(first, self._about[3])

    extract_first = get

    def xpath(self, xpath: str, namespaces: Mapping[str, str] | None = None, **kwargs: Any) -> parsel.SelectorList[Any]:
        """Select by XPath below each, and return all results."""
        about = self._about
        if about is None or about[3] not in MARKUP or not _is_usual(xpath, namespaces, kwargs, about[2]):
            return self.__class__([each for one in self for each in one.xpath(xpath, namespaces=namespaces, **kwargs)])
        results: list[Any] = []
        for root in list.__iter__(self):
            if isinstance(root, etree._Element):  # noqa: SLF001
                results += _run(xpath, root)
            elif xpath.strip() == ".":
                results.append(root)
        return _like(self, results, xpath)

    def css(self, query: str) -> parsel.SelectorList[Any]:
        """Select by CSS below each, and return all results."""
        if not list.__len__(self):
            return self.__class__()
        about = self._about
        if about is None or about[3] not in MARKUP:
            return self.__class__([each for one in self for each in one.css(query)])
        return self.xpath(_compiled_css(query, about[3])[0])

    def re(self, regex: Any, replace_entities: bool = True) -> list[str]:
        """Return what the regular expression finds in the text of each."""
        return [found for text in self.getall() for found in extract_regex(regex, text, replace_entities)]

    def re_first(self, regex: Any, default: Any = None, replace_entities: bool = True) -> Any:
        """Return the first that the regular expression finds, or `default`."""
        for each in list.__iter__(self):
            text = each.get() if self._about is None else _text(each, self._about[3])
            for found in extract_regex(regex, text, replace_entities):
                return found
        return default

    def __getitem__(self, pos: Any) -> Any:
        self._wrap()
        found = list.__getitem__(self, pos)
        return self.__class__(found) if isinstance(pos, slice) else found

    def __iter__(self) -> Iterator[Any]:
        self._wrap()
        return list.__iter__(self)

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self]

    def __repr__(self) -> str:
        self._wrap()
        return list.__repr__(self)


def _like(one: SelectorList, results: list[Any], query: str) -> SelectorList:
    assert one._about is not None  # noqa: SLF001
    made = SelectorList(results)
    made._about = (one._about[0], query, one._about[2], one._about[3])  # noqa: SLF001
    return made


def _translated(query: str, markup: str) -> str:
    from parsel.selector import _ctgroup

    try:
        return _ctgroup[markup]["_csstranslator"].css_to_xpath(query)
    except (SyntaxError, RuntimeError) as error:  # cssselect's, which do not name the query
        raise type(error)(f"{error} in {query!r}") from None


def _wrapping(name: str) -> Any:
    """Return a method of lists that looks at the selectors."""
    plain = getattr(list, name)

    def method(self: SelectorList, *arguments: Any, **options: Any) -> Any:
        self._wrap()
        return plain(self, *arguments, **options)

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


LOOKING = (
    *("__add__", "__contains__", "__delitem__", "__eq__", "__ge__", "__gt__", "__iadd__", "__imul__", "__le__"),
    *("__lt__", "__mul__", "__ne__", "__reversed__", "__rmul__", "__setitem__", "append", "copy", "count", "extend"),
    *("index", "insert", "pop", "remove", "reverse", "sort"),
)
for _name in LOOKING:
    setattr(SelectorList, _name, _wrapping(_name))

Selector.selectorlist_cls = SelectorList
