"""The composition root: settings in, wired parts out. The only importer of adapters.

`crawl` runs a crawl, `parts` makes its parts of the settings, `search` opens indexes. They are apart so that a search
does not load a crawler.
"""
