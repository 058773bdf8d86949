"""One line in ``jupyterhub_config.py`` that wires everything.

.. code-block:: python

    import allotment_hub
    allotment_hub.configure(c, spawner="simple", policy="policy.yaml")

Each part can also be set by hand; what is set here and where is listed in :func:`configure`.
"""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jupyterhub
from jupyterhub.spawner import Spawner
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from allotment_hub.gateapi import SERVICE, TOKEN_ENV

from .spawner import Governed, governed

ADMIN_SCOPE = "custom:allotment:admin"
ACCESS = f"access:services!service={SERVICE}"
SERVER_SCOPES = ("access:servers!server", "users:activity!user", ACCESS)
TEMPLATES = Path(__file__).parent / "spawner" / "templates"
TOKEN_FILE = "allotment_gate_token"  # noqa: S105 (a file's name, not a secret)
SHORT_NAMES = {"local": "LocalProcessSpawner", "simple": "SimpleLocalProcessSpawner"}


class ConfigureError(ValueError):
    """What was given to :func:`configure` cannot be; the message says what would be right."""


def configure(
    c: Config,
    *,
    spawner: type | str = "local",
    policy: str | os.PathLike[str] | None = None,
    database: str | None = None,
    inventory: str | os.PathLike[str] | None = None,
    port: int = 10101,
    admins: Iterable[str] | None = None,
    managed: bool = True,
    url: str | None = None,
    gate_token: str | None = None,
    service_token: str | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    **traits: Any,
) -> type:
    """Wire Allotment into a JupyterHub.

    Parameters
    ----------
    c : Config
        The ``c`` of ``jupyterhub_config.py``.
    spawner : type or str
        The spawner to be governed: a class, ``"local"``, ``"simple"``, ``"kube"``, the name of
        an entry point of ``jupyterhub.spawners``, or ``"module.Class"``. All its own
        configuration (``c.KubeSpawner.…``) stays in force.
    policy : path
        The policy file, put in force when it has changed; read and checked here too. None where
        the governor runs by itself and has it.
    database : str or None
        SQLAlchemy URL of the ledger; None is ``sqlite:///allotment.sqlite`` beside the hub's.
    inventory : path or None
        A declared inventory; None reads the GPUs of this machine.
    port : int
        Loopback port of the governor, 1024 to 65535.
    admins : iterable of str or None
        ``"user:NAME"`` and ``"group:NAME"`` who administer the pool; None is whom the
        configuration so far makes an admin of the hub.
    managed : bool
        Let the hub start the governor and keep it running. Where it runs by itself (another
        container), give ``url`` and ``service_token``.
    url : str or None
        Where the hub reaches the governor; None is ``http://127.0.0.1:PORT``.
    gate_token : str or None
        The secret between hub and governor; None takes the environment variable
        ``ALLOTMENT_GATE_TOKEN``, else a file beside the database that is made once.
    service_token : str or None
        The service's API token; None lets the hub make one.
    arguments : sequence of str
        Further arguments of ``allotment-hub serve``.
    environment : mapping or None
        Further environment of the managed governor.
    command : sequence of str or None
        Replaces the whole command of the managed governor.
    **traits
        Traits of :class:`allotment_hub.spawner.Governed`, such as ``gate_wait=2``.

    Returns
    -------
    type
        The governed spawner class, as set in ``c.JupyterHub.spawner_class``.

    Raises
    ------
    ConfigureError

    Notes
    -----
    Sets ``spawner_class``; adds the service ``allotment``, the roles ``allotment-service`` and
    (for ``admins``) ``allotment-admin``, the scope ``custom:allotment:admin``, the access of all
    users to the service, one entry of ``template_paths``; fills ``server_token_scopes`` of the
    governed class. Lists that are there already are added to, never replaced. Set
    ``c.JupyterHub.services``, ``load_roles`` and the like *before* this call, or add to them.
    """
    if not isinstance(c, Config):
        raise ConfigureError("the first argument is the `c` of jupyterhub_config.py")
    made = _spawner_class(spawner)
    _check_traits(made, traits)
    if managed and policy is None:
        raise ConfigureError("policy: give the path of the policy file")
    policy_path = None if policy is None else _file(policy, "policy")
    inventory_path = None if inventory is None else _file(inventory, "inventory")
    _check_files(policy_path, inventory_path)
    address = _address(url, port)
    where = _database(c, database)
    token = _gate_token(gate_token, where)

    c.JupyterHub.spawner_class = made
    section = c[made.__name__]
    section.governor_url = address
    section.gate_token = token
    for name, value in traits.items():
        section[name] = value
    _server_scopes(c, made)
    service: dict[str, Any] = {
        "name": SERVICE,
        "url": address,
        "display": True,
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": [ADMIN_SCOPE],
    }
    if service_token is not None:
        service["api_token"] = service_token
    if managed:
        service["command"] = list(
            command or _command(policy_path, inventory_path, where, arguments)
        )
        service["environment"] = {**(environment or {}), TOKEN_ENV: token}
        if jupyterhub.version_info[0] >= 6:
            service["timeout"] = 60  # seconds to open its port; the hub exits after that
    elif service_token is None or url is None:
        raise ConfigureError("managed=False needs url=… and service_token=… of the governor")
    _add_service(c, service)
    _add_roles(c, admins)
    _append(c.JupyterHub, "template_paths", str(TEMPLATES), first=True)
    return made


