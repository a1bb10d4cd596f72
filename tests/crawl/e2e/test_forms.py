"""Forms in a complete crawl (C1, C7): a login with a token and a session, and bodies that the frontier has stored."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import pytest

from tests.cli.command import items, lycosa
from tests.servers.misbehaving import Server, running
from tests.servers.sins_engine import PASSWORD, USER

SPIDER = f"""
from lycosa import FormRequest, JsonRequest, Request, Spider
from lycosa.html.forms import FormFile

class Forms(Spider):
    name = "forms"

    async def start(self):
        yield Request(self.site + "/account", self.log_in)
        yield Request(self.site + "/forms", self.fill_in)
        yield JsonRequest(self.site + "/echo?json", self.echoed, data={{"a": [1, "é"]}}, cb_kwargs={{"kind": "json"}})
        file = FormFile("a.bin", b"\\0\\xff")
        yield FormRequest(self.site + "/echo?file", self.echoed, formdata={{"f": file}}, cb_kwargs={{"kind": "file"}})

    def log_in(self, response):
        fields = {{"name": "{USER}", "password": self.password}}
        options = {{"callback": self.account, "dont_filter": True}}  # the login redirects to this page
        yield FormRequest.from_response(response, formid="login", formdata=fields, **options)

    def account(self, response):
        yield {{"kind": "account", "path": response.url.removeprefix(self.site), "text": response.css("p::text").get()}}

    def fill_in(self, response):
        options = {{"formname": "order", "clickdata": {{"value": "save"}}, "formdata": {{"note": None}}}}
        yield FormRequest.from_response(response, callback=self.echoed, cb_kwargs={{"kind": "order"}}, **options)

    def echoed(self, response, kind):
        echo = response.json()
        content_type = echo["headers"]["content-type"].partition(";")[0]
        yield {{"kind": kind, "method": echo["method"], "type": content_type, "body": echo["body"]}}
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as running_server:
        yield running_server


def crawled(server, tmp_path, password):
    (tmp_path / "spider.py").write_text(dedent(SPIDER))
    options = ["-a", f"site={server.url('')}", "-a", f"password={password}", "-o", "items.jsonl"]
    done = lycosa("runspider", "spider.py", *options, "--no-robots", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return {item.pop("kind"): item for item in items(tmp_path / "items.jsonl")}, done.stderr


def test_a_login_and_bodies_of_every_type_are_sent(server, tmp_path):
    found, stderr = crawled(server, tmp_path, PASSWORD)
    assert found["account"] == {"path": "/account", "text": f"Welcome, {USER}."}, stderr
    assert found["json"] == {"method": "POST", "type": "application/json", "body": b'{"a": [1, "\\u00e9"]}'.hex()}
    assert found["order"]["type"] == "application/x-www-form-urlencoded"
    assert bytes.fromhex(found["order"]["body"]).endswith(b"&upload=&do=save")
    assert found["file"]["type"] == "multipart/form-data"
    assert b'filename="a.bin"\r\nContent-Type: application/octet-stream\r\n\r\n\0\xff\r\n--' in bytes.fromhex(
        found["file"]["body"]
    )


def test_a_login_with_a_wrong_password_fails(server, tmp_path):
    found, _ = crawled(server, tmp_path, "guess")
    assert found.get("account", {}).get("path") != "/account"
