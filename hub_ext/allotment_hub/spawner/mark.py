"""The mark of a lease in a server's options: written from the stored state, by nobody else.

The hub writes ``user_options`` whenever somebody asks for a start, before it lets a spawner look at
them. If it died right then, a mark would be lost that says that something may still run. So the
mark is put in by the database's own hook at each write, and whatever else claims to be one is
taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub import orm
from sqlalchemy import event

from allotment_hub.gateapi import LEASE_OPTION

STATE_KEY = "allotment"


def marked(options: Any, state: Any) -> dict[str, Any]:
    """Return a server's options with the mark that its stored state calls for.

    >>> marked({"image": "x", LEASE_OPTION: "l9"}, {})
    {'image': 'x'}
    >>> marked(None, {"allotment": {"lease": {"id": "l1"}, "proof": ""}})
    {'allotment_lease': 'l1'}
    """
    kept = {key: value for key, value in dict(options or {}).items() if key != LEASE_OPTION}
    mine = state.get(STATE_KEY) if isinstance(state, Mapping) else None
    if isinstance(mine, Mapping) and not mine.get("proof"):
        kept[LEASE_OPTION] = mine["lease"]["id"]
    return kept


@event.listens_for(orm.Spawner.user_options, "set", retval=True)
def _keep_mark(row: Any, value: Any, _old: Any, _initiator: Any) -> dict[str, Any]:
    return marked(value, row.state)
