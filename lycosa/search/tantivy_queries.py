"""Builds tantivy queries from requests, and computes an upper bound for the number of matches.

The queries must be fast with ten million documents:

- A word is normally searched as a union: in the first text or in the second. Tantivy reads a union to its end, even if
  few documents have the other words of the query. So a frequent word beside a rare one is not searched as a union.
  Instead, the query has two alternatives: the rare word with the frequent word in the first text, or the rare word
  with the frequent word in the second text.
- For a loose query, Tantivy reads the union of all words to its end, too. If the score does not matter, the query has
  an alternative for each choice of enough words, in each text.
- A phrase that only raises the score is left out if the order does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, islice, product
from math import comb

from tantivy import Occur, Query
from tantivy import Schema as Fields

from lycosa.search import tantivy_slices
from lycosa.search.core.query import LooseQuery, SearchQuery, Term
from lycosa.search.core.request import SearchRequest, ValueFilter
from lycosa.search.core.schema import Schema
from lycosa.search.tantivy_ranges import Days, any_of, range_query

PHRASE_WEIGHT = 2.0
"""Extra weight if the words of the query are adjacent in the document."""
FREQUENT = 16
"""A word counts as frequent, compared with another word, if at least FREQUENT times as many documents have it."""
FREQUENT_MAX = 2
"""Maximum number of frequent words that are searched in each text separately, not in both texts as a union. Each such
word doubles the number of alternatives.
"""
ALTERNATIVES_MAX = 32
"""Maximum number of alternatives for the words of a loose query."""
_TIE_BREAKER = 0.2

Clause = tuple[Term, ...]


class TantivyQueries:
    """Builds queries. `frequency` returns the number of documents that have a word in a field.

    `days` returns the days of the index, or None if it has none.
    """

    def __init__(
        self,
        schema: Schema,
        fields: Fields,
        frequency: Callable[[str, str], int],
        days: Callable[[], Days | None],
    ) -> None:
        self._schema, self._fields, self._frequency, self._days = schema, fields, frequency, days

    def of(self, request: SearchRequest, *, near: bool) -> Query:
        """Return the query of a request. With `near`, adjacent words raise the score."""
        return self._filtered(self._matching(request, near), request)

    def _filtered(self, query: Query, request: SearchRequest) -> Query:
        if not request.filters and not request.without:
            return query
        parts = [(Occur.Must, query)]
        if request.without:
            parts.append((Occur.MustNot, Query.term_set_query(self._fields, "key", list(request.without))))
        parts += [(Occur.Must, self.filter(each)) for each in request.filters]
        return Query.boolean_query(parts)

    def filter(self, wanted: ValueFilter) -> Query:
        """Return the query of a filter, which does not affect the order of results."""
        if wanted.values:
            # `term_set_query` would first collect all documents with one of the values; this query can skip documents.
            return any_of(self._fields, wanted.field, wanted.values)
        days = self._days() if wanted.field == self._schema.time else None
        return (days and days.query(wanted)) or range_query(self._fields, wanted)

    def rarer(self, request: SearchRequest) -> Query | None:
        """Return a query for those matches of a loose query that have one of its rarer words: they rank first.

        None if the query is not loose, if its words are all frequent or all rare, or if the index has too few of them.
        """
        query = request.query
        if not isinstance(query, LooseQuery):
            return None
        found = [(term, count) for term in query.optional if (count := self._term_most(term))]
        rare = [term for term, count in found if count <= tantivy_slices.COUNTED_MAX]
        frequent = [term for term, count in found if count > tantivy_slices.COUNTED_MAX]
        if not rare or not frequent or len(found) < query.needed:
            return None
        alternatives = islice(self._with_rare(rare, frequent, query.needed), ALTERNATIVES_MAX)
        some = Query.disjunction_max_query(list(alternatives), _TIE_BREAKER)
        return self._filtered(self._loose(query, some), request)

    def most(self, request: SearchRequest, documents: int) -> int:
        """Return an upper bound for the number of matches among this many documents."""
        bounds = [documents]
        query = request.query
        if query:
            bounds += [self._clause_most(clause) for clause in query.clauses]
        if isinstance(query, LooseQuery):
            bounds.append(sum(map(self._term_most, query.optional)) // max(query.needed, 1))
        for each in request.filters:
            if each.values:
                bounds.append(sum(self._frequency(each.field, value) for value in each.values))
            elif each.field == self._schema.time and (days := self._days()):
                bounds.append(days.most(each))
        return min(bounds)

    def _matching(self, request: SearchRequest, near: bool) -> Query:
        query = request.query
        if query is None:
            return Query.all_query()
        if isinstance(query, LooseQuery):
            return self._loose(query, self._some_of(query) if request.sort else self._most_of(query))
        return self._all_of(query, near)

    def _all_of(self, query: SearchQuery, near: bool) -> Query:
        parts = [(Occur.Must, each) for each in self._clauses(query.clauses)]
        parts += [(Occur.MustNot, self._term(term)) for term in query.excluded]
        side_by_side = query.plain_words
        if near and len(side_by_side) > 1:
            phrases = [
                Query.boost_query(self._words_in(field, side_by_side), PHRASE_WEIGHT * self._schema.texts[field])
                for field in self._schema.near
            ]
            parts.append((Occur.Should, Query.disjunction_max_query(phrases)))
        return Query.boolean_query(parts)

    def _most_of(self, query: LooseQuery) -> Query:
        """Return the query for enough of the optional words. The more of them a document has, the higher it ranks."""
        return Query.boolean_query([(Occur.Should, self._term(term)) for term in query.optional], query.needed)

    def _some_of(self, query: LooseQuery) -> Query:
        """Return a query for the same documents as `_most_of`, whose score does not matter."""
        texts, needed = self._schema.texts, query.needed
        if comb(len(query.optional), needed) * len(texts) ** needed > ALTERNATIVES_MAX:
            return self._most_of(query)
        alternatives = [
            Query.boolean_query([(Occur.Must, self._words_in(*each)) for each in zip(fields, words, strict=True)])
            for words in combinations([term.words for term in query.optional], needed)
            for fields in product(texts, repeat=needed)
        ]
        return Query.disjunction_max_query(alternatives)

    def _loose(self, query: LooseQuery, some: Query) -> Query:
        parts = [(Occur.Must, some)]
        parts += [(Occur.Must, self._clause(clause)) for clause in query.clauses]
        parts += [(Occur.MustNot, self._term(term)) for term in query.excluded]
        return Query.boolean_query(parts)

    def _with_rare(self, rare: list[Term], frequent: list[Term], needed: int) -> Iterator[Query]:
        """Yield alternatives for at least `needed` words, at least one of them rare."""
        most = min(needed, len(rare))
        for count in range(most, max(needed - len(frequent), 1) - 1, -1):
            some = Query.boolean_query([(Occur.Should, self._term(term)) for term in rare], count)
            for chosen in combinations([(term,) for term in frequent], needed - count):
                for fields in product(self._schema.texts, repeat=len(chosen)):
                    yield self._joined(some, list(chosen), fields)

    def _clauses(self, clauses: tuple[Clause, ...]) -> list[Query]:
        frequent = self._frequent(clauses)
        queries = [self._clause(clause) for clause in clauses if clause not in frequent]
        if not frequent:
            return queries
        rare = Query.boolean_query([(Occur.Must, each) for each in queries])
        places = product(self._schema.texts, repeat=len(frequent))
        return [Query.disjunction_max_query([self._joined(rare, frequent, fields) for fields in places])]

    def _frequent(self, clauses: tuple[Clause, ...]) -> list[Clause]:
        """Return the clauses that consist of one frequent word; [] unless documents have exactly two texts."""
        if len(clauses) < 2 or len(self._schema.texts) != 2:
            return []
        most = {clause: self._clause_most(clause) for clause in clauses}
        rarest = min(most.values())
        found = [each for each in most if _is_word(each) and most[each] >= FREQUENT * max(rarest, 1)]
        return sorted(found, key=lambda clause: most[clause], reverse=True)[:FREQUENT_MAX]

    def _joined(self, rare: Query, frequent: list[Clause], fields: tuple[str, ...]) -> Query:
        """Return the query for the rare part and all frequent words. `fields`: the text of each frequent word."""
        words = [
            Query.boost_query(self._words_in(field, term.words), self._schema.texts[field])
            for field, (term,) in zip(fields, frequent, strict=True)
        ]
        return Query.boolean_query([(Occur.Must, each) for each in (rare, *words)])

    def _clause(self, clause: Clause) -> Query:
        if len(clause) == 1:
            return self._term(clause[0])
        return Query.boolean_query([(Occur.Should, self._term(term)) for term in clause])

    def _term(self, term: Term) -> Query:
        if term.where == "site":
            if "site" not in self._schema.keywords:
                return Query.empty_query()
            return Query.const_score_query(Query.term_query(self._fields, "site", term.words[0], "basic"), 0.0)
        texts = self._schema.texts
        if term.where == "title":
            title = self._schema.title
            return Query.boost_query(self._words_in(title, term.words), texts[title])
        places = [Query.boost_query(self._words_in(field, term.words), weight) for field, weight in texts.items()]
        return Query.disjunction_max_query(places, _TIE_BREAKER)

    def _words_in(self, field: str, found: tuple[str, ...]) -> Query:
        if len(found) == 1:
            return Query.term_query(self._fields, field, found[0], "freq")
        return Query.phrase_query(self._fields, field, list(found))

    def _clause_most(self, clause: Clause) -> int:
        return sum(map(self._term_most, clause))

    def _term_most(self, term: Term) -> int:
        if term.where == "site":
            return self._frequency("site", term.words[0]) if "site" in self._schema.keywords else 0
        fields = [self._schema.title] if term.where == "title" else [*self._schema.texts]
        return sum(min(self._frequency(field, word) for word in term.words) for field in fields)


def _is_word(clause: Clause) -> bool:
    return len(clause) == 1 and clause[0].where == "any" and len(clause[0].words) == 1
