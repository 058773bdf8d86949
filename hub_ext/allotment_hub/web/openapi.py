"""The OpenAPI document, made from the table of routes and nothing else."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from .answers import ProblemView
from .routes import TABLE, Route

REF = "#/components/schemas/{model}"

WHO = {
    "anyone": "anyone",
    "user": "any user; sees and changes what is its own",
    "owner": "owners of a tenant, and admins",
    "admin": "admins",
    "server": "a single-user server's own token",
    "hub": "the hub",
}


def document(prefix: str = "/services/allotment/") -> dict[str, Any]:
    """The whole document. The gate between hub and governor is not part of it."""
    routes = sorted(
        (route for route in TABLE if not route.gate), key=lambda route: (route.path, route.method)
    )
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
        (ProblemView, "serialization"): None
    }
    for route in routes:
        if route.body is not None:
            models[route.body, "validation"] = None
        if route.answer is not None:
            models[route.answer, "serialization"] = None
    names, schemas = models_json_schema(
        list(models),
        by_alias=True,
        ref_template=REF,
    )
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Allotment",
            "version": "1",
            "description": "Who holds which GPU, by which rule, until when, and what follows.",
        },
        "servers": [{"url": f"{prefix}api/v1"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A JupyterHub token."}
            },
            "schemas": schemas.get("$defs", {}),
        },
    }


def _operation(route: Route, names: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary.rstrip("."),
        "x-who": WHO[route.who],
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": _responses(route, names),
    }
    if route.who == "anyone":
        found["security"] = []
    if route.body is not None:
        found["requestBody"] = {
            "required": any(field.is_required() for field in route.body.model_fields.values()),
            "content": {"application/json": {"schema": names[route.body, "validation"]}},
        }
    if not found["parameters"]:
        del found["parameters"]
    return found


def _operation_id(route: Route) -> str:
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"\{\w+\}", "one", route.path))
    return route.method.lower() + "".join(word.capitalize() for word in words)


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.parameters
    ]


def _in_query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = route.query.model_json_schema(by_alias=True, ref_template=REF)
    required = set(schema.get("required", ()))
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {
                key: value for key, value in field.items() if key not in ("title", "default")
            },
        }
        for name, field in schema.get("properties", {}).items()
        if name != "_xsrf"
    ]


def _in_headers(route: Route) -> list[dict[str, Any]]:
    wanted = {
        ("POST", "/requests"): "Idempotency-Key",
        ("PUT", "/policy"): "If-Match",
        ("GET", "/events"): "Last-Event-ID",
    }.get((route.method, route.path))
    if wanted is None:
        return []
    return [{"name": wanted, "in": "header", "required": False, "schema": {"type": "string"}}]


def _responses(route: Route, names: Any) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "done"}
    if route.stream:
        good["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif route.answer is not None:
        good["content"] = {"application/json": {"schema": names[route.answer, "serialization"]}}
    problem = {
        "description": "a problem",
        "content": {"application/problem+json": {"schema": names[ProblemView, "serialization"]}},
    }
    return {str(route.status): good, "default": problem}
