"""What REST takes in: strict models, so that nothing is guessed and nothing unknown passes.

A boolean is no number, a number no text, a key that is not listed an error. Quantities are read
by :mod:`..domain.amounts` and are integers from then on.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    WithJsonSchema,
    model_validator,
)  # fmt: skip
from pydantic_core import PydanticCustomError

from ..domain.amounts import AmountError, parse_duration, parse_gpus, parse_memory
from .problems import Fault, Problem, bad_input

M = TypeVar("M", bound=BaseModel)

DEEPEST = 40
"""Nesting of a body: far more than any call needs, far less than a parser can bear."""


class Strict(BaseModel):
    """Base of all bodies and queries."""

    model_config = ConfigDict(
        extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False, frozen=True
    )


def _quantity(parse: Any, *, text: bool) -> Any:
    def read(value: Any) -> int:
        if isinstance(value, str) and not text:
            raise PydanticCustomError("amount", "write a number, not a text")
        try:
            return int(parse(value))
        except AmountError as error:
            why = str(error).removesuffix("; write 'unlimited'")  # which only a policy may say
            raise PydanticCustomError("amount", "{why}", {"why": why}) from None

    return read


def _printable(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("name", "write printable characters only, without line breaks")
    return value


def _segment(value: str) -> str:
    if "/" in value or value in (".", ".."):
        raise PydanticCustomError("name", "a server's name has no slashes and is not made of dots")
    return _printable(value)


Gpus = Annotated[
    int,
    BeforeValidator(_quantity(parse_gpus, text=False)),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1_000_000, "multipleOf": 0.001}),
]
Duration = Annotated[
    int,
    BeforeValidator(_quantity(parse_duration, text=True)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^[0-9]{1,12}(s|m|h|d)$"},
                {"type": "integer", "minimum": 0},
            ]
        }
    ),
]
Memory = Annotated[
    int,
    BeforeValidator(_quantity(parse_memory, text=True)),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}),
]
Name = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_printable)]
ServerName = Annotated[str, Field(max_length=255), AfterValidator(_segment)]
Text = Annotated[str, Field(max_length=2000)]
Sentence = Annotated[str, Field(min_length=3, max_length=2000)]


class Shape(Strict):
    """What may be asked for, and what may be changed while it waits."""

    tenant: Name | None = None
    class_: Name | None = Field(default=None, alias="class")
    pool: Name | None = None
    flavor: Name | None = None
    gpus: Gpus | None = None
    devices: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    nodes: Annotated[int, Field(ge=1, le=10_000)] | None = None
    cpus: Gpus | None = None
    memory: Memory | None = None
    min_driver: Annotated[str, Field(max_length=40, pattern=r"^[0-9.]+$")] | None = None
    min_memory: Memory | None = None
    same_node: bool | None = None
    nvlink: bool | None = None
    duration: Duration | None = None
    interruptible: Literal["no", "checkpoint", "stateless"] | None = None
    borrow: bool | None = None
    start: Literal["present", "always"] | None = None

    def wants(self) -> dict[str, Any]:
        """What was said, under the names of the public surface; what was not said is not there."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return {key: value for key, value in given.items() if key in WANTS}


WANTS = frozenset(
    field.alias or name for name, field in Shape.model_fields.items()
)  # what the rules look at: everything of a shape and nothing beside it


class NewRequest(Shape):
    """The body of ``POST /requests``."""

    kind: Literal["session", "job", "service"] = "session"
    server: ServerName | None = None
    gpus: Gpus


class Preview(NewRequest):
    """The body of ``POST /requests/preview``: as for a request."""


class Changes(Shape):
    """The body of ``PATCH /requests/{id}``: what is to be different."""


class Wants(Shape):
    """``user_options["allotment"]`` as the spawner gate hands it on."""

    gpus: Gpus


class Release(Strict):
    """The body of ``POST /leases/{id}/release``."""

    reason: Text = ""


class Nothing(Strict):
    """The empty body."""


class PolicyCheck(Strict):
    """A policy to be looked at only: the ``text`` of its file, or ``policy``, the same as data.

    A body of type ``application/yaml`` is the text of the file.
    """

    text: Annotated[str, Field(min_length=1, max_length=60_000)]

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "text" in content:
            return content
        if isinstance(content.get("policy"), dict):
            rest = {key: value for key, value in content.items() if key != "policy"}
            return {**rest, "text": json.dumps(content["policy"], indent=1)}
        return {"text": json.dumps(content, indent=1)} if "version" in content else content


class PolicyText(PolicyCheck):
    """A policy: the ``text`` of its file or ``policy``, the same as data, and a note for the
    history. A body of type ``application/yaml`` is the text of the file.
    """

    note: Text = ""


class Rollback(Strict):
    """The version to go back to (``version`` says the same)."""

    to: Annotated[
        int, Field(ge=1, le=1_000_000_000, validation_alias=AliasChoices("to", "version"))
    ]
    note: Text = ""


class VersionQuery(Strict):
    """A version of the policy; left out, the one in force."""

    version: Annotated[int, Field(ge=1)] | None = None


class NewApproval(Strict):
    """The body of ``POST /approvals``."""

    request: Name
    reason: Text = ""
    valid_for: Duration | None = None


