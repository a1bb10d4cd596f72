"""The built-in middlewares, one file each. `app/crawl/middlewares.py` creates those that the settings ask for."""
