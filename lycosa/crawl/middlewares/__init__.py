"""The middlewares that come with Lycosa, one file each. `app/crawl/middlewares.py` makes those that the settings ask
for."""
