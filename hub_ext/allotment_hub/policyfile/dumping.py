"""A policy in the notation of its file, and the differences between two."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from allotment_hub.domain.policy import Policy

from .notation import FieldSpec, fields_of
from .problems import Path, path_text

Change = dict[str, Any]
"""``{path, before, after}`` in the notation of the file; None where there was or is nothing."""


def policy_data(policy: Policy, *, full: bool = False) -> dict[str, Any]:
    """Write a policy as plain values: what the file would hold.

    Parameters
    ----------
    full : bool
        With every default, for people who want to see what is in force; else only what differs
        from the defaults. Either way reading it gives the same policy.
    """
    return {"version": policy.version, **record_data(policy, full=full)}


def record_data(record: Any, *, full: bool = False) -> dict[str, Any]:
    """Write one part of a policy (a tenant, a class …) as plain values."""
    result = {}
    for spec in fields_of(type(record)).values():
        value = getattr(record, spec.name)
        if spec.required or value != spec.default or (full and _writable(spec, value)):
            result[spec.key] = _field_data(spec, value, full)
    return result


def _writable(spec: FieldSpec, value: Any) -> bool:
    return value is not None or None in spec.words.values()


def _field_data(spec: FieldSpec, value: Any, full: bool) -> Any:
    for word, meaning in spec.words.items():
        if value is meaning or (isinstance(value, int) and value == meaning):
            return word
    if spec.unit is not None:
        return spec.unit.show(value)
    return _data(value, full)


def _data(value: Any, full: bool) -> Any:
    if dataclasses.is_dataclass(value):
        return record_data(value, full=full)
    if isinstance(value, Mapping):
        return {key: _data(one, full) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_data(one, full) for one in value]
    return value


def dump_policy(policy: Policy, *, full: bool = False) -> str:
    """Write a policy as YAML text; :func:`~.loading.load_policy` reads the same policy from it."""
    return to_yaml(policy_data(policy, full=full))


_SWITCHES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_PLAIN = re.compile(r"[^\W\d_](:(?! )| (?! )|[\w.+*@/-])*(?<![: ])|\d+[a-zA-Z]+")


def _quoted(value: Any) -> Any:
    """Quote all text but plain words and amounts, so that every reader of YAML sees the same.

    Readers of YAML 1.1 take no, yes and on for switches, and the writer below leaves out quotes
    that a leading question mark or colon needs. ``off`` stays bare: it is this notation's word.
    """
    if isinstance(value, dict):
        return {_quoted(key): _quoted(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_quoted(one) for one in value]
    bare = not isinstance(value, str) or value == "off"
    if bare or (value.lower() not in _SWITCHES and _PLAIN.fullmatch(value)):
        return value
    return DoubleQuotedScalarString(value)


def to_yaml(data: Any) -> str:
    """Plain values as YAML text: one key a line, the innermost lists and mappings in one line."""
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.allow_unicode = True
    yaml.width = 100
    out = io.StringIO()
    yaml.dump(_quoted(data), out)
    return out.getvalue()


def diff_policies(old: Policy, new: Policy) -> list[Change]:
    """What differs between two policies, defaults included, in the order of the newer one.

    Quotas are compared by pool and flavor, so that their order does not matter; rules of reclaim
    by their place, since their order does. Paths are those of the newer policy, or of the older
    for what is gone.
    """
    return list(_changes((), policy_data(old, full=True), policy_data(new, full=True)))


def _changes(path: Path, old: Any, new: Any) -> Iterator[Change]:
    if old == new and not isinstance(old, dict):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _mapping_changes(path, old, new)
    elif isinstance(old, list) and isinstance(new, list) and _records(old + new):
        yield from _list_changes(path, old, new)
    else:
        yield {"path": path_text(path), "before": old, "after": new}


def _mapping_changes(
    path: Path, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Change]:
    for key in [*new, *(key for key in old if key not in new)]:
        yield from _changes((*path, key), old.get(key), new.get(key))
    # The order of pools and flavors breaks ties between them, so that it is part of the policy.
    shared = [key for key in old if key in new], [key for key in new if key in old]
    if path in (("pools",), ("flavors",)) and shared[0] != shared[1]:
        yield {"path": path_text(path), "before": list(old), "after": list(new)}


def _records(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, dict) for item in items)


def _list_changes(path: Path, old: list[Any], new: list[Any]) -> Iterator[Change]:
    if path[-1:] == ("quotas",):
        yield from _matched(path, old, new, lambda at, item: (item.get("pool"), item["flavor"]))
        return
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    inner_old, inner_new = old[start : len(old) - end], new[start : len(new) - end]
    yield from _matched(path, inner_old, inner_new, lambda at, item: at, start)


def _common(old: list[Any], new: list[Any]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


def _matched(
    path: Path,
    old: list[Any],
    new: list[Any],
    key: Callable[[int, Any], object],
    start: int = 0,
) -> Iterator[Change]:
    before = {key(at, item): (at, item) for at, item in enumerate(old)}
    after = {key(at, item): (at, item) for at, item in enumerate(new)}
    for one, (at, item) in after.items():
        yield from _changes((*path, at + start), before.get(one, (0, None))[1], item)
    for one, (at, item) in before.items():
        if one not in after:
            yield {"path": path_text((*path, at + start)), "before": item, "after": None}
