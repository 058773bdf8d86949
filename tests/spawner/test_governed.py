"""The class factory."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner
from traitlets.config import Config

import allotment_hub.spawner as package
from allotment_hub.spawner import Governed, governed
from tests.support.boxes import BoxSpawner


def test_the_same_class_gives_the_same_class() -> None:
    made = governed(LocalProcessSpawner)
    assert made is governed(LocalProcessSpawner) is package.GovernedLocalProcessSpawner
    assert governed(made) is made
    assert made.__name__ == "GovernedLocalProcessSpawner"
    assert package.GovernedSimpleSpawner is governed(SimpleLocalProcessSpawner)


def test_the_class_is_found_by_its_name() -> None:
    made = governed(SimpleLocalProcessSpawner)
    assert pickle.loads(pickle.dumps(made)) is made  # noqa: S301 (our own bytes)


def test_two_classes_of_one_name_stay_two() -> None:
    first = governed(type("TwinSpawner", (BoxSpawner,), {}))
    second = governed(type("TwinSpawner", (BoxSpawner,), {}))
    assert first is not second
    assert first.__name__ == second.__name__ == "GovernedTwinSpawner"


def test_traits_of_both_are_configured_as_before() -> None:
    config = Config()
    config.SimpleLocalProcessSpawner.home_dir_template = "/homes/{username}"
    config.Spawner.http_timeout = 77
    config.Governed.gate_wait = 1.5
    config.GovernedSimpleLocalProcessSpawner.poll_limit = 4
    spawner: Any = governed(SimpleLocalProcessSpawner)(config=config)
    assert spawner.home_dir_template == "/homes/{username}"
    assert (spawner.http_timeout, spawner.gate_wait, spawner.poll_limit) == (77, 1.5, 4)


@pytest.mark.parametrize(
    "wrong",
    [object, "simple", None, SimpleLocalProcessSpawner.poll],
    ids=["class", "name", "nothing", "function"],
)
def test_what_is_no_spawner_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="takes a spawner class"):
        governed(wrong)


def test_governed_classes_are_spawners_of_both_kinds() -> None:
    made = package.GovernedKubeSpawner
    assert issubclass(made, Governed)
    assert made.__name__ == "GovernedKubeSpawner"
    with pytest.raises(AttributeError):
        package.GovernedNothing  # noqa: B018 (the access is the test)
