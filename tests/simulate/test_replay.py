"""The replay: the real decisions on recorded demand, the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_hub.cli import main
from allotment_hub.policyfile import load_inventory, load_policy
from allotment_hub.simulate.replay import Line, Options, Outcome, replay
from allotment_hub.simulate.report import summary
from allotment_hub.simulate.traces import Job, load_trace

DATA = Path(__file__).parents[1] / "data" / "traces"
POLICY = load_policy(DATA / "policy.yaml").policy
NODES = load_inventory(DATA / "inventory.yaml", POLICY)
HOUR = 3_600_000


def job(name: str, submit: int, hours: float, gpus: int, tenant: str, **more: Any) -> Job:
    """A job of so many hours, asked for at a minute."""
    return Job(
        id=name, submit=submit * 60_000, duration=int(hours * HOUR), gpus=gpus * 1000,
        tenant=tenant, **more,
    )  # fmt: skip


def play(*jobs: Job, **options: Any) -> tuple[Outcome, list[Line]]:
    log: list[Line] = []
    outcome = replay(POLICY, NODES, jobs, Options(check=True, **options), log.append)
    assert outcome.violations == []
    return outcome, log


def lines(log: list[Line], what: str) -> list[Line]:
    return [line for line in log if line["what"] == what]


def test_a_job_starts_at_once_and_ends_when_it_really_did() -> None:
    outcome, log = play(job("a", 5, 2, 1, "vision"))
    run = outcome.account.runs["a"]
    assert (run.wait, run.end, run.ended_at) == (0, "finished", 5 * 60_000 + 2 * HOUR)
    assert [line["rule"] for line in lines(log, "start")] == ["guarantee:vision/default/a100"]


def test_a_borrower_is_taken_back_keeps_its_progress_and_waits_again() -> None:
    # nlp borrows what vision leaves idle; vision asks for all of its own after two hours.
    jobs = [job(f"n{i}", 0, 5, 4, "nlp") for i in range(3)]
    jobs += [job(f"v{i}", 120, 1, 4, "vision") for i in range(2)]
    outcome, log = play(*jobs)
    assert {(end["why"], end["then"]) for end in lines(log, "end")} == {("return", "waits again")}
    evicted = [run for run in outcome.account.runs.values() if run.evictions]
    assert len(evicted) == 2
    assert {run.end for run in evicted} == {"finished"}
    assert outcome.account.lost == 0
    # 5 h of work, none of it twice, and about an hour of waiting.
    assert all(run.ended_at is not None and run.ended_at < 6.5 * HOUR for run in evicted)


def test_restarting_from_zero_loses_the_work() -> None:
    jobs = [job(f"n{i}", 0, 5, 4, "nlp") for i in range(3)]
    jobs += [job(f"v{i}", 120, 1, 4, "vision") for i in range(2)]
    outcome, _ = play(*jobs, restart_from_zero=True)
    assert outcome.account.lost == 2 * 4000 * (2 * HOUR + 10 * 60_000)


def test_without_reclaim_nothing_is_taken_back() -> None:
    jobs = [job(f"n{i}", 0, 3, 4, "nlp") for i in range(3)]
    jobs += [job(f"v{i}", 60, 1, 4, "vision") for i in range(2)]
    outcome, _ = play(*jobs, reclaim=False)
    assert outcome.account.evictions == 0
    assert outcome.account.runs["v1"].wait == 2 * HOUR


def test_a_holder_renews_while_there_is_work_left() -> None:
    # A borrowed term is 4 h, and it may be renewed twice.
    outcome, _ = play(*[job(f"n{i}", 0, 11, 4, "nlp") for i in range(2)])
    assert {run.end for run in outcome.account.runs.values()} == {"finished"}


def test_work_that_declared_too_little_is_ended_at_its_term() -> None:
    outcome, _ = play(job("n", 0, 400, 4, "nlp", declared=HOUR))
    assert outcome.account.runs["n"].end == "term"


def test_what_can_never_start_is_rejected_and_said() -> None:
    outcome, log = play(job("r", 0, 1, 12, "robotics"))
    assert outcome.account.runs["r"].end == "rejected"
    assert lines(log, "reject")[0]["code"] == "CeilingReached"


def test_who_was_passed_is_told() -> None:
    jobs = [job("v1", 0, 3, 4, "vision"), job("n1", 0, 3, 4, "nlp"), job("r1", 0, 3, 4, "robotics")]
    jobs += [job(f"s{i}", 1, 5, 1, "vision") for i in range(3)]
    jobs += [job("wide", 2, 1, 4, "vision"), job("small", 3, 1, 1, "vision")]
    _, log = play(*jobs)
    passing = [line for line in lines(log, "start") if line["passed"]]
    assert [(line["request"], line["passed"]) for line in passing] == [("small", ["wide"])]


def test_the_wait_inside_the_guarantee_is_told_apart() -> None:
    jobs = [job(f"n{i}", 0, 5, 4, "nlp") for i in range(3)]
    jobs += [job(f"v{i}", 120, 1, 4, "vision") for i in range(2)]
    outcome, _ = play(*jobs)
    figures = summary(outcome.account, 1.0)
    by_tenant = figures["by_tenant"]
    # Notice is 10 m, and the protected period was over long before.
    assert by_tenant["vision"]["in_guarantee_wait_s"]["max"] == 600
    assert by_tenant["nlp"]["in_guarantee_wait_s"]["max"] == 0


def test_the_figures_add_up() -> None:
    outcome = replay(POLICY, NODES, load_trace(DATA / "demand.csv", POLICY))
    figures = summary(outcome.account, 1.0)
    runs = outcome.account.runs.values()
    assert figures["jobs"] == 300
    assert figures["jobs"] == figures["started"] + figures["rejected"] + figures["never_started"]
    done = sum(r.job.gpus * r.job.duration for r in runs if r.end == "finished")
    assert figures["allocated_gpu_s"] * 1_000_000 >= done
    for group in ("by_tenant", "by_class", "by_shape"):
        assert sum(part["jobs"] for part in figures[group].values()) == 300


def command(tmp_path: Path, name: str, *more: str, trace: Path = DATA / "demand.csv") -> int:
    return main([
        "simulate", "--policy", str(DATA / "policy.yaml"), "--inventory",
        str(DATA / "inventory.yaml"), "--trace", str(trace), "--out", str(tmp_path / name), *more,
    ])  # fmt: skip


def written(folder: Path) -> tuple[bytes, dict[str, Any]]:
    figures = json.loads((folder / "summary.json").read_text())
    for name in ("wall_s", "events_per_s"):  # the only ones that a clock decides
        del figures[name]
    return (folder / "decisions.jsonl").read_bytes(), figures


@pytest.mark.parametrize("placement", ["best-fit", "fragmentation-gradient"])
def test_two_runs_give_the_same_bytes(tmp_path: Path, placement: str) -> None:
    for name in ("one", "two"):
        assert command(tmp_path, name, "--placement", placement, "--sample", "0.5") == 0
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert written(tmp_path / "one")[0]


def test_rows_of_one_moment_may_come_in_any_order(tmp_path: Path) -> None:
    header, *rows = (DATA / "demand.csv").read_text().splitlines()
    rows = [f"{int(row.split(',')[0]) // 3600 * 3600},{row.split(',', 1)[1]}" for row in rows]
    for name in ("one", "two"):
        Random(name).shuffle(rows)
        rows.sort(key=lambda row: int(row.split(",")[0]))
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([header, *rows]) + "\n")
        assert command(tmp_path, name, trace=path) == 0
    assert written(tmp_path / "one") == written(tmp_path / "two")


def test_the_summary_has_every_key_of_the_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "out", "--json", "--seed", "3", "--no-reclaim") == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) >= {
        "jobs", "started", "finished", "rejected", "never_started", "wait_s", "by_tenant",
        "by_class", "by_shape", "utilisation", "allocation", "borrowed_gpu_s", "evictions",
        "lost_gpu_s", "in_guarantee_wait_s", "wall_s", "decisions", "events_per_s",
    }  # fmt: skip
    assert list(figures["wait_s"]) == ["mean", "p50", "p95", "p99", "max"]
    assert figures["evictions"] == 0


def test_a_wrong_trace_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("submit_s,duration_s,gpus,tenant\n0,1,1,physics\n")
    assert command(tmp_path, "out", trace=path) == 2
    assert f"{path}:2: tenant: 'physics'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    assert command(tmp_path, "out") == 2
    assert "cannot be written" in capsys.readouterr().err


TENANTS = st.sampled_from(["vision", "nlp", "robotics"])
JOBS = st.lists(
    st.builds(
        dict,
        submit=st.integers(0, 3000),
        hours=st.sampled_from([0.1, 1.0, 3.0, 9.0]),
        gpus=st.sampled_from([1, 1, 2, 4]),
        tenant=TENANTS,
        kind=st.sampled_from(["job", "session"]),
        interruptible=st.sampled_from([None, "no"]),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(rows=JOBS, placement=st.sampled_from(["best-fit", "fragmentation-gradient"]))
def test_in_every_history_each_admissible_request_starts(
    rows: list[dict[str, Any]], placement: str
) -> None:
    jobs = [job(f"j{number:02d}", **row) for number, row in enumerate(rows)]
    outcome, log = play(*jobs, placement=placement)
    runs = outcome.account.runs.values()
    assert all(run.first_start is not None or run.end == "rejected" for run in runs)
    again: list[Line] = []
    replay(POLICY, NODES, reversed(jobs), Options(placement=placement), again.append)  # type: ignore[arg-type]  # drawn from its two values
    assert log == again
