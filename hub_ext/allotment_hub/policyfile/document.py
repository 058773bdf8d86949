"""A YAML 1.2 or JSON text as plain values, with the line of each.

Only what a configuration needs: mappings with text keys, lists, text, numbers, booleans and null.
Anchors, aliases and merge keys work; tags do not, keys may not be repeated, and size, depth and
the growth through aliases are bounded, so that a hostile text costs a bounded amount of work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from .problems import Path, Problem, path_text, printable, shown

_Parsed = Any
"""An event of the parser; its classes declare no types."""

MAX_YAML_BYTES = 1 << 20
"""Largest YAML text; about ten seconds of reading."""

MAX_JSON_BYTES = 32 << 20
"""Largest JSON text: large generated inventories come as JSON, which is read far faster."""

MAX_DEPTH = 40
MAX_VALUES = 200_000
"""Values in a YAML document after aliases are expanded."""

MAX_SCALAR = 10_000

# YAML 1.2, core schema: `no`, `off` and 2026-01-01 are text, 0o17 is octal and 017 is seventeen.
_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]{1,4000}"), int),
    (re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (
        re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        lambda text: float(text.replace(".", "")),
    ),
)


class DocumentError(ValueError):
    """A text that is not a readable document; ``problem`` says where and why."""

    def __init__(self, message: str, line: int | None = None, path: Path = ()) -> None:
        self.problem = Problem(path_text(path), printable(message), line)
        super().__init__(message)


@dataclass(slots=True)
class _Node:
    """A value in the text: its line, and how many values it stands for with aliases expanded."""

    line: int
    value: Any
    size: int = 1

    def child(self, part: str | int) -> _Node | None:
        if isinstance(self.value, dict):
            found: _Node | None = self.value.get(part)
            return found
        if isinstance(self.value, list) and isinstance(part, int) and part < len(self.value):
            item: _Node = self.value[part]
            return item
        return None

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass
class Document:
    """Plain values; :meth:`line` finds the line on which one of them stands in the text."""

    data: Any
    text: str | None = None
    node: _Node | None = None

    @cached_property
    def _top(self) -> _Node | None:
        if self.node is not None or self.text is None or len(self.text) > MAX_YAML_BYTES:
            return self.node
        try:  # JSON is read without lines; they are looked up only where there is need
            return _Composer(self.text).compose().node
        except DocumentError:  # JSON that is not YAML too: tabs as indentation
            return None

    def line(self, path: Path) -> int | None:
        """Line of a value, or of the nearest part around it; None where it is unknown."""
        here = self._top
        if here is None:
            return None
        for part in path:
            inner = here.child(part)
            if inner is None:
                break
            here = inner
        return here.line

    def has(self, path: Path) -> bool:
        """Whether the document itself holds this value."""
        here = self.data
        for part in path:
            if isinstance(here, list):
                if not isinstance(part, int) or part >= len(here):
                    return False
            elif not isinstance(here, Mapping) or part not in here:
                return False
            here = here[part]
        return True

    def at(self, path: Path) -> Document:
        """The part of this document at a path that it has, with its lines."""
        data, node = self.data, self._top
        for part in path:
            data = data[part]
            node = None if node is None else node.child(part)
        return Document(data, None, node)


def read_document(text: str | bytes) -> Document:
    """Read a text as JSON where it is JSON, else as YAML 1.2.

    Raises
    ------
    DocumentError
        Where the text is too large, not UTF-8, not YAML, or holds something not supported.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise DocumentError("is not UTF-8 text; save the file as UTF-8", line) from None
    if text.lstrip()[:1] in ("{", "["):
        document = _read_json(text)
        if document is not None:
            return document
    if len(text.encode("utf-8", "surrogatepass")) > MAX_YAML_BYTES:
        raise DocumentError(
            f"is larger than {MAX_YAML_BYTES >> 20} MiB of YAML; write large files as JSON"
        )
    return _Composer(text).compose()


def _read_json(text: str) -> Document | None:
    if len(text) > MAX_JSON_BYTES:
        raise DocumentError(f"is larger than {MAX_JSON_BYTES >> 20} MiB")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            raise KeyError  # the YAML reader names the key and its line
        return result

    try:
        return Document(json.loads(text, object_pairs_hook=pairs), text)
    except RecursionError:
        raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels") from None
    except (ValueError, KeyError):
        return None


