"""The governor's answers as lines for a terminal: aligned, in words, in local time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .words import Times, number, plain, table

UNUSABLE = (
    ("free_wrong_shape", "free, but not in a shape that those who wait asked for"),
    ("free_quota_blocked", "free, but no quota lets those who wait have them"),
    ("held_not_used", "held, but not used"),
    ("held_preparing", "held, session getting ready"),
)
"""The four ways in which a device is there but does not serve, in words."""

STATES = {
    "queued": "in line",
    "parked": "parked (claim it to rejoin the line)",
    "granted": "your turn",
    "done": "ended",
    "cancelled": "cancelled",
    "rejected": "refused",
    "expired": "expired",
}

LEASE_STATES = {
    "granted": "about to start",
    "preparing": "getting ready",
    "active": "running",
    "noticed": "notice given",
    "frozen": "frozen",
    "stopping": "stopping",
    "released": "ended",
}


def shape(row: Mapping[str, Any]) -> str:
    """What a request asks for or a lease holds: ``2 × a100-80g``.

    >>> shape({"asked": {"gpus": 2, "flavor": "a100-80g", "nodes": 2}})
    '2 × a100-80g on 2 nodes'
    """
    asked = row.get("asked")
    if isinstance(asked, Mapping):
        text = f"{number(asked.get('gpus'))} × {plain(asked.get('flavor') or 'any GPU')}"
        nodes = asked.get("nodes")
        return f"{text} on {nodes} nodes" if isinstance(nodes, int) and nodes > 1 else text
    devices = [device for device in row.get("devices") or [] if isinstance(device, Mapping)]
    total = sum(device.get("share", 1) or 0 for device in devices)
    flavors = sorted({str(device.get("flavor")) for device in devices})
    return f"{number(total)} × {plain(', '.join(flavors) or 'GPU')}"


def _where(lease: Mapping[str, Any]) -> str:
    nodes: dict[str, list[str]] = {}
    for device in lease.get("devices") or []:
        nodes.setdefault(str(device.get("node")), []).append(str(device.get("index")))
    return "; ".join(f"{node}: {', '.join(indexes)}" for node, indexes in nodes.items()) or "-"


class Report:
    """Answers in words; each method returns lines."""

    def __init__(self, times: Times) -> None:
        self.times = times

    def _when(self, value: Any) -> str:
        away = self.times.away(value)
        return f"{self.times.at(value)} ({away})" if away else self.times.at(value)

    # --- status

    def me(self, me: Mapping[str, Any]) -> list[str]:
        lines = self._notices(me.get("notices") or [])
        lines += self._sessions([x for x in me.get("leases") or [] if x.get("state") != "released"])
        live = [
            x for x in me.get("requests") or [] if x.get("state") in ("queued", "parked", "granted")
        ]
        waiting = [row for row in live if row.get("state") != "granted" or not row.get("lease")]
        for row in waiting:
            lines += ["", *self.request(row)]
        return [*lines, *self._tenants(me.get("tenants") or [])]

    def _notices(self, notices: Sequence[Any]) -> list[str]:
        """What waits for its owner; what is being taken back is told beside its session."""
        return [
            f"! It is your turn until {self._when(notice.get('until'))}: "
            f"allotment claim {plain(notice.get('request'))}"
            for notice in notices
            if isinstance(notice, Mapping) and notice.get("kind") == "claim"
        ]

    def _sessions(self, leases: Sequence[Mapping[str, Any]]) -> list[str]:
        if not leases:
            return ["You hold no GPUs."]
        rows = [
            (
                lease.get("id"),
                shape(lease),
                _where(lease),
                LEASE_STATES.get(str(lease.get("state")), lease.get("state")),
                self._basis(lease),
                self._when(lease.get("term_ends_at")),
                number(lease.get("renewals_left")),
            )
            for lease in leases
        ]
        head = ["LEASE", "GPUS", "WHERE", "STATE", "BASIS", "TERM ENDS", "RENEWALS LEFT"]
        lines = table(head, rows, right="RENEWALS LEFT")
        for lease in leases:
            lines += self._reclaim(lease)
        return lines

    @staticmethod
    def _basis(lease: Mapping[str, Any]) -> str:
        if lease.get("basis") != "borrowed":
            return str(lease.get("basis") or "?")
        lenders = lease.get("lenders") or {}
        parts = ", ".join(f"{number(gpus)} of {plain(name)}" for name, gpus in lenders.items())
        return f"borrowed ({parts})" if parts else "borrowed"

    def _reclaim(self, lease: Mapping[str, Any]) -> list[str]:
        reclaim = lease.get("reclaim")
        if not isinstance(reclaim, Mapping):
            return []
        evidence = "; ".join(plain(x) for x in reclaim.get("evidence") or [])
        undo = ", ".join(f"allotment {plain(x)}" for x in reclaim.get("undo") or [])
        line = (
            f"! {plain(lease.get('id'))}: {reclaim.get('step')} until "
            f"{self._when(reclaim.get('step_ends_at'))}, because of {plain(reclaim.get('trigger'))}"
        )
        line += f" ({self.times.local(evidence)})" if evidence else ""
        return [line, f"  To keep it: {undo}"] if undo else [line]

    def _tenants(self, tenants: Sequence[Mapping[str, Any]]) -> list[str]:
        rows = [
            (
                tenant.get("name"),
                quota.get("pool"),
                quota.get("flavor"),
                *(number(quota.get(key)) for key in self._QUOTA_KEYS),
            )
            for tenant in tenants
            for quota in tenant.get("quotas") or []
        ]
        if not rows:
            return ["", "You belong to no team that has a quota here."]
        head = ["TEAM", "POOL", "FLAVOR", *(key.upper() for key in self._QUOTA_KEYS)]
        return ["", *table(head, rows, right=" ".join(head[3:]))]

    _QUOTA_KEYS = ("guarantee", "ceiling", "used", "borrowed", "lent", "free")

    # --- requests

    def request(self, row: Mapping[str, Any]) -> list[str]:
        """A request with place, forecast and reasons."""
        state = str(row.get("state"))
        lines = [f"{plain(row.get('id'))}: {shape(row)}, {STATES.get(state, plain(state))}"]
        if row.get("tenant"):
            lines[0] += f", team {plain(row['tenant'])}"
        position = row.get("position")
        if state == "queued" and position:
            total = f" of {row['in_line']}" if row.get("in_line") else ""
            lines.append(f"  Place       {position}{total}")
        lines += self._forecast(row.get("forecast"))
        for reason in row.get("reasons") or []:
            lines += self._reason(reason)
        for passed in row.get("passed_by") or []:
            lines.append(
                f"  Passed by   {plain(passed.get('request'))}: {plain(passed.get('why'))}"
            )
        if state == "granted" and row.get("lease"):
            lease = row["lease"]
            name = lease.get("id") if isinstance(lease, Mapping) else lease
            lines.append(f"  Lease       {plain(name)}")
        return lines

    def _forecast(self, forecast: Any) -> list[str]:
        if not isinstance(forecast, Mapping):
            return []
        lines = []
        if forecast.get("expected_start"):
            lines.append(f"  Starts      about {self._when(forecast['expected_start'])}")
        if forecast.get("latest_start"):
            lines.append(f"  At latest   {self._when(forecast['latest_start'])}")
        return lines

    def _reason(self, reason: Mapping[str, Any]) -> list[str]:
        text = str(reason.get("text") or reason.get("code"))
        lines = [f"  Why         {plain(self.times.local(text))}"]
        for help_ in reason.get("helps") or []:
            forecast = help_.get("forecast")
            when = forecast.get("expected_start") if isinstance(forecast, Mapping) else forecast
            text = plain(self.times.local(str(help_.get("text"))))
            start = "could start now" if help_.get("now") else self._when(when) if when else ""
            lines.append(f"  Would help  {text}" + (f": {start}" if start else ""))
        return lines

    def progress(self, row: Mapping[str, Any]) -> list[str]:
        """One line for each change while following."""
        state = str(row.get("state"))
        at = f"{self.times.at(self.times.now)}  " if self.times.now else ""
        if state != "queued":
            return [f"{at}{STATES.get(state, plain(state))}", *self.request(row)[1:]]
        reasons = row.get("reasons") or [{}]
        text = plain(self.times.local(str(reasons[0].get("text") or "")))
        return [f"{at}place {row.get('position') or '?'}: {text}".rstrip(": ")]

    def queue(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        if not rows:
            return ["Nobody waits."]
        cells = [
            (
                row.get("position") or "-",
                row.get("id"),
                row.get("user"),
                row.get("tenant"),
                row.get("class"),
                shape(row),
                STATES.get(str(row.get("state")), row.get("state")),
                self.times.at(row.get("submitted_at")),
                self.times.at((row.get("forecast") or {}).get("expected_start")),
                self.times.local(str(((row.get("reasons") or [{}])[0]).get("text") or "")),
            )
            for row in rows
        ]
        head = [
            "PLACE",
            "REQUEST",
            "USER",
            "TEAM",
            "CLASS",
            "ASKED",
            "STATE",
            "SINCE",
            "STARTS",
            "WHY",
        ]
        return table(head, cells, right="PLACE")

    def preview(self, wants: Mapping[str, Any], preview: Mapping[str, Any]) -> list[str]:
        """What would be decided now, and what would start sooner."""
        decision = str(preview.get("decision") or preview.get("state") or "?")
        meant = {
            "granted": "would start now",
            "queued": "would wait in line",
            "rejected": "would be refused",
            "refused": "would be refused",
        }.get(decision, plain(decision))
        lines = [f"{shape({'asked': wants})} {meant}."]
        if preview.get("position"):
            lines.append(f"  Place       {preview['position']}")
        lines += self._forecast(preview.get("forecast"))
        for reason in preview.get("reasons") or []:
            lines += self._reason({**reason, "helps": []})
        for option in preview.get("alternatives") or []:
            forecast = option.get("forecast") or {}
            when = "now" if option.get("now") else self._when(forecast.get("expected_start"))
            lines.append(
                f"  Sooner      {plain(option.get('text') or option.get('change'))}: {when}"
            )
        return lines

    # --- leases

    def renewed(self, lease: Mapping[str, Any]) -> list[str]:
        left = number(lease.get("renewals_left"))
        until = self._when(lease.get("term_ends_at"))
        return [f"{shape(lease)} is yours until {until}; {left} renewals left."]

    def kept(self, lease: Mapping[str, Any]) -> list[str]:
        if isinstance(lease.get("reclaim"), Mapping):
            return self._reclaim(lease)
        return [f"Kept: {shape(lease)}, term ends {self._when(lease.get('term_ends_at'))}."]

    def released(self, lease: Mapping[str, Any]) -> list[str]:
        if lease.get("state") == "released":
            return [f"Given back: {shape(lease)}."]
        return [f"The session stops; {shape(lease)} is free once nothing runs there any more."]

    # --- capacity

    def usage(self, there: Mapping[str, Any]) -> list[str]:
        """One line a team, person and kind of GPU; GPU-hours by what was held."""
        rows = there.get("usage") or []
        if not rows:
            return ["No GPU has been held in this time."]
        head = ["TEAM", "PERSON", "KIND", "FLAVOR", "GPU HOURS", "BORROWED", "COST"]
        currency = plain(there.get("currency") or "")
        cells = [
            (
                *(plain(row.get(key)) for key in ("tenant", "user", "class", "flavor")),
                number(row.get("gpu_hours")),
                number(row.get("borrowed_gpu_hours")),
                f"{number(row.get('cost'))} {currency}".strip(),
            )
            for row in rows
        ]
        return table(head, cells)

    def capacity(self, there: Mapping[str, Any]) -> list[str]:
        """Pools and flavors with each share; the unusable ones explained below the table."""
        rows = list(_flavor_rows(there))
        if not rows:
            return ["No GPUs are known here."]
        keys = ["in_service", "in_use", "free", *(key for key, _ in UNUSABLE), "out_of_service"]
        head = ["POOL", "FLAVOR", *(key.upper().replace("_", " ") for key in keys)]
        cells = [
            (pool, flavor, *(number(row.get(key)) for key in keys)) for pool, flavor, row in rows
        ]
        lines = table(head, cells)
        told = [(key, text) for key, text in UNUSABLE if any(row.get(key) for _, _, row in rows)]
        if told:
            lines.append("")
            lines += [f"{key.replace('_', ' ')}: {text}" for key, text in told]
        return lines


def _flavor_rows(there: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """``(pool, flavor, shares)`` of each line of the capacity answer."""
    rows = []
    for pool in there.get("pools") or []:
        for row in pool.get("flavors") or []:
            rows.append((str(pool.get("name")), str(row.get("flavor") or row.get("name")), row))
    return rows
