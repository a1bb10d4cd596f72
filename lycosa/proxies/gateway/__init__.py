"""A rotating forward proxy: accepts HTTP, CONNECT and SOCKS 5, and forwards through the proxies of a pool."""
