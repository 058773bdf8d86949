"""Standing alone: a file says which token is whose.

.. code-block:: yaml

    tokens:
      sha256:9f86d081884c7d65…: {name: ann, groups: [vision]}
      a-token-of-at-least-16-characters: {name: root, groups: [gpu-admins], admin: true}

A key is the token itself or ``sha256:`` and its hash in hexadecimal. The file is read again when
it has changed, so a group that is taken away is gone with the next request.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from tornado.web import RequestHandler

from .auth import digest
from .identity import Identity

COOKIE = "allotment-login"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_SHORTEST = 16


class TokenFileError(ValueError):
    """The token file cannot be used; the message names the file and says what would be right."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=255)
    groups: list[str] = Field(default_factory=list, max_length=1000)
    admin: bool = False
    server: str | None = None


@dataclass(frozen=True)
class _Read:
    stamp: tuple[int, int, int]
    by_digest: Mapping[str, Identity]


def read_tokens(path: Path) -> dict[str, Identity]:
    """The identities of a token file by the hash of their token.

    Raises
    ------
    TokenFileError
        The file is missing, is not YAML, or says something else than it must.
    """
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokenFileError(f"{path}: cannot be read: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0] if str(error) else "not YAML"
        raise TokenFileError(f"{path}: is not a YAML file: {first}") from None
    if not isinstance(content, dict) or set(content) != {"tokens"}:
        raise TokenFileError(f"{path}: write one key 'tokens:' with a mapping of tokens below it")
    entries = content["tokens"]
    if not isinstance(entries, dict) or not entries:
        raise TokenFileError(f"{path}: tokens: write TOKEN: {{name: …, groups: […]}}, one a line")
    return dict(
        _entry(path, number, key, value) for number, (key, value) in enumerate(entries.items(), 1)
    )


def _entry(path: Path, number: int, key: Any, value: Any) -> tuple[str, Identity]:
    # The key is a secret: messages name its place, never itself.
    if not isinstance(key, str):
        raise TokenFileError(f"{path}: token {number}: put the token in quotes")
    if key.startswith("sha256:"):
        if not _HASH.fullmatch(key):
            raise TokenFileError(f"{path}: token {number}: sha256: takes 64 hexadecimal digits")
        name = key.removeprefix("sha256:")
    elif len(key) < _SHORTEST:
        raise TokenFileError(f"{path}: token {number}: use at least {_SHORTEST} characters")
    else:
        name = digest(key)
    try:
        entry = _Entry.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TokenFileError(f"{path}: token {number}: {where}: {first['msg']}") from None
    return name, Identity(
        name=entry.name,
        groups=frozenset(entry.groups),
        admin=entry.admin and entry.server is None,
        server=entry.server,
        credential=name,
    )


class TokenFileAuthenticator:
    """Tokens of a file, in the header or, for browsers, in a signed cookie set at ``/login``.

    Parameters
    ----------
    path : Path
    guest : str or None
        A name of the file as whom a request without credentials counts. For a demonstration
        behind somebody else's login only.
    """

    mode: Literal["hub", "standalone"] = "standalone"

    def __init__(self, path: Path, guest: str | None = None) -> None:
        self._path = path
        known = read_tokens(path)
        self._read = _Read(self._stamp(), known)
        self._guest = guest
        if guest is not None and self._named(guest) is None:
            raise TokenFileError(f"{path}: the guest {guest!r} has no token in it")

    def _stamp(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _identities(self) -> Mapping[str, Identity]:
        try:
            stamp = self._stamp()
            if stamp != self._read.stamp:
                self._read = _Read(stamp, read_tokens(self._path))
        except (OSError, TokenFileError):
            # Whoever was allowed may not be any more: nobody is, until the file reads again.
            return {}
        return self._read.by_digest

    def _named(self, name: str) -> Identity | None:
        return next(
            (i for i in self._identities().values() if i.name == name and not i.bound), None
        )

    def identity(self, token: str) -> Identity | None:
        """The identity of a token, compared in constant time."""
        asked = digest(token)
        found = None
        for known, identity in self._identities().items():
            if hmac.compare_digest(known, asked):
                found = identity
        return found

    def groups(self, user: str) -> tuple[str, ...] | None:
        """The groups of a user; None when the file does not know the name."""
        named = self._named(user)
        return None if named is None else tuple(sorted(named.groups))

    async def identify(self, handler: RequestHandler, *, fresh: bool) -> Identity | None:
        """See :class:`~.auth.Authenticator`."""
        header = handler.request.headers.get("Authorization", "")
        scheme, _, token = header.partition(" ")
        if scheme.lower() in ("token", "bearer") and token.strip():
            return self.identity(token.strip())
        cookie = handler.get_secure_cookie(COOKIE, max_age_days=1)
        found = self.identity(cookie.decode("utf-8", "replace")) if cookie else None
        if found is None and self._guest is not None:
            found = self._named(self._guest)
        if found is None:
            return None
        if handler.request.method not in ("GET", "HEAD", "OPTIONS"):
            handler.check_xsrf_cookie()
        return replace(found, via="cookie")

    async def recheck(self, identity: Identity) -> Identity | None:
        """See :class:`~.auth.Authenticator`."""
        found = self._identities().get(identity.credential)
        return None if found is None else replace(found, via=identity.via)

    def login_url(self, handler: RequestHandler) -> str | None:
        """See :class:`~.auth.Authenticator`."""
        return str(handler.settings["prefix"]) + "login"
