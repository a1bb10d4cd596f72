"""Routes of `lycosa.Crawl`: callbacks that are registered by a decorator.

A response goes to the route that its request names, else to the first route whose glob matches the URL, else to the
default route.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Any, TypeVar

from lycosa.core.errors import BadSpider
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.spider import Spider

Handler = TypeVar("Handler", bound=Callable[..., Any])


class Routes:
    """Handlers by name and by glob, in the order of registration."""

    def __init__(self) -> None:
        self.named: dict[str, Callable[..., Any]] = {}
        self.matching: list[tuple[re.Pattern[str], Callable[..., Any]]] = []
        self.default: Callable[..., Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.named)

    def add(self, name: str | None, match: str | None) -> Callable[[Handler], Handler]:
        """Return the decorator for `Crawl.route`, which raises `BadSpider` for a name that is already taken."""

        def register(handler: Handler) -> Handler:
            for each in {name, handler.__name__} - {None}:
                if hasattr(Spider, str(each)) and each != "parse":
                    raise BadSpider(f"a route cannot be called {each!r}: this is an attribute of every spider")
                if self.named.setdefault(str(each), handler) is not handler:
                    raise BadSpider(f"there are two routes {each!r}: rename one")
            if match is not None:
                self.matching.append((re.compile(translate(match)), handler))
            elif name is None:
                if self.default is not None:
                    raise BadSpider(f"{handler.__name__} is a second default route: give it a name or a match")
                self.default = handler
            return handler

        return register


class RoutedSpider(Spider):
    """The spider of a `Crawl` that has routes."""

    name = "crawl"

    def __init__(self, start_urls: Sequence[str], routes: Routes) -> None:
        super().__init__()
        self.start_urls = start_urls
        self._routes = routes
        self.__dict__.update({name: each for name, each in routes.named.items() if name != "parse"})

    def parse(self, response: Response) -> Any:
        matching = (handler for pattern, handler in self._routes.matching if pattern.match(response.url))
        handler = next(matching, self._routes.default)
        if handler is None:
            raise BadSpider(f"no route for {response.url}: write one with @crawl.route()")
        return handler(response, **response.request.callback_arguments())
