"""Pictures of what happened: who held which GPU when, and who waited, as one drawing in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .records import Bar, Records
from .running import span
from .words import plain, saying

WIDTH, LEFT, RIGHT = 960, 112, 12
ROW, GAP, TOP, AXIS = 20, 4, 8, 26
STEPS = (1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
"""Minutes between two marks of the time axis."""

NARROW = 46
"""Width below which a bar carries no text."""


def colours(records: Records) -> dict[str, int]:
    """A colour number for each team, in the order of the rules."""
    names = [name for version in records.versions for name in version.policy.tenants]
    return {name: number % 6 for number, name in enumerate(dict.fromkeys(names))}


def timeline(records: Records, title: str, acts: Sequence[tuple[int, str]] = ()) -> str:
    """Draw one item: people on top, devices of the nodes that were used, then the line.

    ``acts`` are things that happened to the pool: milliseconds from the beginning, and what.
    """
    nodes = {bar.row.split("/")[0] for bar in records.held}
    devices = [row for row in records.devices if row.split("/")[0] in nodes]
    waiting = list(dict.fromkeys(bar.row for bar in records.waits))
    rows = {row: place for place, row in enumerate(["people", *devices, *waiting])}
    height = TOP + len(rows) * (ROW + GAP) + (GAP * 3 if waiting else 0) + AXIS
    drawing = _Drawing(records, rows, len(devices) + 1, height)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="picture">',
        f"<title>{escape(title)}</title>",
        *drawing.axis(),
        *(drawing.name(row) for row in rows),
        *(drawing.bar(bar) for bar in records.held if bar.row in rows),
        *(drawing.bar(bar, "wait") for bar in records.waits),
        *(drawing.act(at, text) for at, text in acts),
        *drawing.people(),
        "</svg>",
    ]
    return "".join(parts)


class _Drawing:
    """Where things are on the paper."""

    def __init__(self, records: Records, rows: dict[str, int], above: int, height: int) -> None:
        self.records, self.rows, self.above, self.height = records, rows, above, height
        self.colour = colours(records)
        self.length = max(1, records.ends - records.begins)

    def x(self, at: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - self.records.begins) / self.length

    def y(self, row: str) -> int:
        place = self.rows[row]
        return TOP + place * (ROW + GAP) + (GAP * 3 if place >= self.above else 0)

    def axis(self) -> list[str]:
        minutes = self.length / 60_000
        step = next((one for one in STEPS if minutes / one <= 10), STEPS[-1]) * 60_000
        marks = []
        for at in range(0, self.length + 1, step):
            x = self.x(self.records.begins + at)
            foot = self.height - AXIS
            marks.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}"/>')
            if x > WIDTH - 40:
                continue
            marks.append(
                f'<text class="tick" x="{x:.1f}" y="{self.height - 9}" '
                f'text-anchor="middle">{span(at)}</text>'
            )
        return marks

    def name(self, row: str) -> str:
        return (
            f'<text class="rowname" x="{LEFT - 8}" y="{self.y(row) + 14}" text-anchor="end">'
            f"{escape(row[:16])}</text>"
        )

    def bar(self, bar: Bar, style: str = "hold") -> str:
        x, y = self.x(bar.begins), self.y(bar.row)
        width = max(1.5, self.x(bar.ends) - x)
        classes = " ".join([
            style, f"t{self.colour[bar.tenant]}" if bar.tenant in self.colour else "none",
            bar.kind.replace("out of service", "out") if style == "hold" else "",
        ]).strip()  # fmt: skip
        text = bar.label if style == "hold" else plain(bar.kind)
        what = f"{bar.label}: {plain(bar.kind)}, {self._when(bar)}"
        label = ""
        if width > max(NARROW, 6.6 * len(text) + 8):
            label = f'<text class="inside" x="{x + 5:.1f}" y="{y + 14}">{escape(text)}</text>'
        return (
            f'<g class="{escape(classes)}"><title>{escape(what)}</title>'
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" rx="3"/>{label}</g>'
        )

    def _when(self, bar: Bar) -> str:
        begins = self.records.begins
        return f"from {span(bar.begins - begins)} to {span(bar.ends - begins)}"

    def act(self, at: int, text: str) -> str:
        """A broken line where something happened to the pool."""
        x = self.x(self.records.begins + at)
        return (
            f'<g class="event"><title>{escape(span(at))}: {escape(text)}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{self.height - AXIS}"/></g>'
        )

    def people(self) -> list[str]:
        """A dot for each thing that a person did."""
        y = self.y("people") + ROW // 2
        dots = []
        for event in self.records.human:
            who = event.actor.removeprefix("user:")
            at = span(event.at - self.records.begins)
            what = f"{at}, by {who}: {saying(event)}"
            dots.append(
                f'<circle class="act" cx="{self.x(event.at):.1f}" cy="{y}" r="4.5">'
                f"<title>{escape(what)}</title></circle>"
            )
        return dots


def legend(teams: Sequence[str]) -> str:
    """What the colours and patterns mean."""
    keys = [(f"t{n % 6} active", name) for n, name in enumerate(teams)]
    keys += [
        ("t0 active borrowed", "borrowed (broken edge)"), ("t0 preparing", "being prepared"),
        ("t0 noticed", "was given notice (amber edge)"), ("t0 stopping", "stopping"),
        ("none out", "out of service"),
    ]  # fmt: skip
    shown = [
        f'<span class="key"><svg width="26" height="16" aria-hidden="true"><g class="hold {style}">'
        f'<rect x="1" y="1" width="24" height="14" rx="3"/></g></svg> {escape(text)}</span>'
        for style, text in keys
    ]
    shown.append(
        '<span class="key"><svg width="26" height="16" aria-hidden="true"><g class="wait t0">'
        '<rect x="1" y="1" width="24" height="14" rx="3"/></g></svg> waits, with the reason</span>'
    )
    shown.append(
        '<span class="key"><svg width="14" height="16" aria-hidden="true">'
        '<circle class="act" cx="7" cy="8" r="4.5"/></svg> a person did something</span>'
    )
    shown.append(
        '<span class="key"><svg width="10" height="16" aria-hidden="true"><g class="event">'
        '<line x1="5" x2="5" y1="0" y2="16"/></g></svg> something happened to the pool</span>'
    )
    return f'<p class="legend">{"".join(shown)}</p>'