# -- the spawner -----------------------------------------------------------------------------


def _spawner_class(spawner: type | str) -> type:
    found: Any = spawner
    if isinstance(spawner, str):
        found = _named(spawner)
    try:
        return governed(found)
    except TypeError as error:
        raise ConfigureError(f"spawner: {error}") from None


def _named(name: str) -> Any:
    if name in SHORT_NAMES:
        return getattr(jupyterhub.spawner, SHORT_NAMES[name])
    if name in ("kube", "kubespawner"):
        name = "kubespawner.KubeSpawner"
    for entry in entry_points(group="jupyterhub.spawners"):
        if entry.name == name:
            return entry.load()
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(__import__(module, fromlist=[attribute]), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        known = sorted(entry.name for entry in entry_points(group="jupyterhub.spawners"))
        raise ConfigureError(
            f"spawner: {name!r} is not found ({error}); give a class, 'module.Class', or one of "
            f"{', '.join([*SHORT_NAMES, 'kube', *known])}"
        ) from None


def _check_traits(made: type, traits: Mapping[str, Any]) -> None:
    ours = Governed.class_traits(config=True)
    known = made.class_traits(config=True)  # type: ignore[attr-defined]  # made by traitlets' metaclass
    for name in traits:
        if name not in known:
            raise ConfigureError(
                f"{name!r} is no setting of {made.__name__}; Allotment's own are "
                f"{', '.join(sorted(ours))}"
            )


def _server_scopes(c: Config, made: type) -> None:
    """Complete the scopes of servers' tokens: a value replaces the hub's default altogether."""
    for name in [cls.__name__ for cls in made.__mro__ if issubclass(cls, Spawner | Governed)]:
        if "server_token_scopes" in c.get(name, {}):
            value = c[name].server_token_scopes
            if isinstance(value, LazyConfigValue):
                value = value.get_value([])
            if callable(value):
                warnings.warn(
                    f"c.{name}.server_token_scopes is a function: it has to return {ACCESS} too, "
                    "or users' servers cannot reach Allotment",
                    stacklevel=3,
                )
                return
            c[name].server_token_scopes = list(dict.fromkeys([*value, *SERVER_SCOPES]))
            return
    c[made.__name__].server_token_scopes = list(SERVER_SCOPES)


# -- the service -----------------------------------------------------------------------------


def _file(path: str | os.PathLike[str], what: str) -> Path:
    try:
        found = Path(path).expanduser().absolute()
    except TypeError:
        raise ConfigureError(f"{what}: give the path of a file, not {path!r}") from None
    if not found.is_file():
        raise ConfigureError(f"{what}: there is no file {found}")
    return found


def _check_files(policy: Path | None, inventory: Path | None) -> None:
    from allotment_hub.policyfile import PolicyError, load_inventory, load_policy
    from allotment_hub.policyfile.problems import FileError

    try:
        nodes = None if inventory is None else load_inventory(inventory)
        if policy is not None:
            load_policy(policy, inventory=nodes)
    except PolicyError as error:
        raise ConfigureError(f"policy: {error}") from None
    except FileError as error:
        raise ConfigureError(f"inventory: {error}") from None


def _address(url: str | None, port: Any) -> str:
    if not isinstance(port, int) or isinstance(port, bool) or not 1024 <= port <= 65535:
        raise ConfigureError(f"port: {port!r} is not a port; give a number from 1024 to 65535")
    if url is None:
        return f"http://127.0.0.1:{port}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ConfigureError(f"url: {url!r} has to be http(s)://HOST:PORT without a path")
    return url.rstrip("/")


def _database(c: Config, database: str | None) -> str:
    if database is None:
        return f"sqlite:///{Path.cwd() / 'allotment.sqlite'}"
    if "://" not in database:
        raise ConfigureError(
            f"database: {database!r} is no database URL; write sqlite:////path/to/file or "
            "postgresql://user@host/name"
        )
    return database


def _gate_token(given: str | None, database: str) -> str:
    """Find the shared secret; it outlives the hub, as a governor may, which still knows it."""
    token = given or os.environ.get(TOKEN_ENV, "")
    if token:
        if len(token) < 16:
            raise ConfigureError("gate_token: use at least 16 characters")
        return token
    folder = Path.cwd()
    if database.startswith("sqlite:///"):
        folder = Path(database.removeprefix("sqlite:///")).absolute().parent
    path = folder / TOKEN_FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise ConfigureError(
            f"{path}: the gate's secret cannot be kept there ({error.strerror}); "
            f"give gate_token=… or set {TOKEN_ENV}"
        ) from None
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32))
    return _read_token(path)


