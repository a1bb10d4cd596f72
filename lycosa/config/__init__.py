"""The settings of a crawl.

A setting has one name everywhere: `--max-body` on the command line, `max_body` in files and `-s`, `LYCOSA_MAX_BODY` in
the environment. Files, `-s` and `custom_settings` also accept Scrapy's name of a setting, if it has one.
"""

from __future__ import annotations

from lycosa.config.kinds import BODY_MAX
from lycosa.config.layers import did_you_mean, flag, load, suggest
from lycosa.config.scrapy_names import SCRAPY_NAMES
from lycosa.config.settings import USER_AGENT, Settings
from lycosa.storage.core.output import STANDARD_OUTPUT

__all__ = [
    "BODY_MAX",
    "SCRAPY_NAMES",
    "STANDARD_OUTPUT",
    "USER_AGENT",
    "Settings",
    "did_you_mean",
    "flag",
    "load",
    "suggest",
]
