"""Random histories of a small pool: whatever happens in whatever order, the invariants hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide, next_due
from allotment_hub.domain.amounts import MINUTE
from allotment_hub.domain.inventory import Device, Node
from allotment_hub.domain.policy import (
    Borrowing,
    DurationRule,
    Flavor,
    Limits,
    Policy,
    Pool,
    Quota,
    Sharing,
    Tenant,
    WorkClass,
)
from allotment_hub.domain.state import State
from allotment_hub.simulate.invariants import Watch

TENANTS = ("vision", "nlp", "robotics")


def small_policy(random: Random) -> Policy:
    """A policy over three tenants and two flavors, with guarantees that fit the pool."""
    quotas: dict[str, list[Quota]] = {name: [] for name in TENANTS}
    for flavor, total in (("a100", 8), ("shared", 4)):
        left = total
        for name in TENANTS:
            guarantee = random.randint(0, min(4, left))
            left -= guarantee
            quotas[name].append(
                Quota(
                    flavor=flavor,
                    guarantee=guarantee * 1000,
                    ceiling=random.randint(guarantee, total) * 1000,
                    lend=random.randint(0, guarantee) * 1000,
                )
            )
    classes = {
        "notebook": WorkClass(priority=100, borrow=True, prepare_within=20 * MINUTE),
        "training": WorkClass(
            kind="batch",
            priority=50,
            interruptible="checkpoint",
            borrow=True,
            duration=DurationRule(default=120 * MINUTE, max=600 * MINUTE),
        ),
        "steady": WorkClass(kind="batch", priority=70, interruptible="no"),
    }
    return Policy(
        flavors={
            "a100": Flavor(model="A100"),
            "shared": Flavor(model="L40S", sharing=Sharing(mode="time-slice", share=250)),
        },
        pools={"default": Pool()},
        tenants={
            name: Tenant(
                groups=(name,),
                quotas=tuple(quotas[name]),
                limits=Limits(gpus_per_user=random.choice((None, 4000)), queued_per_user=20),
            )
            for name in TENANTS
        },
        classes=classes,
        borrowing=Borrowing(
            term=60 * MINUTE,
            renewals=1,
            notice=random.choice((0, 10 * MINUTE)),
            protected=random.choice((0, 30 * MINUTE)),
        ),
    )


def small_pool() -> list[Node]:
    """Eight whole devices on two nodes with two islands each, four shared ones on a third."""
    nodes = [
        Node(
            name=name,
            devices=tuple(
                Device(uuid=f"{name}-{i}", index=i, model="A100", memory=80 << 30, island=i // 2)
                for i in range(4)
            ),
        )
        for name in ("n1", "n2")
    ]
    shared = tuple(Device(uuid=f"n3-{i}", index=i, model="L40S", memory=48 << 30) for i in range(4))
    return [*nodes, Node(name="n3", devices=shared)]


@dataclass
class History:
    """One random history, checked after every step."""

    random: Random
    state: State = field(default_factory=State)
    watch: Watch = field(default_factory=Watch)
    now: int = 0
    made: int = 0

    def begin(self) -> None:
        commands.set_policy(self.state, 0, small_policy(self.random), "admin")
        commands.set_nodes(self.state, 0, small_pool())
        self.settle()

    def settle(self) -> None:
        decide(self.state, self.now)
        self.watch.follow(self.state.take_journal())

    def overlooked(self) -> list[str]:
        """What would be granted if every line were looked at again: nothing, when a state is at
        rest. The indices that spare a look must never spare one that matters."""
        again = self.state.fork()
        again.dirty = dict.fromkeys(again.queue)
        decide(again, self.now)
        return [event.record.id for event in again.journal if event.what == "lease.granted"]  # type: ignore[union-attr]  # a lease by its name

    def step(self) -> None:
        """Do one random thing, or let time pass to the next thing that is due."""
        choices = (
            self.submit, self.submit, self.submit, self.advance, self.advance, self.start,
            self.start, self.stop, self.stop, self.cancel, self.claim, self.renew, self.release,
            self.amend, self.device, self.policy, self.fail, self.pause, self.drain,
        )  # fmt: skip
        self.random.choice(choices)()
        self.settle()

    def run(self, steps: int) -> None:
        self.begin()
        for _ in range(steps):
            self.step()
        self.watch.compare(self.state, self.now)

    def attempt(self, action: object, *args: object, **kwargs: object) -> None:
        with suppress(commands.Refusal):
            action(self.state, self.now, *args, **kwargs)  # type: ignore[operator]  # a command

    def pick(self, things: object) -> object | None:
        listed = sorted(things)  # type: ignore[call-overload]  # ids
        return self.random.choice(listed) if listed else None

    def submit(self) -> None:
        self.made += 1
        tenant = self.random.choice(TENANTS)
        kind = self.random.choice(("session", "job"))
        flavor = self.random.choice(("a100", "a100", "shared"))
        gpus = self.random.choice((1, 1, 2, 4)) * (1000 if flavor == "a100" else 250)
        wants: dict[str, object] = {"gpus": gpus, "flavor": flavor}
        if kind == "job":
            wants["class"] = self.random.choice(("training", "steady"))
            if self.random.random() < 0.3 and flavor == "a100":
                wants["same_node"] = False
        elif self.random.random() < 0.5:
            wants["start"] = "always"
        if self.random.random() < 0.2 and flavor == "a100":
            wants["nvlink"] = True
        server = self.random.choice(("", "lab")) if kind == "session" else None
        user = f"{tenant}-{self.random.randint(1, 3)}"
        self.attempt(
            commands.submit, id=f"r{self.made}", kind=kind, user=user,
            groups=[tenant], wants=wants, server=server,
        )  # fmt: skip

    def advance(self) -> None:
        due = next_due(self.state, self.now)
        step = self.random.choice((1000, 5 * MINUTE, 45 * MINUTE))
        self.now = self.now + step if due is None or self.random.random() < 0.4 else due

    def start(self) -> None:
        for lease in commands.to_start(self.state, self.now)[:2]:
            self.attempt(commands.preparing, lease.id)
            if self.random.random() < 0.7:
                self.settle()
                self.attempt(commands.started, lease.id)

    def stop(self) -> None:
        for lease in commands.to_stop(self.state)[:2]:
            self.attempt(commands.gone, lease.id)

    def cancel(self) -> None:
        request = self.pick(self.state.requests)
        if request:
            self.attempt(commands.cancel, request, "user:x")

    def claim(self) -> None:
        request = self.pick(self.state.requests)
        if request:
            self.attempt(commands.claim, request, "user:x")

    def renew(self) -> None:
        lease = self.pick(self.state.leases)
        if lease:
            self.attempt(commands.renew, lease, "user:x")

    def release(self) -> None:
        lease = self.pick(self.state.leases)
        if lease:
            self.attempt(commands.release, lease, "user:x")

    def fail(self) -> None:
        lease = self.pick(self.state.leases)
        if lease and self.random.random() < 0.5:
            self.attempt(commands.start_failed, lease, "image", retry=self.random.random() < 0.5)

    def amend(self) -> None:
        request = self.pick(self.state.requests)
        if request:
            gpus = self.random.choice((1000, 2000, 250))
            self.attempt(commands.amend, request, {"gpus": gpus}, "user:x")

    def device(self) -> None:
        uuid = self.pick(self.state.places)
        if uuid:
            health = self.random.choice(("ok", "ok", "lost", "dirty"))
            self.attempt(commands.set_device, uuid, health)

    def drain(self) -> None:
        node = self.pick(self.state.nodes)
        if node:
            self.attempt(commands.drain, node, self.random.random() < 0.4, "admin")

    def pause(self) -> None:
        self.attempt(commands.switch, "paused", self.random.random() < 0.3, "admin")

    def policy(self) -> None:
        if self.random.random() < 0.3:
            self.attempt(commands.set_policy, small_policy(self.random), "admin")
