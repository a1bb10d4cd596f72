"""The middlewares that come with Lycosa, one file each. `app/middlewares.py` makes those that the settings ask for."""
