"""The composition root: builds the parts of each system from the settings. The only importer of adapters.

`crawl.run` runs a crawl, `search` opens indexes. They are apart so that a search does not load a crawler.
"""

NOTICES = "lycosa.notices"
"""The logger of messages that a command shows at any log level, unless it is quiet."""
