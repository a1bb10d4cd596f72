"""The word list of an index, with frequencies, for completions and suggestions.

DIR/words/words.sqlite   words (word, frequency), counted (the highest key that was counted)

The size of the list is limited: rare words are removed. Frequencies are approximate: removed documents count until the
index is rebuilt, and in a large index only a sample of the documents is counted. A kill loses uncommitted
counts, which is harmless.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from lycosa.infra.sqlite import open_database, open_read_only, transaction
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.core.spelling import nearest, one_slip, slips_allowed, two_words
from lycosa.search.index_folder import failures
from lycosa.search.ports import Index

FOLDER, FILE = "words", "words.sqlite"
WORDS_MAX = 300_000
"""When the list has more than 125% of this many words, rare words are removed until at most this many are left."""
PENDING_MAX = 200_000
WORD_MIN, WORD_MAX = 2, 24
CODE_MIN = 9
"""Words with a digit and at least this many characters, such as checksums, are not listed."""
ALL_COUNTED = 250_000
SIMILAR_MAX = 2_000
"""Maximum number of listed words compared with a word: the most frequent ones with its first two letters."""
RARE = 10
"""A word with one slip that is less frequent than this may be misspelled itself: words with two slips that are RARE
times as frequent are likelier."""
SAMPLE = 16
"""One in SAMPLE documents with numeric keys above ALL_COUNTED is counted."""
_COLUMNS = "(word TEXT PRIMARY KEY, frequency INTEGER NOT NULL) WITHOUT ROWID"
_MAKE = (f"CREATE TABLE words {_COLUMNS}", "CREATE TABLE counted (highest_key INTEGER NOT NULL)")


class WordList:
    """Reads the list in the folder of an index. A missing or unreadable list has no words.

    Each call opens the file anew, since the list may be replaced; calls within `connected` share a connection.
    """

    def __init__(self, index: Path, connection: sqlite3.Connection | None = None) -> None:
        self._index, self._file, self._connection = index, index / FOLDER / FILE, connection

    @contextmanager
    def connected(self) -> Iterator[WordList]:
        """Yield this list with one connection for all calls."""
        with ExitStack() as stack:
            connection = None
            with suppress(sqlite3.Error):
                connection = stack.enter_context(closing(open_read_only(self._file)))
            yield WordList(self._index, connection)

    def completions(self, prefix: str, limit: int) -> list[str]:
        """Return the most frequent words that begin with this folded prefix."""
        found = self._read(
            "SELECT word, frequency FROM words WHERE word >= ? AND word < ? ORDER BY frequency DESC, word LIMIT ?",
            [prefix, prefix + "\U0010ffff", limit],
        )
        return [word for word, _ in found]

    def frequencies(self, words: Iterable[str]) -> dict[str, int]:
        """Return the frequencies of those words that are listed."""
        listed = json.dumps(list(words))
        return dict(self._read("SELECT word, frequency FROM json_each(?) JOIN words ON word = value", [listed]))

    def similar(self, word: str, frequency_min: int = 1) -> list[tuple[str, int]]:
        """Return words of a similar spelling that are at least this frequent, and their frequencies. The likeliest word
        comes first."""
        slips = slips_allowed(word)
        if not slips:
            return []
        known = self.frequencies(one_slip(word))
        near = nearest(word, [each for each in known.items() if each[1] >= frequency_min])
        best = max((frequency for _, frequency in near), default=0)
        if best >= RARE or slips == 1:
            return near
        # Two slips: only words with the same first two letters are compared.
        frequency_min = max(frequency_min, best * RARE)
        listed = self._read(
            "SELECT word, frequency FROM words WHERE word >= ? AND word < ? AND frequency >= ?"
            " AND length(word) BETWEEN ? AND ? ORDER BY frequency DESC LIMIT ?",
            [word[:2], word[:2] + "\U0010ffff", frequency_min, len(word) - slips, len(word) + slips, SIMILAR_MAX],
        )
        return [*nearest(word, listed), *near]

    def divided(self, word: str) -> str:
        """Return this word divided into two listed words by a space; "" if impossible."""
        pairs = list(two_words(word))
        known = self.frequencies({part for pair in pairs for part in pair})
        frequency, divided = max(((min(known.get(part, 0) for part in pair), pair) for pair in pairs), default=(0, ()))
        return " ".join(divided) if frequency else ""

    def _read(self, statement: str, values: Sequence[Any]) -> list[tuple[str, int]]:
        with suppress(sqlite3.Error, UnicodeEncodeError), ExitStack() as stack:
            connection = self._connection or stack.enter_context(closing(open_read_only(self._file)))
            return connection.execute(statement, values).fetchall()
        return []


def sampled_words(entries: Sequence[IndexEntry], texts: Sequence[str]) -> list[str]:
    """Return the words of those documents whose keys are in the sample."""
    sampled = [
        entry.texts.get(name, "")
        for entry in entries
        if not isinstance(entry.key, int) or entry.key <= ALL_COUNTED or entry.key % SAMPLE == 0
        for name in texts
    ]
    return " ".join(sampled).split()


class WordCounter:
    """Counts the words of documents added to an index. Only one process may use it. Raises `IndexFailure`."""

    def __init__(self, index: Path, schema: Schema) -> None:
        self._path, self._texts = index, schema.listed
        self._table = "words"
        self._pending = Counter[str]()
        with self._failures("cannot be opened"):
            (index / FOLDER).mkdir(parents=True, exist_ok=True)
            self._database = open_database(index / FOLDER / FILE, lambda _: None, _MAKE)
            [self._counted] = self._database.execute("SELECT max(highest_key) FROM counted").fetchone()
        self._counted = self._counted_before = self._counted or 0

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Count the words of documents.

        A document with a numeric key counts only if its key is higher than all keys of earlier calls. Of keys above
        ALL_COUNTED, only multiples of SAMPLE count.
        """
        new = [entry for entry in entries if not isinstance(entry.key, int) or entry.key > self._counted]
        counted = max([self._counted, *(entry.key for entry in entries if isinstance(entry.key, int))])
        self.add_counts(Counter(sampled_words(new, self._texts)), counted)

    def add_counts(self, counts: Counter[str], counted: int) -> None:
        """Add frequencies of `sampled_words`. `counted` is the highest key of the documents that have these words."""
        self._pending.update(counts)
        self._counted = max(self._counted, counted)
        if len(self._pending) > PENDING_MAX:
            self.commit()

    def commit(self) -> None:
        if not self._pending:
            return
        counts = sorted((word, count) for word, count in self._pending.items() if _is_listed(word))
        self._pending.clear()
        merge = "ON CONFLICT DO UPDATE SET frequency = frequency + excluded.frequency"
        with self._failures("cannot be written"), transaction(self._database):
            self._database.executemany(f"INSERT INTO {self._table} VALUES (?, ?) {merge}", counts)
            self._remove_rare()
            self._database.execute("DELETE FROM counted")
            self._database.execute("INSERT INTO counted VALUES (?)", [self._counted])

    def restart(self) -> None:
        """Start a new list beside the old one. `adopt` replaces the old list; `abandon` continues it."""
        self.commit()
        self._table, self._counted, self._counted_before = "words_rebuilt", 0, self._counted
        with self._failures("cannot be rebuilt"):
            self._database.execute("DROP TABLE IF EXISTS words_rebuilt")
            self._database.execute(f"CREATE TABLE words_rebuilt {_COLUMNS}")

    def adopt(self) -> None:
        self.commit()
        self._table = "words"
        with self._failures("cannot be replaced"), transaction(self._database):
            self._database.execute("DROP TABLE words")
            self._database.execute("ALTER TABLE words_rebuilt RENAME TO words")

    def abandon(self) -> None:
        self._pending.clear()
        self._table, self._counted = "words", max(self._counted, self._counted_before)

    def close(self) -> None:
        self._database.close()

    def _remove_rare(self) -> None:
        grouped = f"SELECT frequency, count(*) FROM {self._table} GROUP BY frequency ORDER BY frequency DESC"
        kept = 0
        rows = self._database.execute(f"SELECT count(*) FROM {self._table}").fetchone()[0]
        if rows <= WORDS_MAX * 5 // 4:
            return
        for frequency, words in self._database.execute(grouped).fetchall():
            kept += words
            if kept > WORDS_MAX:
                self._database.execute(f"DELETE FROM {self._table} WHERE frequency <= ?", [frequency])
                return

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        with failures(self._path, f"has a word list that {what}"):
            try:
                yield
            except sqlite3.Error as error:
                raise ValueError(str(error)) from error


def word_counter(folder: Path, index: Index) -> WordCounter:
    """Open the counter of an index that is open for writing. On failure, close the index, which unlocks it."""
    try:
        return WordCounter(folder, index.schema)
    except BaseException:
        index.close()
        raise


def erase_words(folder: Path) -> None:
    """Remove the list. Raises `IndexFailure`."""
    with failures(folder, "has a word list that cannot be removed"):
        for file in (folder / FOLDER).glob(f"{FILE}*"):
            file.unlink(missing_ok=True)


def _is_listed(word: str) -> bool:
    if not WORD_MIN <= len(word) <= WORD_MAX or word.isdigit():
        return False
    return len(word) < CODE_MIN or not any(map(str.isdigit, word))
