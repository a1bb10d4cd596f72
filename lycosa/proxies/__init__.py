"""Pools of proxies: in memory, in a folder, on Redis."""
