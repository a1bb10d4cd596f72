"""The rules of the proxy pool, without I/O."""
