"""The GPU fields of the spawn form: plain HTML that needs no script and no governor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from .options import FIELD

_HEAD = """<fieldset class="allotment-form border rounded p-3 mb-3">
<legend class="float-none w-auto px-2 fs-5">GPUs</legend>"""


def render(
    offers: Mapping[str, Any] | None, *, planner: str, server: str, chosen: Mapping[str, Any]
) -> str:
    """Render the fields.

    Parameters
    ----------
    offers : mapping or None
        Answer of ``GET gate/form``; None when the governor did not give one.
    planner : str
        Path of the governor's own form, which knows what is free and when one would start.
    server : str
        Name of the server that the form starts.
    chosen : mapping
        What was asked for last time.
    """
    if offers is None:
        return (
            f"{_HEAD}<p>GPU sessions cannot be started just now: the service that shares the GPUs "
            "does not answer. Sessions without GPUs start as usual.</p></fieldset>"
        )
    if not offers.get("flavors"):
        return (
            f"{_HEAD}<p>None of your groups has GPUs here, so the session starts without.</p>"
            "</fieldset>"
        )
    href = escape(f"{planner}?server={quote(server, safe='')}")
    lines = [
        _HEAD,
        f'<p>See what is free and when you would start: <a href="{href}">plan a GPU session</a>. '
        "Or ask for it here; with 0 GPUs the session starts at once.</p>",
        _number("gpus", "Number of GPUs", chosen.get("gpus", 0)),
    ]
    for name, label in (("flavor", "Kind"), ("tenant", "Team"), ("class", "Kind of work")):
        lines.append(_select(name, label, offers.get(_PLURAL[name]) or (), chosen.get(name)))
    lines.append(_text("duration", "For how long", "4h", chosen.get("duration", "")))
    lines.append("</fieldset>")
    return "\n".join(line for line in lines if line)


_PLURAL = {"flavor": "flavors", "tenant": "tenants", "class": "classes"}


def _number(name: str, label: str, value: Any) -> str:
    field = FIELD + name
    return (
        f'<div class="mb-2"><label for="{field}">{escape(label)}</label> '
        f'<input class="form-control" type="number" min="0" step="any" id="{field}" '
        f'name="{field}" value="{escape(str(value))}"></div>'
    )


def _text(name: str, label: str, hint: str, value: Any) -> str:
    field = FIELD + name
    return (
        f'<div class="mb-2"><label for="{field}">{escape(label)}</label> '
        f'<input class="form-control" id="{field}" name="{field}" placeholder="{escape(hint)}" '
        f'value="{escape(str(value))}"></div>'
    )


def _select(name: str, label: str, entries: Sequence[Any], value: Any) -> str:
    known = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("name")]
    if len(known) < 1:
        return ""
    field = FIELD + name
    options = (
        ['<option value="">any that suits</option>']
        if name != "class"
        else ['<option value="">the usual</option>']
    )
    for entry in known:
        key = str(entry["name"])
        selected = " selected" if key == value else ""
        text = str(entry.get("text") or key)
        options.append(f'<option value="{escape(key)}"{selected}>{escape(text)}</option>')
    return (
        f'<div class="mb-2"><label for="{field}">{escape(label)}</label> '
        f'<select class="form-control" id="{field}" name="{field}">'
        f"{''.join(options)}</select></div>"
    )
