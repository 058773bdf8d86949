"""Records to JSON and back, without loss.

The coders are derived once per class from the type hints of the frozen dataclasses in
:mod:`allotment_hub.domain`, so that a record's form is written down in one place only.

* ``decode(kind_of(r), encode(r)) == r`` for every record, also after a passage through JSON text.
* Reading is strict: an unknown or missing field, a wrong type, a boolean where a number belongs
  is a :class:`~.errors.CodecError` that names the field. A missing field that has a default takes
  it, so that a field can be added without rewriting the history.
* Mappings keep their order, which is meaning in a policy ("the first that matches").
* Where a hint says ``object`` (evidence, options of a spawner), any JSON value may stand; lists
  and tuples stay apart, since a record that comes back must equal the one that went in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from allotment_hub.domain.events import Record

from .errors import CodecError

Encoder = Callable[[Any], Any]
Decoder = Callable[[Any], Any]

RECORD_TYPES: dict[str, type] = {cls.__name__: cls for cls in get_args(Record)}
"""Every kind of record by its name, as the events write it."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)


def kind_of(record: Record) -> str:
    """The name under which a record is written."""
    return type(record).__name__


def encode(record: Record) -> dict[str, Any]:
    """The record as a mapping that :mod:`json` writes.

    Raises
    ------
    CodecError
        For a value that JSON cannot carry (a set, bytes, a class).
    """
    cls: Any = type(record)
    result: dict[str, Any] = _encoder_of(cls)(record)
    return result


def decode(kind: str, data: Any) -> Record:
    """The record of a kind from what :func:`encode` gave.

    Raises
    ------
    CodecError
        For an unknown kind and for everything that is not exactly of the declared form.
    """
    if kind not in RECORD_TYPES:
        raise CodecError(f"unknown kind of record {kind!r}; known are {', '.join(RECORD_TYPES)}")
    try:
        record: Record = _decoder(RECORD_TYPES[kind])(data)
    except CodecError as error:
        raise CodecError(f"{kind}{error}") from None
    return record


def dumps(record: Record) -> str:
    """The record as canonical JSON text: ASCII, no spaces, fields in declared order."""
    try:
        return _JSON.encode(encode(record))
    except (TypeError, ValueError) as error:
        raise CodecError(f"{kind_of(record)}: {error}") from error


