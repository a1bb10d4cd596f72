"""The table of the API's operations, from which the routes and the OpenAPI 3.1 document are generated.

The parameters are only described here: `api` checks them.
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
from lycosa.proxies.api.params import JSON
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import PORTS

REF = "#/components/schemas/{name}"
ERRORS = {
    400: "Invalid request",
    401: "Missing or wrong key",
    403: "The request comes from another site, or from another machine while the server has no key",
    404: "There is no such proxy",
    408: "The body was not received in time",
    409: "No proxy is free",
    410: "The lease has ended",
    413: "The body is too large",
    503: "The pool is unavailable, or there are too many active leases or waiting requests",
}
ALWAYS = (401, 403, 503)
BODY = (400, 408, 413)


class Parameter(NamedTuple):
    """A parameter of an operation. `location` is "query" or "path"."""

    name: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False
    location: str = "query"


class Operation(NamedTuple):
    """An HTTP method on a path. `name`: the method of `Api`, and the operationId. `is_list`: the body lists proxies."""

    method: str
    path: str
    name: str
    summary: str
    response: type[Struct] | None
    status: int = 200
    body: type[Struct] | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    is_list: bool = False


TARGET = Parameter("target", "A target, usually a domain", {"type": "string", "maxLength": schemas.TARGET_MAX})
REQUIRED_TARGET = TARGET._replace(required=True, schema={**TARGET.schema, "minLength": 1})
TAG = Parameter(
    "tag",
    "NAME=VALUE, repeatable: only proxies with these tags",
    {"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.*$"}, "maxItems": schemas.TAGS_MAX},
)
LEASE_ID = Parameter("id", "The id of a lease", {"type": "string"}, required=True, location="path")
PROXY_KEY = Parameter("key", "The key of a proxy", {"type": "string"}, required=True, location="path")


def _integer(name: str, description: str, default: int, low: int, high: int) -> Parameter:
    return Parameter(name, description, {"type": "integer", "minimum": low, "maximum": high, "default": default})


OPERATIONS = (
    Operation(
        "POST", "/api/leases", "acquire",
        "Lease proxies for a target, each exclusively unless the target's policy says otherwise",
        schemas.LeasesResponse, 201, schemas.LeaseRequest, errors=(*BODY, 409),
    ),
    Operation(
        "POST", "/api/leases/{id}/renew", "renew", "Extend a lease", schemas.RenewResponse,
        body=schemas.RenewRequest, parameters=(LEASE_ID,), errors=(*BODY, 410),
    ),
    Operation(
        "POST", "/api/leases/{id}/release", "release", "End a lease, with the outcome of each use",
        schemas.DoneResponse, body=schemas.ReleaseRequest, parameters=(LEASE_ID,), errors=(*BODY, 410),
    ),
    Operation(
        "GET", "/api/proxies", "proxies", "List all proxies by latency, or the proxies of one target",
        schemas.ProxiesResponse,
        parameters=(
            TARGET,
            Parameter("state", "Only proxies in this state", {"type": "string", "enum": list(map(str, ProxyState))}),
            TAG,
            _integer("limit", "Maximum number of proxies", LIMIT, 1, LIMIT_MAX),
            _integer("offset", "Number of proxies to skip", 0, 0, OFFSET_MAX),
        ),
        errors=(400,),
    ),
    Operation(
        "POST", "/api/proxies", "add",
        f"Add a list of proxies: one per line, or JSON. Invalid lines are skipped; the first {FAULTS_SHOWN} are listed",
        schemas.AddResponse,
        parameters=(
            Parameter("scheme", "The scheme of addresses without a scheme", {
                "type": "string", "enum": list(PORTS), "default": "http",
            }),
        ),
        errors=BODY, is_list=True,
    ),
    Operation(
        "DELETE", "/api/proxies/{key}", "remove", "Remove a proxy, even a leased one", schemas.DoneResponse,
        parameters=(PROXY_KEY,), errors=(404,),
    ),
    Operation("GET", "/api/targets", "targets", "List the targets, or show one", schemas.TargetsResponse,
              parameters=(TARGET,), errors=(400,)),
    Operation(
        "GET", "/api/explain", "explain", "Explain why each proxy would or would not be leased for a target now",
        schemas.ExplainResponse,
        parameters=(
            REQUIRED_TARGET,
            TAG,
            Parameter("session", "The session of the lease request", {"type": "string", "maxLength": schemas.WORD_MAX}),
            Parameter("avoid", "Exclude this proxy, repeatable", {
                "type": "array", "items": {"type": "string"}, "maxItems": schemas.AVOID_MAX,
            }),
            _integer("limit", "Maximum number of verdicts", LIMIT_MAX, 1, LIMIT_MAX),
        ),
        errors=(400,),
    ),
    Operation("POST", "/api/ban", "ban", "Ban a proxy for a target, for a time or until the ban is lifted",
              schemas.DoneResponse, body=schemas.BanRequest, errors=(*BODY, 404)),
    Operation("POST", "/api/unban", "unban", "Lift the bans and cool-downs of a proxy for a target",
              schemas.DoneResponse, body=schemas.UnbanRequest, errors=(*BODY, 404)),
    Operation("GET", "/api/stats", "stats", "Show statistics of the whole pool", schemas.PoolStats),
    Operation("GET", "/metrics", "metrics", "Metrics for Prometheus", None),
    Operation("GET", "/healthz", "health", "Check that the pool can be used; no key required", schemas.HealthResponse),
)  # fmt: skip


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the API."""
    types = [kind for each in OPERATIONS for kind in (each.response, each.body) if kind is not None]
    _, components = msgspec.json.schema_components([*types, schemas.ErrorResponse], ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    paths["/api/openapi.json"] = {
        "get": {
            "operationId": "description",
            "summary": "This description; no key required",
            "security": [],
            "responses": {
                "200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}},
                "403": _error(403),
            },
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lycosa proxy pool",
            "version": __version__,
            "summary": "Leases the best proxy for a site to one client at a time",
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
    described: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    if operation.parameters:
        described["parameters"] = [_parameter(each) for each in operation.parameters]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    if operation.is_list:
        content = {"text/plain": {"schema": {"type": "string"}}, JSON: {"schema": {}}}
        described["requestBody"] = {"required": True, "content": content}
    errors = {*operation.errors, *ALWAYS}
    if operation.name == "health":  # no key required
        described["security"] = []
        errors.remove(401)
    described["responses"] = {str(operation.status): _response(operation)} | {
        str(status): _error(status) for status in sorted(errors)
    }
    return described


def _response(operation: Operation) -> dict[str, Any]:
    if operation.response is None:
        return {"description": "Metrics", "content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}
    return {"description": operation.summary, "content": _json(operation.response)}


def _error(status: int) -> dict[str, Any]:
    return {"description": ERRORS[status], "content": _json(schemas.ErrorResponse)}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described = parameter._asdict()
    return {"in": described.pop("location"), **described}


def _json(kind: type[Struct]) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": REF.format(name=kind.__name__)}}}
