"""The acceptance kit: what somebody who chooses a platform wants to see, played and proved.

``catalogue`` says what is shown; ``running`` plays it on a declared pool in virtual time;
``records`` and ``redlines`` work out from the events alone what happened and what must never
happen; ``report`` and ``pictures`` make one page of it that needs nothing else. ``live`` does what
can be done over REST against a running governor.
"""