class NewExemption(Strict):
    """The body of ``POST /exemptions``: a lease, or a user in all leases, spared from reclaim
    ``for`` so long or ``until`` an RFC 3339 time.
    """

    lease: Name | None = None
    user: Name | None = None
    duration: Duration | None = Field(default=None, alias="for")
    until: Annotated[str, Field(max_length=40)] | None = None
    reason: Sentence


class NewForce(Strict):
    """Why a lease is released without proof."""

    reason: Sentence


class Pause(Strict):
    """The body of ``POST /grants/pause``; ``on: false`` goes on."""

    on: bool = True
    reason: Text = ""


class Drain(Strict):
    """The body of ``POST /nodes/{n}/drain``."""

    on: bool = True
    reason: Text = ""


class ListQuery(Strict):
    """What a list of requests or leases may be narrowed by."""

    state: Annotated[str, Field(max_length=200, pattern=r"^[a-z]+(,[a-z]+)*$")] | None = None
    tenant: Name | None = None
    user: Name | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    after: Annotated[str, Field(max_length=200)] | None = None


class SpanQuery(Strict):
    """A span of time and a format. ``since`` and ``until`` are RFC 3339 times."""

    since: Annotated[str, Field(max_length=40)] | None = None
    until: Annotated[str, Field(max_length=40)] | None = None
    tenant: Name | None = None
    user: Name | None = None
    format: Literal["json", "csv"] = "json"
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class HistoryQuery(SpanQuery):
    """A page of the event history, newest first unless ``after`` is given."""

    subject: Name | None = None
    after: Annotated[int, Field(ge=0)] | None = None


class WaitQuery(Strict):
    """How long a caller of the gate would wait, in seconds."""

    wait: Annotated[float, Field(ge=0, le=60)] = 0.0


class ServerQuery(Strict):
    """A server, or all of a user, or all."""

    user: Name | None = None
    server: ServerName | None = None


class FormQuery(Strict):
    """For whom a form is."""

    user: Name | None = None
    server: ServerName | None = None
    group: tuple[Name, ...] = ()


class RawObject(RootModel[dict[str, Any]]):
    """An object whose form :mod:`..gateapi` checks."""


class EventsQuery(Strict):
    """The query of ``GET /events``."""

    last_event_id: Annotated[str, Field(max_length=80)] | None = None
    xsrf: Annotated[str, Field(max_length=1000)] | None = Field(default=None, alias="_xsrf")


def read_body(model: type[M], body: bytes, content_type: str = "") -> M:
    """The body as its model. YAML is taken where the model has a ``text``: it is that text.

    Raises
    ------
    Problem
        400 with each thing that is wrong.
    """
    if "yaml" in content_type.partition(";")[0] and "text" in model.model_fields:
        try:
            return _checked(model, {"text": body.decode("utf-8")})
        except UnicodeDecodeError:
            raise bad_input([Fault("", "the body is not UTF-8 text")]) from None
    return _checked(model, read_json(body) if body.strip() else {})


def read_wants(content: Any) -> Wants:
    """``user_options["allotment"]``, checked."""
    return _checked(Wants, dict(content))


def read_json(body: bytes) -> Any:
    """JSON without what JSON does not have: NaN, infinities, a key given twice, endless nesting."""
    try:
        content = json.loads(
            body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_doubles
        )
    except UnicodeDecodeError:
        raise bad_input([Fault("", "the body is not UTF-8 text")]) from None
    except RecursionError:
        raise bad_input([Fault("", "the body is nested too deeply")]) from None
    except ValueError as error:
        raise bad_input([Fault("", f"the body is not JSON: {str(error)[:200]}")]) from None
    if _depth(content) > DEEPEST:
        raise bad_input([Fault("", "the body is nested too deeply")])
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON knows")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for n, (key, _) in enumerate(pairs) if key in [k for k, _ in pairs[:n]])
        raise ValueError(f"the key {twice!r:.80} is given twice")
    return found


def _depth(content: Any) -> int:
    deepest, level = 0, [content]
    while level and deepest <= DEEPEST:
        deepest += 1
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return deepest


def read_query(model: type[M], arguments: dict[str, list[str]]) -> M:
    """The query as its model. A number is written in digits, a flag as ``true`` or ``false``."""
    given: dict[str, Any] = {}
    for name, values in arguments.items():
        field = model.model_fields.get(name)
        if field is not None and "tuple" in str(field.annotation):
            given[name] = tuple(values)
            continue
        if len(values) > 1:
            raise bad_input([Fault(name, "give it once only")])
        given[name] = _typed(values[0], field.annotation if field else str)
    return _checked(model, given)


def _typed(text: str, annotation: Any) -> Any:
    kind = str(annotation)
    if "int" in kind and text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    if "float" in kind and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    if "bool" in kind and text in ("true", "false"):
        return text == "true"
    return text


def _checked(model: type[M], content: Any) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _problem(error) from None


def _problem(error: ValidationError) -> Problem:
    faults = []
    for found in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part)[:80] for part in found["loc"])
        message = found["msg"]
        if found["type"] == "extra_forbidden":
            message = "there is no such key"
        elif found["type"] == "missing":
            message = "this key is needed"
        faults.append(Fault(path, message))
    return bad_input(faults[:50])
