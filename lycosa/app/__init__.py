"""The composition root: settings in, wired parts out. The only importer of adapters.

`crawl.run` runs a crawl, `crawl.parts` makes its parts from the settings, `search` opens indexes. They are apart so
that a search does not load a crawler.
"""
