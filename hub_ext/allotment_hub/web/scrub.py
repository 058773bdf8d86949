"""Keeps secrets out of logs: whatever is logged passes here last."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

_PATTERNS = (
    (re.compile(r"(?i)\b(token|bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}"), r"\1\2[…]"),
    (
        re.compile(r"(?i)\b(_xsrf|token|access_token|code|state|password|secret)(=)[^&\s'\",;)]+"),
        r"\1\2[…]",
    ),
    (re.compile(r"(?i)\b(set-cookie|cookie|authorization)(['\"]?\s*[:=]\s*).+"), r"\1\2[…]"),
    (re.compile(r"(?i)\b(postgresql(?:\+\w+)?://[^:@/\s]+:)[^@/\s]+@"), r"\1[…]@"),
)


class Scrubber(logging.Filter):
    """Rewrites records that hold what looks like a secret, or is one that we know.

    Parameters
    ----------
    secrets : iterable of str
        The process's own secrets; short ones are left out, since they would match by chance.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secret for secret in secrets if len(secret) >= 8)

    def clean(self, text: str) -> str:
        """The text without secrets.

        >>> Scrubber().clean("Authorization: token 0123456789abcdef")
        'Authorization: […]'
        >>> Scrubber(["hunter2hunter2"]).clean("it is hunter2hunter2")
        'it is […]'
        """
        for secret in self._secrets:
            text = text.replace(secret, "[…]")
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean a record in place; every record passes."""
        try:
            message = record.getMessage()
        except Exception:
            message = str(record.msg)  # a record that cannot be formatted is shown as it is
        record.msg, record.args = self.clean(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self.clean(record.exc_text)
        return True
