"""The main story, walked through real HTTP: each step prints what shows that it holds.

A step asks, waits for what has to follow, checks it, and prints ids, states and numbers as they
were answered. The first thing that is not as it has to be ends the walk with :class:`DemoError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allotment_hub.clock import stopwatch

from .calls import SERVICE, Browser
from .demand import A100, BORROWER, L40S, WAITING, active_lease
from .hub import DemoHub
from .waiting import DemoError

Print = Callable[[str], None]
RETURN_WITHIN_S = 120.0


def walk(hub: DemoHub, say: Print) -> None:
    """Walk the whole story on a hub whose demand has begun."""
    Story(hub, say).walk()


class Story:
    """One walk.

    Parameters
    ----------
    hub : DemoHub
    say : callable
        Prints a line.
    """

    def __init__(self, hub: DemoHub, say: Print) -> None:
        self._hub = hub
        self._say = say
        self._owner = hub.person("ann")
        self._borrower = hub.person(BORROWER[0])
        self._waiting = hub.person(WAITING[0])

    def walk(self) -> None:
        """Take every step in turn."""
        for number, step in enumerate(self._steps(), start=1):
            title = (step.__doc__ or "").partition("\n")[0].rstrip(".")
            self._say(f"\n{number}. {title}")
            since = stopwatch()
            step()
            self._say(f"   ok, {since():.1f} s")

    def _steps(self) -> list[Callable[[], None]]:
        return [
            self.within_the_guarantee,
            self.borrowed,
            self.in_the_queue,
            self.pages,
            self.asked_back,
            self.restarted,
            self.returned,
            self.starts_by_itself,
            self.audited,
        ]

    # -- steps -------------------------------------------------------------------------------

    def within_the_guarantee(self) -> None:
        """Within the guarantee a session starts at once."""
        request = self._owner.ask(1, L40S)
        lease = active_lease(self._hub.patience, self._owner, request["id"])
        _same("basis of the lease", lease["basis"], "guaranteed")
        self._tell(f"{request['id']}: ann of vision asked for 1 {L40S}")
        self._tell(_lease_line(lease))
        version = self._owner.server()["version"]
        process = self._hub.server_process("ann")
        seen = process.environ().get("CUDA_VISIBLE_DEVICES")
        _same("CUDA_VISIBLE_DEVICES", seen, lease["devices"][0]["uuid"])
        self._tell(f"her server (pid {process.pid}) answers: Jupyter Server {version}, sees {seen}")
        self._tell(_quota_line(self._owner.governor("GET", "me"), L40S))

    def borrowed(self) -> None:
        """Beyond the guarantee a session borrows what another team does not use."""
        lease = _only(self._borrower.governor("GET", "leases")["leases"], "lease of ned")
        _same("basis of the lease", lease["basis"], "borrowed")
        _same("lenders", lease["lenders"], {"vision": 2})
        self._tell(_lease_line(lease))
        self._tell(
            f"2 GPUs lent by vision under rule {lease['rule']}; term {lease['term']} until "
            f"{lease['term_ends_at']}, {lease['renewals_left']} renewals"
        )
        self._tell(_quota_line(self._borrower.governor("GET", "me"), A100))

    def in_the_queue(self) -> None:
        """Who cannot start yet has a place, a reason and a forecast."""
        request = self._place()
        _same("place", request["position"], 1)
        reason = request["reasons"][0]
        self._tell(f"{request['id']}: rob of robotics is number {request['position']} in the line")
        self._tell(f"{reason['code']}: {reason['text']} (rule {reason['rule']})")
        forecast = request["forecast"]
        if forecast["expected_start"] is None:
            raise DemoError(f"an expected start was wanted, found {forecast}")
        self._tell(
            f"expected to start at {forecast['expected_start']} by {forecast['basis']}; at the "
            f"latest: {forecast['latest_start'] or 'no bound beyond the guarantee'}"
        )

    def pages(self) -> None:
        """The pages answer to whoever has logged in."""
        browser = Browser(self._hub.setup.url)
        browser.log_in(WAITING[0], self._hub.setup.password)
        request = self._place()["id"]
        for path in (SERVICE, f"{SERVICE}new", f"{SERVICE}waiting/{request}", "hub/home"):
            page = browser.get(path)
            if "<html" not in page:
                raise DemoError(f"page {path}: a page was wanted, found {page[:80]!r}")
            self._tell(f"/{path}: 200, {len(page):,} characters")

    def asked_back(self) -> None:
        """The owner needs them: they are asked back, with notice."""
        request = self._owner.ask(2, A100, server="train")
        self._tell(f"{request['id']}: ann of vision asked for 2 {A100}, her team's guarantee")
        self._returning = request["id"]

        def noticed() -> Any:
            rows = self._borrower.governor("GET", "leases")["leases"]
            return next((row for row in rows if row["state"] == "noticed"), None)

        lease = self._hub.patience.until(noticed, 60, "the borrower has notice")
        _same("trigger", lease["reclaim"]["trigger"], "return")
        self._tell(
            f"{lease['id']}: {lease['state']} for a {lease['reclaim']['trigger']} to "
            f"{lease['reclaim']['for_tenant']}, until {lease['reclaim']['step_ends_at']}"
        )
        row = self._owner.governor("GET", f"requests/{request['id']}")
        if row["state"] == "queued":
            reason = row["reasons"][0]
            _same("reason", reason["code"], "WaitingForReturn")
            self._tell(f"ann is told {reason['code']}: {reason['text']}")
        self._noticed = lease

    def restarted(self) -> None:
        """Hub and governor are killed and started again: nothing is lost."""
        before, running = self._place(), self._pids()
        self._hub.kill()
        self._tell("kill -9 of hub and governor")
        self._hub.start()
        after = self._place()
        for key in ("id", "state", "position", "submitted_at"):
            _same(f"{key} of rob's request", after[key], before[key])
        self._tell(
            f"{after['id']}: still {after['state']}, number {after['position']}, asked at "
            f"{after['submitted_at']}"
        )
        kept = self._pids()
        _same("servers that run on", {k: kept.get(k) for k in ("ann", "bob", "rita")},
              {k: running[k] for k in ("ann", "bob", "rita")})  # fmt: skip
        self._tell(
            f"servers run on untouched: {', '.join(f'{k} (pid {v})' for k, v in kept.items())}"
        )
        lease = self._borrower.governor("GET", f"leases/{self._noticed['id']}")
        if lease["state"] == "noticed":
            _same("end of the notice", lease["reclaim"]["step_ends_at"],
                  self._noticed["reclaim"]["step_ends_at"])  # fmt: skip
        self._tell(f"{lease['id']}: {lease['state']}, as it was promised")

    def returned(self) -> None:
        """After the notice the borrowed GPUs go back, and the owner's session starts by itself."""
        lease = active_lease(self._hub.patience, self._owner, self._returning, RETURN_WITHIN_S)
        old = self._borrower.governor("GET", f"leases/{self._noticed['id']}")
        _same("state of the borrowed lease", old["state"], "released")
        _same("basis of the owner's lease", lease["basis"], "guaranteed")
        same = {one["uuid"] for one in old["devices"]} & {one["uuid"] for one in lease["devices"]}
        self._tell(f"{old['id']}: {old['state']} at {old['released_at']}: {old['end_reason']}")
        self._tell(f"{_lease_line(lease)}; {len(same)} of them were ned's")
        self._owner.server("train")
        self._tell("her server answers")
        self._tell(_quota_line(self._owner.governor("GET", "me"), A100))

    def starts_by_itself(self) -> None:
        """Whoever waited longest starts by itself once there is room."""
        request = self._place()["id"]
        self._owner.governor("POST", f"leases/{self._returning_lease()}/release", {})
        self._tell("ann gives her 2 GPUs back")
        lease = active_lease(self._hub.patience, self._waiting, request, RETURN_WITHIN_S)
        self._tell(f"{_lease_line(lease)}, lent by {', '.join(lease['lenders'])}")
        version = self._waiting.server()["version"]
        self._tell(
            f"nobody asked for it a second time; his server answers: Jupyter Server {version}"
        )

    def audited(self) -> None:
        """All of it is in the audit trail, whose chain holds."""
        from allotment_hub.ledger import Ledger

        path = self._hub.setup.folder / "allotment.sqlite"
        with Ledger.open(f"sqlite:///{path}", create=False) as ledger:
            found = ledger.verify()
        if not found.holds:
            raise DemoError(f"the audit chain breaks: {found.detail}")
        self._tell(f"{found.rows} rows, complete and unchanged; head {found.head}")

    # -- looking -----------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        self._say(f"   {text}")

    def _place(self) -> Any:
        """The request that waits."""
        rows = self._waiting.governor("GET", "requests")["requests"]
        return _only([row for row in rows if row["state"] == "queued"], "request of rob that waits")

    def _returning_lease(self) -> str:
        rows = self._owner.governor("GET", "leases")["leases"]
        return str(next(row["id"] for row in rows if row["request"] == self._returning))

    def _pids(self) -> dict[str, int]:
        found = {}
        for name in ("ann", "bob", "rita"):
            found[name] = self._hub.server_process(name).pid
        return found


def _lease_line(lease: Any) -> str:
    devices = ", ".join(f"{one['uuid']} on {one['node']}" for one in lease["devices"])
    return (
        f"{lease['id']}: {lease['state']}, {lease['basis']}, policy version "
        f"{lease['policy_version']}: {devices}"
    )


def _quota_line(me: Any, flavor: str) -> str:
    """A tenant's use of a flavor against its quota."""
    tenant = me["tenants"][0]
    quota = next(row for row in tenant["quotas"] if row["flavor"] == flavor)
    return (
        f"{tenant['name']} uses {quota['used']:g} {flavor}: guarantee {quota['guarantee']:g}, "
        f"ceiling {quota['ceiling']:g}, borrowed {quota['borrowed']:g}, lent {quota['lent']:g}"
    )


def _only(rows: list[Any], what: str) -> Any:
    if len(rows) != 1:
        raise DemoError(f"{what}: one was wanted, found {len(rows)}")
    return rows[0]


def _same(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise DemoError(f"{what}: {wanted!r} was wanted, found {found!r}")
