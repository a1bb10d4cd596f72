"""The query language of all back ends.

    word word          all words (also word AND word); if no document has them all, see `SearchQuery.loosened`
    "some words"       a phrase
    -word -"a b"       without these words (also NOT word)
    one OR other       at least one of the two
    title:word         in the title
    site:example.org   on this host or its subdomains

Everything else, such as an unknown prefix, an unclosed quotation mark or a lone operator, is read as words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from lycosa.core.errors import BadQuery
from lycosa.search.core.analyzer import is_unspaced, words
from lycosa.search.core.results import SearchPage

QUERY_MAX = 1_000
QUERY_WORDS_MAX = 64
LIMIT_MAX = 1_000
OFFSET_MAX = 10_000

Where = Literal["any", "title", "site"]

_PART = re.compile(
    r"""(?P<minus>-)?(?:(?P<where>title|site):)?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))""", re.IGNORECASE
)
_PUNCTUATION = str.maketrans({"“": '"', "”": '"', "„": '"', "＂": '"', "：": ":", "－": "-", "−": "-"})  # noqa: RUF001
_OPERATORS = frozenset({"AND", "OR", "NOT"})


class Term(NamedTuple):
    """Adjacent words to find, and where. With "site", the only word is a host, with its port if given."""

    words: tuple[str, ...]
    where: Where = "any"
    quoted: bool = False


class SearchQuery(NamedTuple):
    """Matches documents with at least one term of each clause and no excluded term."""

    clauses: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...] = ()

    @property
    def plain_words(self) -> tuple[str, ...]:
        """The words to find in any text, in order; () if the query has OR or `title:`."""
        if any(len(clause) > 1 or clause[0].where == "title" for clause in self.clauses):
            return ()
        return tuple(word for (term,) in self.clauses if term.where == "any" for word in term.words)

    def loosened(self) -> LooseQuery | None:
        """Return a looser query to try if no document matches; None if there is none.

        Quoted phrases, `title:`, `site:`, OR and exclusions are kept. Half of the other words are enough. In a
        script without spaces, a run of characters may be a sentence, so 40% of its pairs of adjacent characters are
        enough.
        """
        required = [clause for clause in self.clauses if len(clause) > 1 or _is_strict(clause[0])]
        optional = [piece for clause in self.clauses if clause not in required for piece in _pieces(clause[0].words)]
        if len(optional) < 2:
            return None
        tenths = sum(4 if len(piece.words) > 1 else 5 for piece in optional)  # not all pairs are words
        return LooseQuery(tuple(required), self.excluded, tuple(optional), -(-tenths // 10))


class LooseQuery(NamedTuple):
    """A `SearchQuery` that also requires `needed` of the optional terms."""

    clauses: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...]
    optional: tuple[Term, ...]
    needed: int


Split = Callable[[str], list[str]]


def parse_query(query: str, split: Split = words) -> SearchQuery:
    """Parse a query. `split` divides text into words. Raises `BadQuery`, with a one-line message, if the query has no
    word or exceeds a bound.
    """
    if len(query) > QUERY_MAX:
        raise BadQuery("the query has {count} characters: use at most {most}", count=len(query), most=QUERY_MAX)
    text = query.translate(_PUNCTUATION)
    if text.count('"') % 2:  # drop the unclosed quotation mark
        head, _, tail = text.rpartition('"')
        text = f"{head} {tail}"
    parsed = _parse(text, split, operators=True)
    if not parsed.clauses and not parsed.excluded:  # the query consists only of operators, such as OR
        parsed = _parse(text, split, operators=False)
    if not parsed.clauses:
        raise _no_words(query, parsed)
    count = sum(len(term.words) for clause in (*parsed.clauses, parsed.excluded) for term in clause)
    if count > QUERY_WORDS_MAX:
        raise BadQuery("the query has {count} words: use at most {most}", count=count, most=QUERY_WORDS_MAX)
    return parsed


def check_page(limit: int, offset: int) -> None:
    """Raise `BadQuery` if limit or offset is out of bounds."""
    if not 1 <= limit <= LIMIT_MAX:
        raise BadQuery("limit {limit} is out of range: use 1 to {most}", limit=limit, most=LIMIT_MAX)
    if not 0 <= offset <= OFFSET_MAX:
        raise BadQuery(
            "offset {offset} is out of range: use 0 to {most}, and a narrower query beyond that",
            offset=offset,
            most=OFFSET_MAX,
        )


def page_as_json(query: str, page: SearchPage, limit: int, offset: int) -> dict[str, Any]:
    """Return the JSON object of the API and of `lycosa search --json`."""
    return {
        "query": query,
        "total": page.total,
        "partial": page.partial,
        "suggestion": page.suggestion,
        "took_ms": round(page.took_ms, 3),
        "limit": limit,
        "offset": offset,
        "hits": [hit._asdict() for hit in page.hits],
    }


def site_names(url: str) -> list[str]:
    """Return the names by which `site:` finds a URL: its host and the domains above it, also with the port."""
    host, port = _host_and_port(url)
    if not host:
        return []
    names = [host]
    if not host.replace(".", "").isdigit() and ":" not in host:
        labels = host.split(".")
        names += [".".join(labels[n:]) for n in range(1, len(labels))]
    return names + [f"{name}:{port}" for name in names if port]


def _parse(text: str, split: Split, *, operators: bool) -> SearchQuery:
    clauses: list[tuple[Term, ...]] = []
    excluded: list[Term] = []
    joins = negates = False
    for part in _PART.finditer(text):
        if operators and part[0] in _OPERATORS:
            joins = joins or part[0] == "OR"
            negates = part[0] == "NOT"
            continue
        for term in _terms(part, split):
            if part["minus"] or negates:
                excluded.append(term)
            elif joins and clauses:
                clauses[-1] = (*clauses[-1], term)
            else:
                clauses.append((term,))
            joins = False
        negates = False
    return SearchQuery(tuple(clauses), tuple(excluded))


def _terms(part: re.Match[str], split: Split) -> Iterator[Term]:
    where = (part["where"] or "any").lower()
    quoted = part["phrase"] is not None
    text = part["phrase"] if quoted else part["word"]
    if where == "site":
        host, port = _host_and_port(text.strip().lstrip("*."))
        if host:
            yield Term((f"{host}:{port}" if port else host,), "site")
        return
    found = split(text)
    in_what: Where = "title" if where == "title" else "any"
    for run in [found] if quoted else _runs(found):
        if run:
            yield Term(tuple(run), in_what, quoted)


def _runs(found: list[str]) -> Iterator[list[str]]:
    """Split words where scripts with and without spaces meet: "DHT爬虫" is two terms."""
    run: list[str] = []
    for word in found:
        if run and is_unspaced(word) != is_unspaced(run[-1]):
            yield run
            run = []
        run.append(word)
    yield run


def _pieces(found: tuple[str, ...]) -> list[Term]:
    if len(found) > 1 and is_unspaced(found[0]):
        return [Term(pair) for pair in pairwise(found)]
    return [Term((word,)) for word in found]


def _is_strict(term: Term) -> bool:
    return term.quoted or term.where != "any"


def _host_and_port(url: str) -> tuple[str, str]:
    """Split a URL, or the text after `site:`. A missing port is ""."""
    rest = url.partition("://")[2] if "://" in url else url
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")[2].lower()
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        return host, port.lstrip(":")
    host, _, port = authority.partition(":")
    return host.strip("."), port


def _no_words(query: str, parsed: SearchQuery) -> BadQuery:
    shown = query.strip()[:40]
    if parsed.excluded:
        return BadQuery("the query {query!r} only excludes words: add a word to search for", query=shown)
    if shown:
        return BadQuery("the query {query!r} has no word in it: write at least one", query=shown)
    return BadQuery("the query is empty: write a word")
