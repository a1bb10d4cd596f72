"""HTTP/1 as a proxy reads and writes it, without I/O: heads, the ends of bodies, and what is passed on."""
