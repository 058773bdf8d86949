"""Traces: what is read, and how what is wrong in them is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from allotment_hub.policyfile import load_policy
from allotment_hub.simulate.traces import TraceError, load_trace, read_trace

DATA = Path(__file__).parents[1] / "data" / "traces"
POLICY = load_policy(DATA / "policy.yaml").policy
HEADER = "submit_s,duration_s,gpus,tenant"


def faults(*rows: str, header: str = HEADER) -> list[str]:
    with pytest.raises(TraceError) as caught:
        read_trace([header + "\n", *(row + "\n" for row in rows)], "t.csv", POLICY)
    return str(caught.value).splitlines()


def test_a_trace_of_four_columns_is_read() -> None:
    [job] = read_trace([HEADER + "\n", "1.5,60,2,vision\n"], "t.csv", POLICY)
    assert (job.submit, job.duration, job.gpus, job.tenant) == (1500, 60_000, 2000, "vision")


def test_every_optional_column_is_read() -> None:
    columns = f"{HEADER},id,user,class,flavor,declared_s,interruptible,cpus,memory_mib,kind"
    row = "0,60,0.5,nlp,a,ann,training,a100,90,no,1.5,2,job"
    [job] = read_trace([columns + "\n", row + "\n"], "t.csv", POLICY)
    assert (job.id, job.user, job.class_, job.flavor) == ("a", "ann", "training", "a100")
    assert (job.declared, job.interruptible, job.kind) == (90_000, "no", "job")
    assert (job.cpus, job.memory) == (1500, 2 << 20)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("0,-1,1,vision",), "t.csv:2: duration_s: is '-1'"),
        (("-3,1,1,vision",), "t.csv:2: submit_s: is '-3'"),
        (("0,1,-1,vision",), "t.csv:2: gpus: "),
        (("0,1,nan,vision",), "t.csv:2: gpus: "),
        (("0,1,0,vision",), "t.csv:2: gpus: is zero"),
        (("0,0,1,vision",), "t.csv:2: duration_s: is zero"),
        (("0,1,1,physics",), "t.csv:2: tenant: 'physics' is not in the policy"),
        (("5,1,1,vision", "4,1,1,vision"), "t.csv:3: submit_s: is 4, before the row above it"),
        (("0,1,1",), "t.csv:2: has 3 columns, the header has 4"),
        (("0,1e5,1,vision",), "t.csv:2: duration_s: is '1e5'"),
    ],
    ids=[
        "negative duration", "negative time", "negative GPUs", "no number", "no GPUs",
        "no duration", "unknown tenant", "unsorted", "cut off", "exponent",
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_by_its_line(rows: tuple[str, ...], said: str) -> None:
    assert any(line.startswith(said) for line in faults(*rows)), faults(*rows)


def test_missing_columns_are_all_named() -> None:
    found = faults("0,1", header="submit_s,gpus")
    assert [line.split(": ")[1] for line in found] == ["duration_s", "tenant"]


def test_an_unknown_column_is_refused_with_the_nearest_one() -> None:
    [line] = faults("0,1,1,vision,x", header=f"{HEADER},clas")
    assert line == "t.csv:1: clas: is not a column of a trace; did you mean class?"


def test_an_id_that_is_there_twice_names_both_lines() -> None:
    [line] = faults("0,1,1,vision,a", "1,1,1,nlp,a", header=f"{HEADER},id")
    assert line == "t.csv:3: id: 'a' is also that of line 2"


def test_a_class_of_another_kind_is_refused() -> None:
    [line] = faults("0,1,1,vision,notebook,job", header=f"{HEADER},class,kind")
    assert line.startswith("t.csv:2: class: 'notebook' is ")


def test_all_faults_are_named_at_once_but_not_thousands() -> None:
    assert len(faults(*["0,-1,1,vision"] * 3)) == 3
    assert len(faults(*["0,-1,1,vision"] * 500)) == 21


def test_an_empty_file_says_what_is_right() -> None:
    with pytest.raises(TraceError, match="has no header; write submit_s,duration_s,gpus,tenant"):
        read_trace([], "t.csv", POLICY)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"submit_s,\xff\xfe")
    with pytest.raises(TraceError, match="is not UTF-8"):
        load_trace(path, POLICY)


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n0,1,1,vision\n".encode()))
    assert len(load_trace(path, POLICY)) == 1


def test_rows_without_ids_are_named_alike_in_any_order() -> None:
    rows = ["0,1,1,vision\n", "0,2,1,nlp\n", "0,1,4,vision\n"]
    one = read_trace([HEADER + "\n", *rows], "t.csv", POLICY)
    other = read_trace([HEADER + "\n", *reversed(rows)], "t.csv", POLICY)
    assert [(j.id, j.tenant, j.gpus) for j in one] == [(j.id, j.tenant, j.gpus) for j in other]
