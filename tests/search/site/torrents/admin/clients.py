"""What a browser sends to the pages of administrators."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlencode

from tests.servers.web_server import Response, Server

PASSWORD = "correct horse battery"
FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def post(server: Server, path: str, cookie: str = "", /, **fields: str) -> Response:
    return server.request("POST", path, urlencode(fields), Cookie=cookie, **FORM)


def log_in(server: Server, name: str = "ada", password: str = PASSWORD, **headers: str) -> Response:
    return server.request("POST", "/admin/login", urlencode({"name": name, "password": password}), **FORM, **headers)


class Session(NamedTuple):
    """A session of an administrator: its cookie, and the token of its forms."""

    server: Server
    cookie: str
    token: str

    def get(self, path: str) -> Response:
        return self.server.request("GET", path, Cookie=self.cookie)

    def post(self, path: str, **fields: str) -> Response:
        return post(self.server, path, self.cookie, token=self.token, **fields)


def session_of(server: Server, name: str = "ada", password: str = PASSWORD) -> Session:
    answer = log_in(server, name, password)
    assert (answer.status, answer.headers["location"]) == (303, "/admin")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    page = server.request("GET", "/admin", Cookie=cookie)
    assert page.status == 200
    return Session(server, cookie, re.search(r'name="token" value="([^"]+)"', page.text)[1])
