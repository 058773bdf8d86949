"""Which names and expressions a policy may hold."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME = 64
MAX_PRINCIPAL = 255
MAX_PATTERN = 200
MAX_OPEN_REPEATS = 4

RESERVED = frozenset({"unassigned"})
"""Names that the product gives to something else."""

_NAME_MARKS = frozenset("-_.+ ")
_NAME_KINDS = frozenset("LMN")  # letters, combining marks and digits of every script


def name_fault(name: str) -> str | None:
    """Why a name of a tenant, pool, flavor or class is refused; None where it is fine.

    Letters and digits of every script are fine, and ``-``, ``_``, ``.``, ``+`` and single spaces
    between them; at most 64 characters, in the composed form (NFC), so that two names that look
    the same are the same.

    >>> name_fault("a100-80g"), name_fault("Größe"), name_fault("视觉")
    (None, None, None)
    >>> name_fault("a/b")
    "holds '/'; write letters, digits, '-', '_', '.', '+' and single spaces between them"
    """
    if not name:
        return "is an empty name; write at least one letter or digit"
    if len(name) > MAX_NAME:
        return f"is a name of {len(name):,} characters; at most {MAX_NAME} are allowed"
    if name.casefold() in RESERVED:
        return "is a name kept for what belongs to nobody; choose another"
    for character in name:
        if character not in _NAME_MARKS and unicodedata.category(character)[0] not in _NAME_KINDS:
            seen = f"'{character}'" if character.isprintable() else ascii(character)
            right = "write letters, digits, '-', '_', '.', '+' and single spaces between them"
            return f"holds {seen}; {right}"
    if unicodedata.category(name[0])[0] not in "LN" or name[-1] == " " or "  " in name:
        return "does not start with a letter or digit, or has a space too many"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in the composed form of Unicode (NFC); type it again"
    return None


def text_fault(text: str, *, most: int = MAX_PRINCIPAL) -> str | None:
    """Why a name that others gave (a user, a group, a label) cannot be meant; None where it can."""
    if not text.strip() or text != text.strip():
        return "is empty or has spaces around it"
    if len(text) > most:
        return f"is {len(text):,} characters long; at most {most} are allowed"
    if not text.isprintable():
        return "holds control characters"
    return None


def principal_fault(text: str) -> str | None:
    """Why ``user:NAME`` or ``group:NAME`` cannot be read; None where it can.

    >>> principal_fault("group:vision-leads") is None
    True
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("user", "group"):
        return "names nobody; write user:NAME or group:NAME"
    return text_fault(name)


_QUANTIFIED_GROUP = re.compile(r"\)[*+{]")
_OPEN_REPEAT = re.compile(r"[*+]|\{[0-9]*,\}")
_REFERENCE = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


def pattern_fault(pattern: str) -> str | None:
    """Why a regular expression is refused; None where it is fine.

    Beyond what does not compile, this refuses what could take very long on a chosen text:
    repeated groups, back references, and more than four open repeats. A model name needs none.

    >>> pattern_fault("A100.*80GB") is None, pattern_fault("(a+)+$") is None
    (True, False)
    """
    if not pattern:
        return "is empty; write '.' for any model"
    if len(pattern) > MAX_PATTERN:
        return f"is {len(pattern):,} characters long; at most {MAX_PATTERN} are allowed"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}; write one such as A100.*80GB"
    bare = re.sub(r"\\[^1-9]|\[\^?\]?[^\]]*\]", "x", pattern)
    if _QUANTIFIED_GROUP.search(bare) or _REFERENCE.search(bare):
        return "repeats a group or refers back to one, which can take for ever; write A|B instead"
    if len(_OPEN_REPEAT.findall(bare)) > MAX_OPEN_REPEATS:
        return f"has more than {MAX_OPEN_REPEATS} open repeats such as .*; write fewer"
    return None
