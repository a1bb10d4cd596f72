"""The description of a crawl, stored beside its frontier: in a folder, or on a server."""

from __future__ import annotations

import msgspec

FORMAT = "lycosa-crawl"
VERSION = 3
"""3 has levels of fingerprints (`levels`); what 1 and 2 wrote cannot be read any more."""


class SpiderDescription(msgspec.Struct):
    """The options of one spider of several in the last run."""

    name: str
    domains: list[str] = []
    depth: int | None = None
    allow: list[str] = []
    deny: list[str] = []
    robots: bool = True
    user_agent: str = ""


class Description(msgspec.Struct):
    """What is known of a crawl besides its records: `crawl.json`, or the same on a server.

    `seeds` are the canonical start URLs of all runs, in order. `spider` is the name of the spider, "" without one;
    `key` holds the `--fingerprint-rules`, none for the default. `imported`: an import created the state, and no crawl
    has used it yet, so it has no name. The other fields are the options of the last run, for `explain`; with several
    spiders, `members` has those of each.
    """

    format: str = FORMAT
    version: int = VERSION
    name: str = ""
    seeds: list[str] = []
    spider: str = ""
    key: list[str] = []
    scope: str = ""
    domains: list[str] = []
    depth: int | None = None
    allow: list[str] = []
    deny: list[str] = []
    robots: bool = True
    user_agent: str = ""
    imported: bool = False
    members: list[SpiderDescription] = []
