"""The public trace formats: made-up files of the same form, and the real ones where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from allotment_hub.simulate.traces import TraceError
from allotment_hub.simulate.traces_public import (
    fgd_jobs,
    helios_jobs,
    kueue_jobs,
    load_fgd_nodes,
    load_fgd_pods,
    load_helios,
    load_helios_quotas,
    load_kueue,
    load_philly,
    philly_clusters,
)
from tests.support.paths import traces_dir

DATA = Path(__file__).parents[1] / "data" / "traces" / "public"


@pytest.fixture
def public() -> Path:
    folder = traces_dir()
    if folder is None:
        pytest.skip("no public traces here: name their folder in ALLOTMENT_TRACES")
    return folder


def test_philly_is_sorted_and_counts_from_its_first_submission() -> None:
    jobs = load_philly(DATA / "philly.csv", philly_clusters(DATA / "philly_vc_nodes.csv"))
    assert jobs
    assert jobs[0].submit == 0
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
    assert {job.tenant for job in jobs} <= {"aa", "bb"}


def test_helios_gives_its_demand_again() -> None:
    jobs = helios_jobs(load_helios(DATA / "helios_changes.csv"))
    at_minute_6 = [j for j in jobs if j.submit <= 6 * 60_000 < j.submit + j.duration]
    assert sum(job.gpus for job in at_minute_6 if job.tenant == "red") == 12_000
    assert sum(job.gpus for job in at_minute_6 if job.tenant == "blue") == 12_000


def test_helios_quotas_leave_the_total_out() -> None:
    assert load_helios_quotas(DATA / "helios_quotas.csv")["2020-05-02"] == {"red": 8, "blue": 16}


def test_fgd_gives_nodes_pods_and_jobs_with_gpus() -> None:
    nodes = load_fgd_nodes(DATA / "fgd_nodes.csv")
    assert [(node.name, len(node.devices), node.cpus) for node in nodes] == [
        ("node-0", 2, 64_000), ("node-1", 8, 96_000),
    ]  # fmt: skip
    jobs = fgd_jobs(load_fgd_pods(DATA / "fgd_pods.csv"), "all")
    assert [(job.id, job.gpus) for job in jobs] == [
        ("pod-0", 1000), ("pod-1", 460), ("pod-3", 8000),
    ]  # fmt: skip


def test_kueue_makes_the_workloads_of_its_generator() -> None:
    queues = load_kueue(DATA / "kueue.yaml")
    assert len(queues) == 4
    assert {queue.cohort for queue in queues} == {"cohort-0", "cohort-1"}
    assert len(kueue_jobs(queues)) == 4 * (3 + 2)


def test_a_broken_value_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,duration,num_gpus,cluster\n2020-01-01 00:00:00,x,1,aa\n")
    with pytest.raises(TraceError, match=r"philly\.csv:2: duration: is 'x'"):
        load_philly(path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,num_gpus,cluster\n")
    with pytest.raises(TraceError, match="duration: is missing"):
        load_philly(path)


def test_the_real_philly_trace_has_the_jobs_it_is_known_for(public: Path) -> None:
    folder = public / "philly_pollux"
    jobs = load_philly(
        folder / "philly.csv.gz", philly_clusters(folder / "philly_vc_nodes.csv"),
        "2017-10-01 00:00:00", "2017-12-01 00:00:00",
    )  # fmt: skip
    assert len(jobs) == 68_503


def test_the_real_generator_makes_fifteen_thousand_workloads(public: Path) -> None:
    jobs = kueue_jobs(load_kueue(public / "kueue_perf" / "baseline_generator.yaml"))
    assert len(jobs) == 15_000