def _read_token(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ConfigureError(f"{path}: others can read the gate's secret; chmod 600 it")
    token = path.read_text(encoding="ascii").strip()
    if len(token) < 16:
        raise ConfigureError(f"{path}: too short for a secret; delete it to have a new one made")
    return token


def _command(
    policy: Path | None, inventory: Path | None, database: str, arguments: Sequence[str]
) -> list[str]:
    command = [sys.executable, "-m", "allotment_hub.cli", "serve", "--db", database]
    if policy is not None:
        command += ["--policy", str(policy)]
    if inventory is not None:
        command += ["--inventory", str(inventory)]
    return [*command, *arguments]


def _add_service(c: Config, service: dict[str, Any]) -> None:
    for other in _listed(c.JupyterHub, "services"):
        if other.get("name") == SERVICE:
            raise ConfigureError(
                f"there is a service {SERVICE!r} in c.JupyterHub.services already; "
                "configure() is called once"
            )
    _append(c.JupyterHub, "services", service)


# -- roles -----------------------------------------------------------------------------------


def service_scopes() -> list[str]:
    """Return the smallest set of scopes with which the governor can do its work."""
    start = "start:servers" if jupyterhub.version_info[0] >= 6 else "servers"
    return ["list:users", "read:users:groups", "read:servers", start, "delete:servers"]


def _add_roles(c: Config, admins: Iterable[str] | None) -> None:
    scopes = dict(c.JupyterHub.get("custom_scopes", {}))
    scopes[ADMIN_SCOPE] = {"description": "Administer the shared GPUs: policy, leases, nodes."}
    c.JupyterHub.custom_scopes = scopes
    _append(
        c.JupyterHub,
        "load_roles",
        {"name": "allotment-service", "scopes": service_scopes(), "services": [SERVICE]},
    )
    _extend_role(c, "user", [ACCESS])
    users, groups = _hub_admins(c) if admins is None else _people(admins)
    role = {"name": "allotment-admin", "scopes": [ADMIN_SCOPE], "users": users, "groups": groups}
    _append(c.JupyterHub, "load_roles", role)


def _people(admins: Iterable[str]) -> tuple[list[str], list[str]]:
    if isinstance(admins, str):
        raise ConfigureError("admins: give a list such as ['user:ann', 'group:gpu-admins']")
    users: list[str] = []
    groups: list[str] = []
    for name in admins:
        kind, _, rest = str(name).partition(":")
        if kind not in ("user", "group") or not rest:
            raise ConfigureError(f"admins: {name!r} has to be 'user:NAME' or 'group:NAME'")
        (users if kind == "user" else groups).append(rest)
    return users, groups


def _hub_admins(c: Config) -> tuple[list[str], list[str]]:
    """Find whom the configuration so far makes an admin: that role itself cannot be extended."""
    users: set[str] = set()
    groups: set[str] = set()
    for section in list(c.values()):
        if isinstance(section, Config) and "admin_users" in section:
            value = section.admin_users
            users |= set(value.get_value(set()) if isinstance(value, LazyConfigValue) else value)
    for role in _listed(c.JupyterHub, "load_roles"):
        if role.get("name") == "admin":
            users |= set(role.get("users", ()))
            groups |= set(role.get("groups", ()))
    if not users and not groups:
        warnings.warn(
            "nobody administers the shared GPUs: set c.Authenticator.admin_users before "
            "allotment_hub.configure(), or give it admins=['user:…', 'group:…']",
            stacklevel=4,
        )
    return sorted(users), sorted(groups)


def _extend_role(c: Config, name: str, scopes: list[str]) -> None:
    """Add scopes to one of the hub's own roles, as configured so far or else by default."""
    roles = _listed(c.JupyterHub, "load_roles")
    for role in roles:
        if role.get("name") == name:
            have = role.get("scopes", _default_scopes(name))
            role["scopes"] = list(dict.fromkeys([*have, *scopes]))
            c.JupyterHub.load_roles = roles
            return
    extra = c.JupyterHub.get("extra_user_scopes")
    if isinstance(extra, LazyConfigValue):
        extra = extra.get_value(set())
    if name == "user" and jupyterhub.version_info[0] >= 6:
        # Redefining the role would switch this setting off for whoever uses it.
        c.JupyterHub.extra_user_scopes = {*(extra or ()), *scopes}
        return
    _append(c.JupyterHub, "load_roles", {"name": name, "scopes": [*_default_scopes(name), *scopes]})


def _default_scopes(name: str) -> list[str]:
    from jupyterhub.roles import get_default_roles

    return next(list(role["scopes"]) for role in get_default_roles() if role["name"] == name)


def _listed(section: Config, name: str) -> list[Any]:
    value = section.get(name, [])
    if isinstance(value, LazyConfigValue):
        value = value.get_value([])
    return list(value)


def _append(section: Config, name: str, value: Any, *, first: bool = False) -> None:
    there = _listed(section, name)
    section[name] = [value, *there] if first else [*there, value]
