"""A random part of a trace: the same one for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from .traces import Job


def sample(jobs: Sequence[Job], share: float, seed: int) -> list[Job]:
    """Keep each job with the chance ``share`` (0 to 1), in their order.

    >>> [job.id for job in sample([Job(id=str(i), submit=i, duration=1, gpus=1, tenant="a")
    ...                            for i in range(6)], 0.5, 1)]
    ['0', '3', '4', '5']
    """
    if share >= 1:
        return list(jobs)
    chance = Random(seed)  # noqa: S311 - a sample, not a secret
    return [job for job in jobs if chance.random() < share]
