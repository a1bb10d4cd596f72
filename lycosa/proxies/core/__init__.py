"""The proxy pool without I/O: who a proxy is, what an answer says about it, which one is best for a site now."""
