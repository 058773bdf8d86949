"""From a policy file to a checked policy, or to the list of all that is wrong with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from allotment_hub.domain.inventory import Node
from allotment_hub.domain.policy import DEFAULT_BORROWING, Policy

from .capacity import check_capacity
from .checks import check
from .document import MAX_JSON_BYTES, Document, DocumentError, read_document
from .problems import FileError, PolicyError, Problem, Problems, shown
from .reader import read
from .remarks import remark

MAX_ERRORS = 200
"""Errors told at once; whoever has more of them will not read on."""

Source = str | bytes | os.PathLike[str] | Mapping[str, Any] | Document


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy that is fit for use.

    Parameters
    ----------
    policy : Policy
        The policy, with every default filled in.
    warnings : tuple of Problem
        Warnings and notes, in the order of the file.
    document : Document
        The values as written, to say where each one comes from.
    source : str
        Name of the file, ``policy`` where it was given as text.
    """

    policy: Policy
    warnings: tuple[Problem, ...]
    document: Document
    source: str


def load_policy(
    source: Source, *, inventory: Iterable[Node] | None = None, name: str | None = None
) -> Loaded:
    r"""Read and check a policy.

    Parameters
    ----------
    source : str, bytes, path, mapping or Document
        YAML or JSON text, a path (``pathlib.Path``) of a file, values already read from JSON, or
        a part of a document that was read before.
    inventory : iterable of Node, optional
        What there is; the guarantees are checked against it.
    name : str, optional
        What messages call the source; the path of a file by default.

    Raises
    ------
    PolicyError
        With every error found, each with its path, line and what would be right.
    OSError
        Where the file cannot be read.

    Examples
    --------
    >>> loaded = load_policy("version: 1\nflavors: {a100: {model: A100}}")
    >>> loaded.policy.flavors["a100"].model
    'A100'
    """
    label = name or source_name(source, "policy")
    document = open_document(source, label, PolicyError)
    problems = Problems()
    policy = read_policy_data(_with_only_pool(document.data), problems)
    policy = replace(policy, borrowing=policy.borrowing.over(DEFAULT_BORROWING))
    check(policy, document, problems)
    if not problems.failed:
        remark(policy, document, problems)
        if inventory is not None:
            check_capacity(policy, inventory, problems)
    raise_errors(problems, document, label, PolicyError)
    return Loaded(policy, placed(problems, document), document, label)


def read_policy_data(data: Any, problems: Problems) -> Policy:
    """Read values as a policy; the version comes first, since all else depends on it."""
    if not isinstance(data, Mapping):
        hint = "; to read a file pass its path" if isinstance(data, str) else ""
        problems.error((), f"is {shown(data)}, not a mapping; start with 'version: 1'{hint}")
        return Policy()
    if "version" not in data:
        problems.error(("version",), "is missing; write 'version: 1'")
    elif type(data["version"]) is not int or data["version"] != 1:
        problems.error(("version",), f"is {shown(data['version'])}; this release reads version 1")
    return read(Policy, {**data, "version": 1}, problems)


def _with_only_pool(data: Any) -> Any:
    """Fill in the pool of each quota where there is exactly one to choose from."""
    if not isinstance(data, Mapping):
        return data
    pools = data.get("pools", {"default": None})
    tenants = data.get("tenants")
    if not isinstance(pools, Mapping) or len(pools) != 1 or not isinstance(tenants, Mapping):
        return data
    only = next(iter(pools))
    return {**data, "tenants": {name: _filled(tenant, only) for name, tenant in tenants.items()}}


def _filled(tenant: Any, pool: Any) -> Any:
    if not isinstance(tenant, Mapping) or not isinstance(tenant.get("quotas"), list):
        return tenant
    quotas = [
        {"pool": pool, **quota} if isinstance(quota, Mapping) else quota
        for quota in tenant["quotas"]
    ]
    return {**tenant, "quotas": quotas}


def source_name(source: Source, default: str) -> str:
    """What messages call a source: the path of a file, else ``default``."""
    return os.fspath(source) if isinstance(source, os.PathLike) else default


def open_document(source: Source, name: str, error: type[FileError]) -> Document:
    """Read a source as a document; what cannot be read is raised as ``error``."""
    if isinstance(source, Document):
        return source
    if isinstance(source, Mapping):
        return Document(source)
    try:
        return read_document(_bytes(source) if isinstance(source, os.PathLike) else source)
    except DocumentError as fault:
        raise error([fault.problem], name) from None


def _bytes(path: os.PathLike[str]) -> bytes:
    with FilePath(path).open("rb") as file:
        if not stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
            data = file.read(MAX_JSON_BYTES + 1)
            if len(data) > MAX_JSON_BYTES:
                raise DocumentError(f"is larger than {MAX_JSON_BYTES >> 20} MiB")
            return data
    raise IsADirectoryError(os.fspath(path))  # pragma: no cover - open() refuses a directory


def placed(problems: Problems, document: Document) -> tuple[Problem, ...]:
    """The problems with their lines, in the order of the file."""
    found = [
        Problem(one.path, one.message, document.line(path), one.severity)
        for path, one in problems.found
    ]
    return tuple(sorted(found, key=lambda one: (one.line is None, one.line or 0)))


def raise_errors(problems: Problems, document: Document, name: str, error: type[FileError]) -> None:
    """Raise all errors together, if there is one."""
    if problems.failed:
        found = [one for one in placed(problems, document) if one.severity == "error"]
        if len(found) > MAX_ERRORS:
            rest = Problem("", f"and {len(found) - MAX_ERRORS:,} more errors")
            found = [*found[:MAX_ERRORS], rest]
        raise error(found, name)
