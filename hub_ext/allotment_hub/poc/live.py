"""What can be shown over REST against a running governor, with one token and without disturbing
anybody: the pool by cause, why each request waits, the rules and their history, who pays for what,
and one GPU asked for, got or explained, and given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .catalogue import Item, read_kit
from .redlines import RedLine
from .running import Result, Verdict

Caller = Callable[..., Any]
"""``call(method, path, body=None)``: one call of the REST interface; it raises what the caller
wants to see raised when the governor does not answer.
"""

SHARES = (
    "free", "in_use", "out_of_service", "free_wrong_shape", "free_quota_blocked",
    "held_not_used", "held_preparing",
)  # fmt: skip


def run_live(call: Caller) -> Verdict:
    """Run the items that can be run; the others are said not to have been."""
    checks = {"step-1": _own_gpu, "portrait-1": _portrait, "queue-1": _line, "step-6": _own_view}
    results = []
    for item in read_kit():
        check = checks.get(item.id)
        if item.mark == "not needed":
            results.append(Result(item, "not needed"))
        elif check is None:
            results.append(Result(item, "not yet" if item.not_yet else "not run"))
        else:
            results.append(_run(item, check, call))
    return Verdict(results, (_waits(call), _costs(call), _rules(call)))


Check = Callable[[Caller], Iterator[str]]


def _run(item: Item, check: Check, call: Caller) -> Result:
    failures = list(check(call))
    if failures == [NOTHING_TO_USE]:
        return Result(item, "not run")
    return Result(item, "failed" if failures else "passed", failures)


NOTHING_TO_USE = "no team of this person has a guarantee that is free"


def _own_gpu(call: Caller) -> Iterator[str]:
    """Ask for one slot of a free guarantee; it starts, or says who gives it back; give it back."""
    line = _free_line(call)
    if line is None:
        yield NOTHING_TO_USE
        return
    tenant, quota = line
    wants = {
        "kind": "session", "tenant": tenant, "pool": quota["pool"], "flavor": quota["flavor"],
        "gpus": 1, "duration": "5m", "start": "always", "server": "acceptance-kit",
    }  # fmt: skip
    seen = call("POST", "/requests/preview", wants)
    if seen["decision"] == "rejected":
        yield f"a preview of 1 GPU within a free guarantee says {_code(seen)}"
        return
    made = call("POST", "/requests", wants)
    try:
        if made["state"] != "granted" and not made["reasons"]:
            yield f"request {made['id']} waits and nothing tells why"
        if made["state"] == "granted":
            lease = call("GET", f"/leases/{made['lease']}")
            if lease["basis"] != "guaranteed" or not lease["rule"]:
                yield f"lease {lease['id']} is {lease['basis']} by rule {lease['rule']!r}"
    finally:
        _give_back(call, made)


def _give_back(call: Caller, made: Mapping[str, Any]) -> None:
    now = call("GET", f"/requests/{made['id']}")
    if now["state"] in ("queued", "parked"):
        call("DELETE", f"/requests/{made['id']}")
    elif now["lease"]:
        call("POST", f"/leases/{now['lease']}/release")


def _free_line(call: Caller) -> tuple[str, Mapping[str, Any]] | None:
    for tenant in call("GET", "/me")["tenants"]:
        for quota in tenant["quotas"]:
            if quota["guarantee"] - quota["guaranteed"] >= 1:
                return tenant["name"], quota
    return None


def _code(request: Mapping[str, Any]) -> str:
    return ", ".join(reason["code"] for reason in request["reasons"]) or "nothing"


def _portrait(call: Caller) -> Iterator[str]:
    view = call("GET", "/capacity")
    for line in [{**view, "name": "the pool"}, *view["flavors"]]:
        parts = sum(line[share] for share in SHARES)
        whole = line.get("total", line["in_service"] + line["out_of_service"])
        if abs(parts - whole) > 1e-6:  # thousandths of a GPU, added as floating point numbers
            yield f"{line['name']}: the shares add up to {parts:g}, not to {whole:g} GPUs"


def _line(call: Caller) -> Iterator[str]:
    for request in _queued(call):
        if not request["position"]:
            yield f"{request['id']} waits and has no place in line"


def _own_view(call: Caller) -> Iterator[str]:
    me = call("GET", "/me")
    if me["admin"]:
        return
    owned = set(me["owns"])
    for row in [*_queued(call), *call("GET", "/leases")["leases"]]:
        if row["user"] != me["user"] and row["tenant"] not in owned:
            yield f"{row['id']} belongs to somebody else and is shown"


def _queued(call: Caller) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = call("GET", "/requests?state=queued")["requests"]
    return rows


def _waits(call: Caller) -> RedLine:
    rows = _queued(call)
    line = RedLine("waits", "A wait that cannot be explained", f"{len(rows)} waiting requests")
    line.crossed += [
        f"{row['id']} waits without a reason" for row in rows
        if not row["reasons"] or not row["reasons"][0]["text"]
    ]  # fmt: skip
    return line


def _costs(call: Caller) -> RedLine:
    rows = call("GET", "/usage")["usage"]
    looked = f"{sum(row['leases'] for row in rows)} leases of this person's view"
    line = RedLine("cost", "A cost that cannot be attributed to a team", looked)
    line.crossed += [f"{row['gpu_hours']} GPU-hours of nobody" for row in rows if not row["tenant"]]
    return line


def _rules(call: Caller) -> RedLine:
    leases = call("GET", "/leases")["leases"]
    looked = f"{len(leases)} running leases of this person's view; no rule was changed"
    line = RedLine("rules", "A sharing rule that cannot be observed or rolled back", looked)
    line.crossed += [
        f"{row['id']} names no rule" for row in leases
        if not row["rule"] or not row["policy_version"]
    ]  # fmt: skip
    return line
