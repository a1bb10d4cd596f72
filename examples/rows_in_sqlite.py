"""Rows in your own SQLite database, each exactly once, whatever is killed: rows and position share a transaction.

lycosa runspider examples/rows_in_sqlite.py -a site=https://example.com/ -a database=pages.sqlite > /dev/null
"""

from __future__ import annotations

import sqlite3

import lycosa

TABLES = """
CREATE TABLE IF NOT EXISTS pages (writer TEXT, position INTEGER, url TEXT, title TEXT);
CREATE INDEX IF NOT EXISTS pages_by_position ON pages (writer, position);
CREATE TABLE IF NOT EXISTS positions (writer TEXT PRIMARY KEY, position INTEGER);
"""


class ToSqlite:
    def open_spider(self, spider):
        self.db = sqlite3.connect(spider.database)
        self.db.executescript(TABLES)

    def resume_from(self, position):
        """Delete the rows of a commit that the crawl has lost: the crawl fetches the pages of these rows again."""
        with self.db:
            self.db.execute("DELETE FROM pages WHERE writer = ? AND position > ?", position)
        found = self.db.execute("SELECT position FROM positions WHERE writer = ?", [position.writer]).fetchone()
        return found[0] if found else 0

    def process_item(self, item):
        return item

    def before_commit(self, position, items):
        rows = ((*position, item["url"], item["title"]) for item in items)
        with self.db:
            self.db.executemany("INSERT INTO pages VALUES (?, ?, ?, ?)", rows)
            self.db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", position)

    def close_spider(self):
        self.db.close()


class Pages(lycosa.Spider):
    name = "pages"
    pipelines = [ToSqlite]

    async def start(self):
        yield lycosa.Request(self.site)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
