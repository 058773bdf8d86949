"""Steady time goes on whatever happens to the wall clock, the machine or the governor."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment_hub.clock import (
    MACHINE,
    Anchor,
    ManualClock,
    Sources,
    SteadyClock,
    parse_time,
    show_time,
)

HOUR = 3_600_000
START = 1_800_000_000_000


@dataclass
class Machine:
    """The clocks of a machine that the test turns by hand."""

    boottime: int = 50_000
    asleep: int = 0
    wall: int = START
    boot: str = "boot-1"
    sources: Sources = field(init=False)

    def __post_init__(self) -> None:
        self.sources = Sources(
            boottime=lambda: self.boottime,
            monotonic=lambda: self.boottime - self.asleep,
            wall=lambda: self.wall,
            boot_id=lambda: self.boot,
        )

    def run(self, milliseconds: int) -> None:
        self.boottime += milliseconds
        self.wall += milliseconds

    def sleep(self, milliseconds: int) -> None:
        self.run(milliseconds)
        self.asleep += milliseconds

    def reboot(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.boottime, self.asleep, self.boot = 1_000, 0, self.boot + "+"

    def clock(self, anchor: Anchor | None = None, floor: int = 0) -> SteadyClock:
        return SteadyClock(anchor, floor=floor, sources=self.sources)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, -30 * 365 * 24 * HOUR])
def test_setting_the_wall_clock_moves_no_term_but_the_time_shown_time_02(jump: int) -> None:
    machine = Machine()
    clock = machine.clock()
    ends = clock.now_ms() + 4 * HOUR
    machine.run(HOUR)
    machine.wall += jump
    assert ends - clock.now_ms() == 3 * HOUR
    assert ends + clock.offset_ms() == machine.wall + 3 * HOUR
    assert clock.observe().wall_jump == jump
    assert clock.observe().wall_jump == 0


def test_noise_of_reading_does_not_make_a_shown_time_flicker() -> None:
    machine = Machine()
    clock = machine.clock()
    offset = clock.offset_ms()
    machine.wall += 3
    assert clock.offset_ms() == offset
    machine.wall += 500
    assert clock.offset_ms() == offset + 503


def test_a_suspend_counts_as_time_and_is_seen_time_07() -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now_ms()
    machine.run(1_000)
    machine.sleep(8 * HOUR)
    assert clock.now_ms() == before + 8 * HOUR + 1_000
    seen = clock.observe()
    assert (seen.elapsed, seen.suspended, seen.wall_jump) == (8 * HOUR + 1_000, 8 * HOUR, 0)


def test_a_restart_within_one_boot_knows_exactly_how_long_it_was_away() -> None:
    machine = Machine()
    clock = machine.clock()
    anchor, before = clock.anchor(), clock.now_ms()
    machine.run(90_000)
    machine.wall -= 5 * HOUR  # set while nobody looked
    again = machine.clock(Anchor.load(anchor.dump()))
    assert again.now_ms() == before + 90_000
    assert again.restart_exact


@pytest.mark.parametrize(("away", "counted"), [(10 * 60_000, 10 * 60_000), (-HOUR, 0)])
def test_over_a_reboot_the_wall_clock_has_to_do_but_never_backwards(
    away: int, counted: int
) -> None:
    machine = Machine()
    clock = machine.clock()
    anchor, before = clock.anchor(), clock.now_ms()
    machine.reboot(away)
    again = machine.clock(anchor)
    assert again.now_ms() == before + counted
    assert not again.restart_exact


def test_the_timeline_goes_on_behind_the_last_event_even_without_an_anchor() -> None:
    machine = Machine(wall=1_000)
    assert machine.clock(floor=START).now_ms() == START


@given(st.lists(st.tuples(st.sampled_from(["run", "sleep", "reboot", "wall", "restart", "back"]),
                          st.integers(0, 10**9)), max_size=30))  # fmt: skip
def test_steady_time_never_goes_back(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    clock = machine.clock()
    last = clock.now_ms()
    for step, amount in steps:
        if step == "wall":
            machine.wall -= amount
        elif step == "back":
            machine.boottime -= min(amount, 40)  # what no machine should do
        elif step == "restart":
            clock = machine.clock(clock.anchor(), floor=last)
        else:
            getattr(machine, step)(amount)
            if step == "reboot":
                clock = machine.clock(None if amount % 2 else clock.anchor(), floor=last)
        assert clock.now_ms() >= last
        last = clock.now_ms()


def test_the_clocks_of_this_machine_can_be_read() -> None:
    clock = SteadyClock()
    assert clock.anchor().boot_id == MACHINE.boot_id()
    assert abs(clock.now_ms() + clock.offset_ms() - MACHINE.wall()) < 60_000


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"boot_id": "", "boottime": 1.5}', "null"])
def test_a_broken_anchor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a clock anchor"):
        Anchor.load(text)


def test_a_manual_clock_refuses_to_go_back() -> None:
    clock = ManualClock(100)
    with pytest.raises(ValueError, match="never goes back"):
        clock.move_to(99)


SAME = [
    "2018-07-16T18:29:41", "2018-07-16T18:29:41Z", "2018-07-16T20:29:41+02:00",
    "2018-07-16T18:29:41.000", "2018-07-16T18:29:41.920000", "2018-07-16T18:29:41.920Z",
    "2018-07-16T13:59:41.123-0430", "2018-07-16 18:29:41z", " 2018-07-16t18:29:41+00:00 ",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_times_with_and_without_zone_and_decimals_are_the_same_second_time_01(text: str) -> None:
    assert parse_time(text) // 1000 == 1531765781


BAD_TIMES = [
    "", "yesterday", "2018-07-16", "2018-13-01T00:00:00Z", "2018-02-30T00:00:00Z",
    "2018-07-16T25:00:00Z", "2018-07-16T18:29:41+99:00", "1531765781", "2018-07-16T18:29:41Zjunk",
    "0000-01-01T00:00:00Z", "２０１８-07-16T18:29:41Z",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_TIMES)
def test_what_is_not_a_time_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="write a time as 2026-03-29T02:30:00Z"):
        parse_time(text)


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_shown_is_read_back(wall: int) -> None:
    assert parse_time(show_time(wall)) == wall


def test_a_leap_second_is_the_start_of_the_next_minute() -> None:
    assert parse_time("2016-12-31T23:59:60Z") == parse_time("2017-01-01T00:00:00Z")
