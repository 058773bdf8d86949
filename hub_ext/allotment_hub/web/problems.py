"""Errors as REST shows them: ``application/problem+json`` with a code that programs can rely on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

CONTENT_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with the input: where, and what would be right."""

    path: str
    message: str
    line: int | None = None

    def shown(self) -> dict[str, Any]:
        """As an entry of ``errors``."""
        shown: dict[str, Any] = {"path": self.path, "message": self.message}
        if self.line is not None:
            shown["line"] = self.line
        return shown


@dataclass
class Problem(Exception):
    """An answer that is not the one hoped for.

    Parameters
    ----------
    status : int
        The HTTP status, 400 to 599.
    code : str
        A stable word for programs.
    detail : str
        A sentence for people: what, where, what would be right. Plain text.
    errors : sequence of Fault
        For bad input, each fault.
    retry_after_ms : int or None
        When another try makes sense; becomes ``Retry-After``.
    extra : mapping
        Further members of the answer, such as the reasons of a refusal.
    """

    status: int
    code: str
    detail: str
    errors: Sequence[Fault] = ()
    retry_after_ms: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The members of the answer."""
        answer: dict[str, Any] = {
            "code": self.code,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }
        if self.errors:
            answer["errors"] = [fault.shown() for fault in self.errors]
        return answer

    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer."""
        if self.retry_after_ms is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_ms / 1000)))}


def not_found(what: str) -> Problem:
    """The one answer for what does not exist and for what the asker may not see.

    That both read the same keeps ids and names of others from being found out by trying.
    """
    return Problem(404, "NotFound", f"There is no {what} of that name that you may see.")


def forbidden(detail: str) -> Problem:
    """The asker is known and may not do this."""
    return Problem(403, "Forbidden", detail)


def unauthenticated() -> Problem:
    """Nobody is known to be asking."""
    return Problem(
        401, "NotAuthenticated", "Send a JupyterHub token as 'Authorization: token …', or log in."
    )


def bad_input(errors: Sequence[Fault]) -> Problem:
    """The body or a parameter does not say what it must."""
    first = errors[0]
    where = f"{first.path}: " if first.path else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(400, "BadInput", f"{where}{first.message}{more}", errors)


# What a refused command answers with. A code that is not listed is a refusal by policy.
STATUS_OF_REFUSAL = {
    "NotFound": 404,
    "Conflict": 409,
    "NoRenewalLeft": 409,
    "NoKeepLeft": 409,
    "HeldForLargerRequest": 409,
    "BudgetSpent": 409,
    "VersionChanged": 412,
    "BadKind": 400,
    "BadShape": 400,
    "DurationTooLong": 400,
    "EndMissing": 400,
    "NoClass": 400,
    "NoGpus": 400,
    "NoSuchClass": 400,
    "ReasonMissing": 400,
    "TooLong": 400,
    "UnknownKey": 400,
    "WrongClass": 400,
}
