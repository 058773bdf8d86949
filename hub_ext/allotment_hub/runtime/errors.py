"""What can go wrong between the governor and what runs the work.

::

    RuntimeFault
    ├── Unreachable    no answer, or a 5xx: try again later; nothing is known meanwhile
    ├── Busy           the backend is in the middle of something with it: try again in a moment
    └── Refused        the backend understood and says no: trying again does not help
"""

from __future__ import annotations


class RuntimeFault(Exception):
    """Base of all errors of this package. The message is plain text for people."""


class Unreachable(RuntimeFault):
    """The backend does not answer. Says nothing about what runs there."""


class Busy(RuntimeFault):
    """The backend answers, but cannot do it just now, such as start what is still stopping."""


class Refused(RuntimeFault):
    """The backend says no, and why."""