class _Composer:
    """Builds values from the parser's events, within the bounds of this module."""

    def __init__(self, text: str) -> None:
        self._text = text
        yaml = YAML(typ="safe", pure=True)
        self._events: Iterator[_Parsed] = iter(yaml.parse(text))
        self._anchors: dict[str, _Node] = {}

    def compose(self) -> Document:
        try:
            node = self._document()
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ", ".join(filter(None, (error.context, error.problem)))
            line = None if mark is None else mark.line + 1
            raise DocumentError(f"is not YAML: {what}", line) from None
        except YAMLError as error:
            raise DocumentError(f"is not YAML: {str(error).splitlines()[0]}") from None
        return Document(node.plain(), self._text, node)

    def _document(self) -> _Node:
        next(self._events)  # start of the stream
        if not isinstance(next(self._events), DocumentStartEvent):
            raise DocumentError("is empty")
        node = self._node(next(self._events), ())
        next(self._events)  # end of the document
        after = next(self._events)
        if isinstance(after, DocumentStartEvent):
            raise DocumentError("holds a second document after ---; keep one", _line(after))
        return node

    def _node(self, event: _Parsed, path: Path) -> _Node:
        if len(path) > MAX_DEPTH:
            raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", _line(event))
        if isinstance(event, AliasEvent):
            return self._alias(event, path)
        if event.tag is not None:
            message = f"uses the tag {shown(str(event.tag))}; tags are not supported, leave it out"
            raise DocumentError(message, _line(event), path)
        if isinstance(event, MappingStartEvent):
            node = self._mapping(event, path)
        elif isinstance(event, SequenceStartEvent):
            node = self._sequence(event, path)
        else:
            node = _Node(_line(event), _scalar(event, path))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _mapping(self, start: _Parsed, path: Path) -> _Node:
        node = _Node(_line(start), {})
        merged: list[_Node] = []
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, path)
            at = (*path, key)
            if key in node.value:
                first = node.value[key].line
                message = f"is given twice, first on line {first}; keep one"
                raise DocumentError(message, _line(event), at)
            inner = self._node(next(self._events), at)
            if key == "<<" and event.style is None:
                merged.extend(self._bases(inner, path))
                continue
            # The line of an entry is that of its key; an alias stays shared with its anchor.
            node.value[key] = replace(inner, line=_line(event))
            self._grow(node, inner, event)
        for base in merged:
            for key, inner in base.value.items():
                if key not in node.value:
                    node.value[key] = inner
                    self._grow(node, inner, start)
        return node

    def _bases(self, node: _Node, path: Path) -> list[_Node]:
        bases: list[_Node] = node.value if isinstance(node.value, list) else [node]
        if not all(isinstance(base.value, dict) for base in bases):
            raise DocumentError("merges something with << that is not a mapping", node.line, path)
        return bases

    def _key(self, event: _Parsed, path: Path) -> str:
        if not isinstance(event, ScalarEvent) or event.tag is not None:
            raise DocumentError("has a key that is not text", _line(event), path)
        key = _scalar(event, path)
        if not isinstance(key, str):
            message = f"has the key {shown(key)}, which is not text; write it as '{event.value}'"
            raise DocumentError(message, _line(event), path)
        return key

    def _sequence(self, start: _Parsed, path: Path) -> _Node:
        node = _Node(_line(start), [])
        while not isinstance(event := next(self._events), SequenceEndEvent):
            inner = self._node(event, (*path, len(node.value)))
            node.value.append(inner)
            self._grow(node, inner, event)
        return node

    def _alias(self, event: _Parsed, path: Path) -> _Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            message = f"refers to *{event.anchor}, which is not anchored before"
            raise DocumentError(message, _line(event), path)
        return node

    def _grow(self, node: _Node, inner: _Node, event: _Parsed) -> None:
        node.size += inner.size
        if node.size > MAX_VALUES:
            raise DocumentError(f"holds more than {MAX_VALUES:,} values", _line(event))


def _line(event: _Parsed) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: _Parsed, path: Path) -> Any:
    text: str = event.value
    if len(text) > MAX_SCALAR:
        message = f"is a text of {len(text):,} characters; at most {MAX_SCALAR:,} are read"
        raise DocumentError(message, _line(event), path)
    if event.style is not None:
        return text
    for pattern, read in _CORE:
        if pattern.fullmatch(text):
            return read(text)
    return text
