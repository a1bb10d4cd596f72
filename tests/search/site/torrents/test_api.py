from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys

import pytest

from lycosa.search.site.torrents.app import BURST
from tests.conftest import need
from tests.search.site.torrents.sample_torrents import HASHES, torrent_site


def get(site, path: str) -> dict:
    return json.loads(site.get(path).text)


def matches(value: object, schema: dict, schemas: dict) -> bool:
    """Return whether a value matches a schema. Only the part of JSON Schema that the description uses is supported."""
    if "$ref" in schema:
        return matches(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    python = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
    if "object" in kinds:
        fields = schema.get("properties", {})
        more = schema.get("additionalProperties")
        return set(schema.get("required", ())) <= value.keys() and all(
            matches(each, fields[name], schemas) if name in fields else more and matches(each, more, schemas)
            for name, each in value.items()
        )
    if "array" in kinds:
        return all(matches(each, schema["items"], schemas) for each in value)
    return any(isinstance(value, python[kind]) for kind in kinds)


@pytest.mark.parametrize(
    ("path", "named", "status"),
    [
        ("/api/search?q=show&limit=1&offset=1", "/api/search", 200),
        ("/api/search?q=-show", "/api/search", 400),
        ("/api/search?offset=10001", "/api/search", 400),
        ("/api/search?sort=name", "/api/search", 400),
        ("/api/counts?q=show", "/api/counts", 200),
        ("/api/suggest?q=gre", "/api/suggest", 200),
        (f"/api/torrents/{HASHES[1]}", "/api/torrents/{infohash}", 200),
        (f"/api/torrents/{'0' * 40}", "/api/torrents/{infohash}", 404),
        ("/api/torrents/x", "/api/torrents/{infohash}", 400),
        (f"/api/torrents/{'ab%20' * 13}%20", "/api/torrents/{infohash}", 400),
    ],
)
def test_answers_are_as_described(site, path, named, status):
    description = get(site, "/api/openapi.json")
    answer = site.get(path)
    assert answer.status == status
    response = description["paths"][named]["get"]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    assert matches(json.loads(answer.text), schema, description["components"]["schemas"])


def test_the_answer_to_too_many_requests_is_as_described(tmp_path):
    from_afar = {"X_Forwarded_For": "203.0.113.77"}
    with torrent_site(tmp_path, per_minute=0.01) as (server, _store, _run):
        description = get(server, "/api/openapi.json")
        for _ in range(BURST):
            server.request("GET", "/robots.txt", **from_afar)
        for path, methods in description["paths"].items():
            answer = server.request("GET", path.format(infohash=HASHES[0]), **from_afar)
            assert answer.status == 429
            response = methods["get"]["responses"]["429"]
            schema = response["content"]["application/json"]["schema"]
            assert matches(json.loads(answer.text), schema, description["components"]["schemas"])
            for name, header in response["headers"].items():
                assert matches(int(answer.headers[name.lower()]), header["schema"], {})
            assert [*response["headers"]] == ["Retry-After"]


def test_the_answer_for_a_torrent_lists_its_files_and_has_null_for_unknown_numbers(site):
    told = get(site, f"/torrent/{HASHES[1]}.json")
    assert told["files"] == [
        {"path": "Great.Show.S01E02.mkv", "size_bytes": 500_000_000},
        {"path": "subs/en.srt", "size_bytes": 500_000_000},
    ]
    assert (told["seeders"], told["type"], told["category"]) == (None, "video", 5040)
    assert get(site, f"/torrent/{HASHES[0]}.json")["seeders"] == 12


def test_results_are_counted_by_type_and_by_language(site):
    assert get(site, "/api/counts?q=great") == {"type": {"video": 2}, "language": {"en": 2}, "exact": True}


def test_health(site):
    assert get(site, "/healthz") == {"ok": True, "documents": 50, "exact": True}


def test_schemathesis_finds_no_undescribed_response(site, tmp_path):
    need("schemathesis", importlib.util.find_spec("schemathesis") is not None)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    options = ["--checks", f"{checks},unsupported_method", "--max-examples=10", f"--seed={seed}", "--no-color"]
    options += ["--request-timeout=60", "--suppress-health-check=all", "--phases=coverage,fuzzing"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{site.url}/api/openapi.json", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 4" in done.stdout
