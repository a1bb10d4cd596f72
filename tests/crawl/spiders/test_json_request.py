"""JsonRequest (C1): the body, headers and method of a call to a JSON API."""

from __future__ import annotations

import json
import warnings

import pytest

from lycosa.crawl.spiders.json_request import ACCEPTED, JsonRequest
from lycosa.http.core.request import Request

URL = "http://a.example/api"


def test_data_become_the_body():
    request = JsonRequest(URL, data={"b": [1, None], "a": "é"})
    assert (request.method, request.body) == ("POST", b'{"a": "\\u00e9", "b": [1, null]}')
    assert request.headers == {"Content-Type": "application/json", "Accept": ACCEPTED}
    assert JsonRequest(URL, data={"a": 1, "b": 2}) == JsonRequest(URL, data={"b": 2, "a": 1})


@pytest.mark.parametrize("data", [[], {}, 0, "", False])
def test_empty_data_become_the_body_too(data):
    assert JsonRequest(URL, data=data).body == json.dumps(data).encode()
    assert JsonRequest(URL, data=data, method="PUT").method == "PUT"


@pytest.mark.parametrize("options", [{}, {"body": b"x"}, {"body": None, "data": None}])
def test_without_data_the_method_is_get(options):
    assert JsonRequest(URL, **options).method == "GET"
    assert JsonRequest(URL, **options).body == (options.get("body") or b"")


@pytest.mark.parametrize("body", [b"body", b""])
def test_body_takes_precedence_over_data(body):
    with pytest.warns(UserWarning, match="data is ignored"):
        request = JsonRequest(URL, data={"a": 1}, body=body)
    assert (request.method, request.body) == ("GET", body)


def test_the_caller_may_set_headers_and_the_arguments_of_json_dumps():
    def callback():
        pass

    options = {"indent": 1, "sort_keys": False, "ensure_ascii": False}
    headers = {"accept": "application/vnd.api+json"}
    request = JsonRequest(URL, callback, data={"b": "é", "a": 1}, dumps_kwargs=options, headers=headers, meta={"k": 1})
    assert request.body.decode() == '{\n "b": "é",\n "a": 1\n}'
    assert request.headers["Accept"] == headers["accept"]
    assert (request.callback, request.meta) == (callback, {"k": 1})


def test_replace_changes_the_body():
    request = JsonRequest(URL, data={"a": 1}, priority=3)
    changed = request.replace(data={"b": 2}, dumps_kwargs={"indent": 0}, method="PUT")
    assert (type(changed), changed.method, changed.priority) == (JsonRequest, "PUT", 3)
    assert changed.body == b'{\n"b": 2\n}'
    assert request.body == b'{"a": 1}'
    assert request.replace(url=URL + "/2").body == request.body
    assert changed.replace(data={"c": 3}).body == b'{\n"c": 3\n}', "with the same dumps_kwargs"
    assert changed.copy().replace(data={"c": 3}, dumps_kwargs={}).body == b'{"c": 3}'
    with pytest.warns(UserWarning, match="data is ignored"):
        assert request.replace(data={"b": 2}, body=b"c").body == b"c"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert request.copy() == request


def test_a_json_request_is_stored_as_a_plain_request():
    request = JsonRequest(URL, data={"a": 1})
    assert Request(**request.to_arguments()) == request
