"""The rules of the proxy pool, without I/O: proxies, outcomes, the choice of the best proxy for a target."""
