"""The rotating forward proxy: HTTP, CONNECT and SOCKS 5 in, through a proxy of the pool out."""
