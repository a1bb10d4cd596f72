"""The built-in middlewares, one file each. `app/crawl/middlewares.py` creates them as the settings say."""
