"""HTTP/1 for a proxy, without I/O: parsing heads, finding the end of bodies, forwarding messages."""
