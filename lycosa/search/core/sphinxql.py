"""Writes SphinxQL for Sphinx and Manticore: the texts of documents, expressions for MATCH, literals.

The server splits texts at spaces only. Besides the texts of the schema, the index has two fields:

    keywords    a token for each keyword: the letter k and a hash. Words are not searched in this field.
    pairs       each pair of adjacent characters of scripts without spaces, as one token, since the quorum operator
                ("a b c"/2) counts tokens

A missing number is stored as -1. The values of each keyword in `Schema.counted` are also stored as numbers, in an
attribute of their own."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product

from lycosa.search.core.analyzer import is_unspaced
from lycosa.search.core.query import LooseQuery, SearchQuery, Term
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.schema import NUMBER_MAX, IndexEntry, Schema

CHARSET = "0..9, a..z, U+80..U+2FFFF"
TOKEN_MAX = 40
"""Maximum length of a token; the server cuts tokens at 42 characters. A hash replaces the end of a longer word."""
MISSING = -1
DOUBLED_MAX = 4
"""If more words than this are repeated in a loosened query, the rest of them count once."""
_TOO_LONG = re.compile(rf"[^ ]{{{TOKEN_MAX + 1},}}")
_TOO_HIGH = re.compile("[\U00030000-\U0010ffff]")
_NOT_SPACED = re.compile("[^\x00-\x7f]")
_SHORT_VALUE = re.compile("[0-9a-z]{1,11}")
_OPERATORS = re.compile(r"[\x00-/:-@\[-`{-\x7f]")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_HASHED = 1 << 62


def quoted(text: str) -> str:
    """Return the text as a SphinxQL literal."""
    text = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def document_id(key: str | int) -> int:
    """Return the numeric key, or a 62-bit hash of a text key."""
    return key if isinstance(key, int) else (_hash(key) >> 2) + 1


def fed(text: str) -> str:
    """Return the words of a document in the form that the server accepts."""
    if not text.isascii():
        text = _TOO_HIGH.sub(lambda found: f"u{ord(found[0]):x}", text)
    return _TOO_LONG.sub(lambda found: found[0][: TOKEN_MAX - 16] + _hex(found[0]), text)


def pairs(texts: Iterable[str]) -> str:
    """Return the pairs of adjacent characters of scripts without spaces."""
    return " ".join(
        first + second
        for text in texts
        if _NOT_SPACED.search(text)
        for first, second in pairwise(text.split(" "))
        if first and second and is_unspaced(first) and is_unspaced(second)
    )


def keyword_token(field: str, value: str) -> str:
    """Return the token for a keyword."""
    return "k" + _hex(f"{field}={value}")


def value_code(value: str) -> int:
    """Encode a counted value as a number: the digit 1 and the value, read in base 36; other values
    than 1 to 11 lower-case letters and digits as a hash."""
    return int("1" + value, 36) if _SHORT_VALUE.fullmatch(value) else _HASHED | _hash(value) >> 2


def value_of(code: int) -> str:
    """Decode a number from `value_code`; "" for a hash."""
    found = ""
    while code < _HASHED and code:
        code, digit = divmod(code, 36)
        found = _DIGITS[digit] + found
    return found[1:]


def row(entry: IndexEntry, schema: Schema, stored: str) -> str:
    """Return the values of a document, in the order of `columns`."""
    texts = [fed(entry.texts.get(name, "")) for name in schema.texts]
    tokens = [keyword_token(field, value) for field, values in entry.keywords.items() for value in values]
    values = [str(document_id(entry.key)), *map(quoted, texts), quoted(pairs(texts)), f"'{' '.join(tokens)}'"]
    values.append(str(sum(1 + text.count(" ") for text in texts)))
    values += [str(entry.numbers.get(name, MISSING)) for name in schema.numbers]
    for name in schema.counted:
        values.append("(" + ",".join(str(value_code(value)) for value in entry.keywords.get(name, ())) + ")")
    return f"({','.join([*values, quoted(stored)] if not schema.numeric_keys else values)})"


def columns(schema: Schema) -> list[str]:
    """Return the names of fields and attributes. Attributes have a prefix: some names are reserved words."""
    numbers, counted = [f"n_{name}" for name in schema.numbers], [f"v_{name}" for name in schema.counted]
    stored = [] if schema.numeric_keys else ["stored"]
    return ["id", *schema.texts, "pairs", "keywords", "length", *numbers, *counted, *stored]


def condition(request: SearchRequest, schema: Schema) -> str:
    """Return the WHERE clause of a request; "" for all documents."""
    parts = list(_query(request.query, schema)) if request.query is not None else []
    limits: list[str] = []
    for each in request.filters:
        if each.values:
            parts.append(_keywords(keyword_token(each.field, value) for value in each.values))
        else:
            high = NUMBER_MAX if each.high is None else each.high
            limits += [f"n_{each.field} >= {int(each.low or 0)}", f"n_{each.field} <= {int(high)}"]
    if request.without:
        limits.append(f"id NOT IN ({', '.join(map(str, request.without))})")
    if parts:
        limits.insert(0, f"MATCH({quoted(' '.join(parts))})")
    return f" WHERE {' AND '.join(limits)}" if limits else ""


def order(request: SearchRequest) -> tuple[str, str]:
    """Return further columns to select, and the ORDER BY terms that use them."""
    if not request.sort:
        return "", "w DESC, id ASC"
    way = "ASC" if request.ascending else "DESC"
    return f", IF(n_{request.sort} < 0, 1, 0) AS missing", f"missing ASC, n_{request.sort} {way}, id ASC"


def escaped(text: str) -> str:
    """Replace operators of MATCH with spaces."""
    return _OPERATORS.sub(" ", text).strip()


def _query(query: SearchQuery | LooseQuery, schema: Schema) -> Iterator[str]:
    for clause in query.clauses:
        yield f"({' | '.join(_term(term, schema) for term in clause)})"
    if isinstance(query, LooseQuery):
        yield f"(@!(keywords) {_most_of(query.optional, query.needed)})"
    for term in query.excluded:
        yield f"-{_term(term, schema)}"


def _term(term: Term, schema: Schema) -> str:
    if term.where == "site":
        return _keywords([keyword_token("site", term.words[0])])
    where = f"@{schema.title}" if term.where == "title" else "@!(keywords,pairs)"
    return f"({where} {_phrase(term.words)})"


def _phrase(words: Sequence[str]) -> str:
    return '"' + " ".join(escaped(fed(word)) for word in words) + '"'


def _keywords(tokens: Iterable[str]) -> str:
    return f"(@keywords {' | '.join(tokens)})"


def _most_of(optional: Sequence[Term], needed: int) -> str:
    """Return an expression for documents with at least `needed` of the terms.

    A quorum counts each word once, so repeated words are not in the quorum. Instead, the expression has an alternative
    for each set of repeated words that a document may contain.
    """
    counts = Counter(escaped(fed("".join(term.words))) for term in optional)
    doubled = [word for word, times in counts.items() if times > 1][:DOUBLED_MAX]
    single = [word for word in counts if word not in doubled]
    ways = []
    for chosen in product((False, True), repeat=len(doubled)):
        having = [word for word, yes in zip(doubled, chosen, strict=True) if yes]
        rest = max(needed - sum(counts[word] for word in having), 0)
        if rest <= len(single):
            quorum = [f'"{" ".join(single)}"/{rest}'] if rest else []
            ways.append(f"({' '.join([*(_phrase([word]) for word in having), *quorum])})")
    return f"({' | '.join(ways)})"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


def _hex(text: str) -> str:
    return f"{_hash(text):016x}"
