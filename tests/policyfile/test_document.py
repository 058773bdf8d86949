"""Text to plain values: YAML 1.2, bounded, with lines."""

from __future__ import annotations

import math

import pytest

from allotment_hub.policyfile.document import MAX_YAML_BYTES, DocumentError, read_document


def fault_of(text: str | bytes) -> str:
    with pytest.raises(DocumentError) as caught:
        read_document(text)
    return caught.value.problem.text("file")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("off", "off"), ("yes", "yes"), ("on", "on"), ("true", True),
        ("False", False), ("12", 12), ("012", 12), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000"),
        ("1e18", 1e18), (".5", 0.5), ("-.inf", -math.inf), ("~", None), ("", None), ("''", ""),
        ("2026-01-01", "2026-01-01"), ("12:30", "12:30"), ("'1'", "1"), ("4h", "4h"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_yaml_1_2_says(written: str, meant: object) -> None:
    assert read_document(f"a: {written}").data == {"a": meant}


def test_not_a_number_is_read_as_such_and_refused_later() -> None:
    assert math.isnan(read_document("a: .nan").data["a"])


def test_anchors_aliases_and_merge_keys_work() -> None:
    document = read_document("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: *x\nd: {<<: [*x]}\n")
    assert document.data["b"] == {"p": 1, "q": 3}
    assert document.data["c"] == document.data["d"] == {"p": 1, "q": 2}


def test_json_is_read_too_and_its_lines_are_found() -> None:
    document = read_document('{\n "a": 1,\n "b": [\n  2,\n  3]}')
    assert document.data == {"a": 1, "b": [2, 3]}
    assert document.line(("b", 1)) == 5


def test_a_line_is_that_of_the_key_or_of_the_nearest_part_around() -> None:
    document = read_document("a:\n  b:\n    - 1\n    - 2\n")
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "b", 1)) == 4
    assert document.line(("a", "missing", 3)) == 1


def test_a_part_keeps_its_lines() -> None:
    document = read_document("a:\n  b:\n    c: 1\n").at(("a", "b"))
    assert document.data == {"c": 1}
    assert document.line(("c",)) == 3
    assert document.has(("c",))
    assert not document.has(("d",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "file: is empty"),
        ("# nothing\n", "file: is empty"),
        ("a: 1\nb: 2\na: 3", "file:3: a: is given twice, first on line 1; keep one"),
        ('{"a": 1,\n"a": 2}', "file:2: a: is given twice, first on line 1; keep one"),
        ("a: !secret x", "file:1: a: uses the tag '!secret'; tags are not supported"),
        ("a: !!python/object/apply:os.system [x]", "tags are not supported"),
        ("a: *x", "file:1: a: refers to *x, which is not anchored before"),
        ("a: &a [*a]", "refers to *a"),
        ("1: x", "has the key 1, which is not text; write it as '1'"),
        ("? [1]\n: x", "has a key that is not text"),
        ("a: 1\n---\nb: 1", "file:2: holds a second document"),
        ("a: b: c", "file:1: is not YAML: mapping values are not allowed here"),
        ("a:\n\t- 1", "file:2: is not YAML"),
        ("a: 'x", "is not YAML: while scanning a quoted scalar"),
        ("a: \x00", "is not YAML: unacceptable character"),
        (b"a: 1\nb: \xff", "file:2: is not UTF-8 text; save the file as UTF-8"),
        ("- <<: 1", "merges something with << that is not a mapping"),
        ("a: " + "x" * 10_001, "is a text of 10,001 characters; at most 10,000 are read"),
        ("[" * 100, "is nested deeper than 40 levels"),
        ('{"a":' * 100_000, "is nested deeper than 40 levels"),
        ("a: " + "1 " * MAX_YAML_BYTES, "is larger than 1 MiB of YAML"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str | bytes, words: str) -> None:
    assert words in fault_of(text)


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert "holds more than 200,000 values" in fault_of("\n".join(lines))
