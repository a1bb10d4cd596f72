"""Every finish reason that Lycosa itself uses, and its meaning."""

from __future__ import annotations

from lycosa.crawl.engine.close_conditions import MEMUSAGE_EXCEEDED

FINISH_REASONS = {
    "finished": "no URL is left, or only URLs that are due later",
    "shutdown": "it was interrupted: Ctrl-C, SIGTERM",
    "cancelled": "CloseSpider without a reason; with one, that is the finish reason",
    "failed": "the crawl could not continue: the state, a sink or the spider failed",
    "closespider_itemcount": "CLOSESPIDER_ITEMCOUNT items were scraped",
    "closespider_pagecount": "CLOSESPIDER_PAGECOUNT pages are done in all runs of the crawl, or of its segment",
    "closespider_errorcount": "callbacks and pipelines raised CLOSESPIDER_ERRORCOUNT exceptions",
    "closespider_timeout": "CLOSESPIDER_TIMEOUT seconds have passed",
    "closespider_timeout_no_item": "CLOSESPIDER_TIMEOUT_NO_ITEM seconds have passed without an item",
    "closespider_pagecount_no_item": "CLOSESPIDER_PAGECOUNT_NO_ITEM pages in a row brought no item",
    MEMUSAGE_EXCEEDED: "the process uses more than MEMUSAGE_LIMIT_MB",
}
