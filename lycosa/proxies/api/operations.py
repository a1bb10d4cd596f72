"""What the API can do, as a table: the routes are made of it, and so is its description (OpenAPI 3.1).

The types of what comes in and goes out are those of `schemas`; what is said of them here is what they check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from lycosa import __version__
from lycosa.core.metrics import CONTENT_TYPE
from lycosa.proxies.api import schemas
from lycosa.proxies.api.api import FAULTS_SHOWN, LIMIT, LIMIT_MAX, OFFSET_MAX
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import PORTS

JSON, TEXT = "application/json", "text/plain"
REF = "#/components/schemas/{name}"
ERRORS = {
    400: "What was asked makes no sense",
    401: "No key, or a wrong one",
    403: "From another site, or without a key from another machine",
    404: "There is no such proxy",
    408: "The body did not come in time",
    409: "No proxy is free",
    410: "The lease is over",
    413: "The body is too large",
    503: "The pool cannot be used now, or too many leases are out",
}
ALWAYS = (401, 403, 503)
BODY = (400, 408, 413)


class Parameter(NamedTuple):
    """One in the query, or in the path."""

    name: str
    said: str
    schema: Mapping[str, Any]
    needed: bool = False
    where: str = "query"


class Operation(NamedTuple):
    """A method on a path. `name` is that of the method of `Api`, and the operationId."""

    method: str
    path: str
    name: str
    said: str
    answer: type[Struct] | None
    status: int = 200
    body: type[Struct] | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    is_list: bool = False


TARGET = Parameter("target", "A site", {"type": "string", "maxLength": schemas.TARGET_MAX})
NEEDED_TARGET = TARGET._replace(needed=True, schema={"type": "string", "minLength": 1, "maxLength": schemas.TARGET_MAX})
TAG = Parameter(
    "tag",
    "NAME=VALUE, any number of times: only proxies with these tags",
    {"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.*$"}, "maxItems": schemas.TAGS_MAX},
)
LEASE = Parameter("id", "The id of a lease", {"type": "string"}, needed=True, where="path")
KEY = Parameter("key", "The key of a proxy", {"type": "string"}, needed=True, where="path")


def _whole(name: str, said: str, default: int, least: int, most: int) -> Parameter:
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return Parameter(name, said, schema)


OPERATIONS = (
    Operation(
        "POST", "/api/leases", "acquire",
        "Lend proxies for a target, each to nobody else for this target",
        schemas.LeasesResponse, 201, schemas.LeaseRequest, errors=(*BODY, 409),
    ),
    Operation(
        "POST", "/api/leases/{id}/renew", "renew", "Keep a lease for longer", schemas.RenewResponse,
        body=schemas.RenewRequest, parameters=(LEASE,), errors=(*BODY, 410),
    ),
    Operation(
        "POST", "/api/leases/{id}/release", "release", "Give a proxy back, with what came of each use", schemas.DoneResponse,
        body=schemas.ReleaseRequest, parameters=(LEASE,), errors=(*BODY, 410),
    ),
    Operation(
        "GET", "/api/proxies", "proxies", "Proxies, the nearest first, or those of a target", schemas.ProxiesResponse,
        parameters=(
            TARGET,
            Parameter("state", "Only those in this state", {"type": "string", "enum": list(map(str, ProxyState))}),
            TAG,
            _whole("limit", "So many at most", LIMIT, 1, LIMIT_MAX),
            _whole("offset", "Pass over so many", 0, 0, OFFSET_MAX),
        ),
        errors=(400,),
    ),
    Operation(
        "POST", "/api/proxies", "add",
        f"Add a list of proxies: a line each, or JSON. The first {FAULTS_SHOWN} faults are told, the rest is taken",
        schemas.AddResponse,
        parameters=(
            Parameter("scheme", "Which kind, where the list does not say", {
                "type": "string", "enum": list(PORTS), "default": "http",
            }),
        ),
        errors=BODY, is_list=True,
    ),
    Operation(
        "DELETE", "/api/proxies/{key}", "remove", "Forget a proxy, whoever has it", schemas.DoneResponse,
        parameters=(KEY,), errors=(404,),
    ),
    Operation("GET", "/api/targets", "targets", "Targets, or one", schemas.TargetsResponse,
              parameters=(TARGET,), errors=(400,)),
    Operation(
        "GET", "/api/explain", "explain", "Why each proxy would be lent for a target now, or why not",
        schemas.ExplainResponse,
        parameters=(
            NEEDED_TARGET,
            TAG,
            Parameter("session", "As of a lease", {"type": "string", "maxLength": schemas.WORD_MAX}),
            Parameter("avoid", "Not this proxy, any number of times", {
                "type": "array", "items": {"type": "string"}, "maxItems": schemas.AVOID_MAX,
            }),
            _whole("limit", "So many verdicts at most", LIMIT_MAX, 1, LIMIT_MAX),
        ),
        errors=(400,),
    ),
    Operation("POST", "/api/ban", "ban", "Lend a proxy no more for a target, or not for a time", schemas.DoneResponse,
              body=schemas.BanRequest, errors=(*BODY, 404)),
    Operation("POST", "/api/unban", "unban", "Lift bans and rests of a proxy for a target", schemas.DoneResponse,
              body=schemas.UnbanRequest, errors=(*BODY, 404)),
    Operation("GET", "/api/stats", "stats", "The whole pool in numbers", schemas.PoolStats),
    Operation("GET", "/metrics", "metrics", "The same for Prometheus", None),
    Operation("GET", "/healthz", "health", "Whether the pool can be used; needs no key", schemas.HealthResponse),
)  # fmt: skip


def openapi_document() -> dict[str, Any]:
    """Return the description of the API."""
    types = [each for one in OPERATIONS for each in (one.answer, one.body) if each is not None]
    _, components = msgspec.json.schema_components([*types, schemas.ErrorResponse], ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    paths["/api/openapi.json"] = {"get": _description()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lycosa proxy pool",
            "version": __version__,
            "summary": "The best proxy for a site, lent to one at a time",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
        "security": [{"bearer": []}, {"header": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {"operationId": operation.name, "summary": operation.said}
    if operation.name == "health":
        told["security"] = []
    if operation.parameters:
        told["parameters"] = [_parameter(each) for each in operation.parameters]
    if operation.body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(operation.body)}}}
    if operation.is_list:
        told["requestBody"] = {
            "required": True,
            "content": {TEXT: {"schema": {"type": "string"}}, JSON: {"schema": {}}},
        }
    errors = sorted({*operation.errors, *ALWAYS} - ({401} if operation.name == "health" else set()))
    told["responses"] = {str(operation.status): _answer(operation)} | {str(each): _error(each) for each in errors}
    return told


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": "Metrics", "content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}
    return {"description": operation.said, "content": {JSON: {"schema": _ref(operation.answer)}}}


def _error(status: int) -> dict[str, Any]:
    return {"description": ERRORS[status], "content": {JSON: {"schema": _ref(schemas.ErrorResponse)}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.needed,
        "description": parameter.said,
        "schema": parameter.schema,
    }


def _description() -> dict[str, Any]:
    return {
        "operationId": "description",
        "summary": "This description; needs no key",
        "security": [],
        "responses": {
            "200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}},
            "403": _error(403),
        },
    }


def _ref(kind: type[Struct]) -> dict[str, str]:
    return {"$ref": REF.format(name=kind.__name__)}
