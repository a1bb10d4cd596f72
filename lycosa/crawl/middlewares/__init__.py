"""The built-in middlewares. `app/crawl/middlewares.py` creates them as the settings say."""