def loads(kind: str, text: str) -> Record:
    """The record of a kind from its JSON text."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise CodecError(f"{kind} is not JSON: {error}") from None
    return decode(kind, data)


# --- writing ---------------------------------------------------------------------------------


@cache
def _encoder_of(cls: Any) -> Encoder:
    if not is_dataclass(cls):
        raise CodecError(f"{cls!r} is not a kind of record")
    return _dataclass_encoder(cls)


@cache
def _encoder(hint: Any) -> Encoder | None:
    """How to write a value of a type; None where JSON takes it as it is."""
    if is_dataclass(hint):
        return _dataclass_encoder(hint)
    if hint in _SCALARS or get_origin(hint) is Literal:
        return None
    if hint is object or hint is Any:
        return _encode_any
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return _union_encoder(arguments)
    if get_origin(hint) is tuple:
        return _tuple_encoder(arguments)
    if _is_mapping(hint):
        inner = _encoder(arguments[1])
        if inner is None:
            return dict
        return lambda value: {key: inner(item) for key, item in value.items()}
    raise CodecError(f"no way to write a field of type {hint!r}")


def _dataclass_encoder(cls: Any) -> Encoder:
    names = tuple(field.name for field in fields(cls))
    hints = get_type_hints(cls)
    special = [(name, coder) for name in names if (coder := _encoder(hints[name])) is not None]
    if len(names) == 1:
        only = names[0]
        coder = special[0][1] if special else (lambda value: value)
        return lambda record: {only: coder(getattr(record, only))}
    values = attrgetter(*names)

    def write(record: Any) -> dict[str, Any]:
        result = dict(zip(names, values(record), strict=True))
        for name, coder in special:
            result[name] = coder(result[name])
        return result

    return write


def _union_encoder(members: tuple[Any, ...]) -> Encoder | None:
    special = [coder for member in members if (coder := _encoder(member)) is not None]
    if not special:
        return None
    if len(special) > 1 or set(members) & (_SCALARS - {type(None)}):
        raise CodecError(f"a field may be one class or None, not any of {members!r}")
    coder = special[0]
    return lambda value: None if value is None else coder(value)


def _tuple_encoder(arguments: tuple[Any, ...]) -> Encoder | None:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = _encoder(arguments[0])
        return None if inner is None else lambda value: [inner(item) for item in value]
    coders = [_encoder(argument) or (lambda value: value) for argument in arguments]
    if all(_encoder(argument) is None for argument in arguments):
        return None
    return lambda value: [
        coder(item) for coder, item in zip(coders, value, strict=True)
    ]  # fmt: skip


def _encode_any(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple:
        return [_encode_any(item) for item in value]
    if kind is list:
        return {"$list": [_encode_any(item) for item in value]}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise CodecError(f"keys have to be text in {value!r}")
        if any(key.startswith("$") for key in value):
            return {"$dict": [[key, _encode_any(item)] for key, item in value.items()]}
        return {key: _encode_any(item) for key, item in value.items()}
    raise CodecError(f"{value!r} of type {kind.__name__} cannot be written as JSON")


# --- reading ---------------------------------------------------------------------------------


@cache
def _decoder(hint: Any) -> Decoder:
    """How to read a value of a type."""
    if is_dataclass(hint):
        return _dataclass_decoder(hint)
    if hint in _SCALARS:
        return _scalar_decoder(hint)
    if hint is object or hint is Any:
        return _decode_any
    arguments = get_args(hint)
    origin = get_origin(hint)
    if origin is Literal:
        return _literal_decoder(arguments)
    if origin in (Union, UnionType):
        return _union_decoder(arguments)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if _is_mapping(hint):
        return _mapping_decoder(_decoder(arguments[1]))
    raise CodecError(f"no way to read a field of type {hint!r}")


def _dataclass_decoder(cls: Any) -> Decoder:
    hints = get_type_hints(cls)
    coders = {field.name: _decoder(hints[field.name]) for field in fields(cls)}
    needed = {
        field.name
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    }

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise CodecError(f": a mapping is needed, not {_show(data)}")
        missing = needed - data.keys()
        if missing:
            raise CodecError(f".{min(missing)}: missing")
        values = {}
        for name, value in data.items():
            coder = coders.get(name)
            if coder is None:
                raise CodecError(f".{name}: unknown field")
            try:
                values[name] = coder(value)
            except CodecError as error:
                raise CodecError(f".{name}{error}") from None
        return cls(**values)

    return read


def _scalar_decoder(wanted: Any) -> Decoder:
    # An integer may stand for a real number; a boolean never for either.
    accepted = (float, int) if wanted is float else (wanted,)
    name = "null" if wanted is type(None) else wanted.__name__

    def read(value: Any) -> Any:
        if type(value) not in accepted:
            raise CodecError(f": {name} is needed, not {_show(value)}")
        return value

    return read


def _literal_decoder(options: tuple[Any, ...]) -> Decoder:
    allowed = {(type(option), option) for option in options}

    def read(value: Any) -> Any:
        if type(value) not in _SCALARS or (type(value), value) not in allowed:
            words = ", ".join(map(repr, options))
            raise CodecError(f": one of {words} is needed, not {_show(value)}")
        return value

    return read


def _union_decoder(hints: tuple[Any, ...]) -> Decoder:
    members = [_decoder(hint) for hint in hints if hint is not type(None)]
    optional = type(None) in hints
    if optional and len(members) == 1:
        only = members[0]
        return lambda value: None if value is None else only(value)

    def read(value: Any) -> Any:
        if optional and value is None:
            return None
        errors = []
        for member in members:
            try:
                return member(value)
            except CodecError as error:
                errors.append(str(error))
        raise CodecError(" or".join(errors))

    return read


def _tuple_decoder(arguments: tuple[Any, ...]) -> Decoder:
    endless = len(arguments) == 2 and arguments[1] is Ellipsis
    coders = [_decoder(argument) for argument in arguments if argument is not Ellipsis]

    def read(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise CodecError(f": a list is needed, not {_show(value)}")
        if not endless and len(value) != len(coders):
            raise CodecError(f": {len(coders)} items are needed, not {len(value)}")
        result = []
        for place, item in enumerate(value):
            try:
                result.append(coders[0 if endless else place](item))
            except CodecError as error:
                raise CodecError(f"[{place}]{error}") from None
        return tuple(result)

    return read


def _mapping_decoder(inner: Decoder) -> Decoder:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise CodecError(f": a mapping is needed, not {_show(value)}")
        result = {}
        for key, item in value.items():
            try:
                result[key] = inner(item)
            except CodecError as error:
                raise CodecError(f"[{key!r}]{error}") from None
        return result

    return read


def _decode_any(value: Any) -> Any:
    if type(value) in (list, tuple):
        return tuple(_decode_any(item) for item in value)
    if type(value) is dict:
        if value.keys() == {"$list"}:
            return [_decode_any(item) for item in value["$list"]]
        if value.keys() == {"$dict"}:
            return {key: _decode_any(item) for key, item in value["$dict"]}
        return {key: _decode_any(item) for key, item in value.items()}
    return value


def _is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping) and get_args(hint)[0] is str


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
