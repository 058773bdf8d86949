from __future__ import annotations

from typing import Any

import pytest

from allotment_hub.simulate.match import (
    Mismatch,
    Moment,
    PatternError,
    check_pattern,
    matches,
    mismatches,
)

AT_FORTY = Moment("2026-01-05T00:40:00.000Z", 40 * 60_000)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({}, {"a": 1}),
        ({"a": {"b": None}}, {"a": {"b": None, "c": 1}}),
        ([1], [3, 2, 1]),
        ([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1, "b": 0}]),
        ([], [1, 2]),
        ({"==": [1, 2]}, [1, 2]),
        ({"==": []}, []),
        ({"==": [{"a": 1}]}, [{"a": 1, "b": 2}]),
        ({"==": {"vision": 2}}, {"vision": 2}),
        ({">=": 2}, 2),
        ({"<=": 2, ">": 0.5}, 1),
        ({"in": ["granted", "parked"]}, "parked"),
        ({"in": [{"a": 1}, 3]}, {"a": 1, "b": 1}),
        ({"match": "^exit code \\d+$"}, "exit code 137"),
        ({"not": {"state": "queued"}}, {"state": "done"}),
        ({"a": {"not": 1}}, {}),
        ({"not": None}, "x"),
        (2, 2.0),
        ("240m", "4h"),
        ("40m", AT_FORTY),
        (2400, AT_FORTY),
        ("2026-01-05T00:40:00Z", AT_FORTY),
        ("2026-01-05T01:40:00+01:00", AT_FORTY),
        ({"<": "41m", ">": "39m"}, AT_FORTY),
        ({">=": "2026-01-05T00:00:00Z"}, AT_FORTY),
    ],
)
def test_matches(pattern: Any, found: Any) -> None:
    assert matches(pattern, found)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": None}, {}),
        ({"a": 1}, None),
        ([1], []),
        ([{"a": 1}], [{"a": 2}]),
        ({"==": [1, 2]}, [2, 1]),
        ({"==": []}, [1]),
        ({"==": {}}, {"a": 1}),
        (1, True),
        (True, 1),
        (0, None),
        (0, False),
        ("1", 1),
        ({">=": 1}, None),
        ({">=": 1}, "queued"),
        ({"<": 5}, True),
        ({"in": ["a"]}, "b"),
        ({"match": "x"}, 3),
        ({"not": {"state": "queued"}}, {"state": "queued"}),
        ("41m", AT_FORTY),
        ("2026-01-05T00:41:00Z", AT_FORTY),
        ({"<": "40m"}, AT_FORTY),
    ],
)
def test_does_not_match(pattern: Any, found: Any) -> None:
    assert not matches(pattern, found)


def test_a_mismatch_names_its_path_and_both_sides() -> None:
    found = {"quotas": [{"used": 1}], "name": "vision"}
    pattern = {"name": "vision", "quotas": [{"used": {">=": 2}}]}
    assert mismatches(pattern, found) == [
        Mismatch("quotas[0]", {"used": {">=": 2}}, [{"used": 1}]),
    ]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ({"a": {"=>": 1}}, "unknown operator '=>'"),
        ({"a": {">=": 1, "b": 2}}, "stands beside keys"),
        ({"in": 3}, "takes a list"),
        ({"match": "("}, "no regular expression"),
        ({"match": "a" * 501}, "500 characters"),
        ([{"x": {"~": 1}}], "unknown operator"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: Any, said: str) -> None:
    with pytest.raises(PatternError, match=said.replace("(", "\\(")):
        check_pattern(pattern)
