"""The composition root: builds the parts of each system from the settings. Only this package imports adapters.

`crawl.run` runs a crawl, `search` opens indexes. They are separate modules, so a search does not load a crawler.
"""

NOTICES = "lycosa.notices"
ENABLED = "lycosa.enabled"
"""The logger for what is enabled at the start of a crawl. Worker processes do not repeat it."""

"""The logger for messages that a command shows at any log level, except with --quiet."""
