"""Rows in a PostgreSQL database, each exactly once, whatever is killed: rows and position share a transaction.

Needs psycopg: pip install 'psycopg[binary]'

lycosa runspider examples/rows_in_postgresql.py -a site=https://example.com/ -a database=dbname=shop > /dev/null
"""

from __future__ import annotations

import psycopg

import lycosa

TABLES = """
CREATE TABLE IF NOT EXISTS pages (writer text, position bigint, url text, title text);
CREATE INDEX IF NOT EXISTS pages_by_position ON pages (writer, position);
CREATE TABLE IF NOT EXISTS positions (writer text PRIMARY KEY, position bigint);
"""

TAKE_POSITION = """
INSERT INTO positions VALUES (%s, 0)
ON CONFLICT (writer) DO UPDATE SET position = least(positions.position, %s) RETURNING position
"""


class ToPostgresql:
    def open_spider(self, spider):
        self.db = psycopg.connect(spider.database, autocommit=True)
        self.db.execute(TABLES)

    def resume_from(self, position):
        """Delete the rows of a commit that the crawl has lost: the crawl fetches the pages of these rows again."""
        with self.db.transaction():
            # This statement is first: it waits until the server ends the last transaction of a process that was killed.
            (number,) = self.db.execute(TAKE_POSITION, position).fetchone()
            self.db.execute("DELETE FROM pages WHERE writer = %s AND position > %s", position)
        return number

    def process_item(self, item):
        return item

    def before_commit(self, position, items):
        rows = ((*position, item["url"], item["title"]) for item in items)
        with self.db.transaction(), self.db.cursor() as cursor:
            cursor.execute("UPDATE positions SET position = %s WHERE writer = %s", (position.number, position.writer))
            cursor.executemany("INSERT INTO pages VALUES (%s, %s, %s, %s)", rows)

    def close_spider(self):
        self.db.close()


class Pages(lycosa.Spider):
    name = "pages"
    pipelines = [ToPostgresql]

    async def start(self):
        yield lycosa.Request(self.site)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
