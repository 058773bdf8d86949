"""A whole governor in this process: real HTTP, real ledger, stand-ins only for what runs work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from allotment_hub.clock import Clock, ManualClock, SteadyClock
from allotment_hub.governor.actor import Pace
from allotment_hub.governor.governor import Governor
from allotment_hub.governor.life import FirstPolicy, Parts
from allotment_hub.governor.service import Service
from allotment_hub.inventory import DeclaredInventory
from allotment_hub.ledger import Ledger
from allotment_hub.policyfile import load_inventory, load_policy
from allotment_hub.runtime.standalone import StandaloneServers
from allotment_hub.web.application import make_app
from allotment_hub.web.auth import Authenticator
from allotment_hub.web.limits import Limits, Rate
from allotment_hub.web.site import Site
from allotment_hub.web.tokens import TokenFileAuthenticator

POLICY = """
version: 1
flavors:
  a100-80g: {model: "A100.*80GB", memory: 80GiB, rate: 12.5}
  l40s: {model: "L40S", memory: 48GiB, rate: 4}
tenants:
  vision:
    groups: [vision]
    owners: ["user:lin"]
    quotas:
      - {flavor: a100-80g, guarantee: 2, ceiling: 4, lend: 2}
      - {flavor: l40s, guarantee: 1, ceiling: 2}
    limits: {gpus_per_user: 4, queued_per_user: 5}
  nlp:
    groups: [nlp]
    quotas:
      - {flavor: a100-80g, guarantee: 2, ceiling: 4, lend: 2}
      - {flavor: l40s, guarantee: 1, ceiling: 2}
classes:
  notebook: {kind: interactive, priority: 100, interruptible: stateless, borrow: true,
             duration: {default: 4h, max: 12h}, claim_window: 10m}
  training: {kind: batch, priority: 50, interruptible: checkpoint, borrow: true}
  urgent: {kind: interactive, priority: 1000, borrow: true,
           approval: {by: ["group:gpu-admins"], valid_for: 72h, running_at_once: 1}}
