"""Scrapy's scheduler with JOBDIR and its SQLite queues (2.19): a database file a host, one commit a request.

Otherwise as `frontier_scrapy.py`, with the same losses: the files survive a crash, the list of them does not.
"""

from __future__ import annotations

from frontier_scrapy import Peer as Scrapy


class Peer(Scrapy):
    """See `cycle.Peer`."""

    SETTINGS = {"SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoSQLiteQueue"}
