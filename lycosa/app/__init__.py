"""The composition root: builds the parts of each system from the settings. Only this package imports adapters."""

NOTICES = "lycosa.notices"
"""Name of the logger for messages that a command shows at any log level, except with --quiet."""

ENABLED = "lycosa.enabled"
"""Name of the logger that lists the enabled parts when a crawl starts. Worker processes do not list them again."""