borrowing: {term: 4h, renewals: 2, notice: 15m, protected: 30m}
"""

INVENTORY = """
- {node: n1, driver: "570.86", devices: [{model: "NVIDIA A100-SXM4-80GB", memory: 80GiB, count: 4}]}
- {node: n2, driver: "570.86", devices: [{model: "NVIDIA L40S", memory: 48GiB, count: 2}]}
"""

PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"groups": ["vision"]},
    "bob": {"groups": ["nlp"]},
    "lin": {"groups": ["vision"]},
    "root": {"groups": ["gpu-admins"], "admin": True},
    "eve": {"groups": ["nobody"]},
}
GATE_TOKEN = "gate-token-of-the-tests-0123456789"
PREFIX = "/services/allotment/"
BOUND = 20.0
"""Seconds within which what is waited for comes even on a busy machine."""


def token_of(name: str) -> str:
    return f"{name}-token-0123456789abcdef"


def write_tokens(path: Path, people: Mapping[str, Mapping[str, Any]] = PEOPLE) -> Path:
    lines = ["tokens:"]
    for name, what in people.items():
        groups = ", ".join(what.get("groups", ()))
        admin = ", admin: true" if what.get("admin") else ""
        lines.append(f"  {token_of(name)}: {{name: {name}, groups: [{groups}]{admin}}}")
        lines.append(
            f"  {token_of(name + '-server')}: {{name: {name}, groups: [{groups}], server: ''}}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


async def quick(milliseconds: int) -> None:
    """Waits for no time; what waits for long waits for ever, and is called by the tests."""
    if milliseconds >= 5_000:
        await asyncio.Event().wait()
    await asyncio.sleep(0)


FAST = Pace(
    starts=4, stops=4, first_look=5, last_look=10, agree_after=1, first_retry=1, last_retry=4
)


@dataclass
class World:
    """What a test has in its hands."""

    site: Site
    service: Service
    runtime: StandaloneServers
    inventory: list[DeclaredInventory]
    url: str
    server: HTTPServer
    clock: Clock | None
    clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)

    @property
    def governor(self) -> Governor:
        governor = self.service.governor
        assert governor is not None
        return governor

    @property
    def state(self) -> Any:
        return self.governor.state

    def client(self, who: str | None, **headers: str) -> httpx.AsyncClient:
        """A client with the token of a person (``ann``), of a server (``ann-server``), or none."""
        key = f"{who}{sorted(headers.items())}"
        if key not in self.clients:
            if who is not None:
                headers = {"Authorization": f"token {token_of(who)}", **headers}
            self.clients[key] = httpx.AsyncClient(
                base_url=self.url, headers=headers, timeout=BOUND, trust_env=False
            )
        return self.clients[key]

    def gate(self) -> httpx.AsyncClient:
        return self.client(None, Authorization=f"token {GATE_TOKEN}")

    async def call(
        self, who: str | None, method: str, path: str, body: Any = None, **more: Any
    ) -> Any:
        """One call of the API: its JSON, with ``status`` beside where it is a problem."""
        answer = await self.client(who).request(method, f"api/v1{path}", json=body, **more)
        return answer.json() if answer.content else None

    async def submit(self, who: str, gpus: float = 1, flavor: str = "a100-80g", **more: Any) -> Any:
        answer = await self.client(who).post(
            "api/v1/requests", json={"gpus": gpus, "flavor": flavor, **more}
        )
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def until(self, holds: Callable[[], Any], what: str = "") -> Any:
        """Wait until something holds, as long as a busy machine may take."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + BOUND
        while not (found := holds()):
            assert loop.time() < ends, f"did not come about: {what or holds}"
            await asyncio.sleep(0.005)
        return found

    async def active(self, request_id: str) -> Any:
        """The lease of a request once its server is up."""
        return await self.until(
            lambda: next(
                (
                    lease
                    for lease in self.state.leases.values()
                    if lease.request == request_id and lease.state == "active"
                ),
                None,
            ),
            f"request {request_id} active; {self.state.requests.get(request_id)}",
        )

    async def advance(self, milliseconds: int) -> None:
        """Let the manual clock go on and do what falls due."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(milliseconds)
        await self.governor.tick()


@contextlib.asynccontextmanager
async def governed(
    folder: Path,
    *,
    policy: str = POLICY,
    inventory: str = INVENTORY,
    people: Mapping[str, Mapping[str, Any]] = PEOPLE,
    clock: Clock | None = None,
    database: str | None = None,
    pace: Pace = FAST,
    authenticator: Authenticator | None = None,
    wait_for: str | None = "ready",
    runtime: StandaloneServers | None = None,
    pause: Any = quick,
    pages: Any = (),
    kinds: frozenset[str] = frozenset({"session", "job", "service"}),
    **site_settings: Any,
) -> AsyncIterator[World]:
    """Run a governor on a free port until the block ends."""
    tokens = write_tokens(folder / "tokens.yaml", people)
    known = authenticator or TokenFileAuthenticator(tokens)
    if runtime is None:
        runtime = StandaloneServers(start_after_ms=0, stop_after_ms=0)
    inventories: list[DeclaredInventory] = []

    def make_inventory(timeline: Clock, _known: Any) -> DeclaredInventory:
        inventories.append(DeclaredInventory(load_inventory(inventory), timeline.now_ms))
        return inventories[-1]

    address = database or f"sqlite:///{folder / 'ledger.sqlite'}"
    first = FirstPolicy(
        policy=load_policy(policy).policy, digest=str(hash(policy)), source="policy.yaml"
    )
    service = Service(
        Parts(
            open_ledger=lambda: Ledger.open(address),
            runtime=runtime,
            kinds=kinds,
            make_inventory=make_inventory,
            read_policy=lambda: first,
            clock=clock,
            pace=pace,
            pause=pause,
        )
    )
    runtime.lease_of = service.lease_of
    runtime.groups_of = lambda user: (
        tuple(people[user].get("groups", ())) if user in people else None
    )
    settings = {"limits": Limits(Rate(0, 1), Rate(0, 1)), "gate_token": GATE_TOKEN, **site_settings}
    site = Site(
        service=service,
        authenticator=known,
        uptime=clock or SteadyClock(),
        prefix=PREFIX,
        **settings,
    )
    server = HTTPServer(make_app(site, b"s" * 32, pages), xheaders=True)
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    port = sockets[0].getsockname()[1]
    running = asyncio.ensure_future(service.run())
    world = World(
        site, service, runtime, inventories, f"http://127.0.0.1:{port}{PREFIX}", server, clock
    )
    try:
        if wait_for is not None:
            await world.until(
                lambda: service.phase == wait_for,
                f"phase {wait_for}, is {service.phase} {service.detail}",
            )
        yield world
    finally:
        for client in world.clients.values():
            await client.aclose()
        service.begin_closing()
        server.stop()
        await asyncio.wait_for(running, BOUND)
        runtime.close()
        await server.close_all_connections()
