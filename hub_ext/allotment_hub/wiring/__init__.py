"""One line in ``jupyterhub_config.py`` that wires everything.

.. code-block:: python

    import allotment_hub
    allotment_hub.configure(c, spawner="simple", policy="policy.yaml")

Each part can also be set by hand; what is set here and where is listed in :func:`configure`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jupyterhub
from traitlets.config import Config

import allotment_hub.spawner
from allotment_hub.gateapi import SERVICE, TOKEN_ENV

from .lists import ConfigureError, append
from .roles import ADMIN_SCOPE, add_roles
from .service import (
    add_service,
    check_files,
    existing_file,
    governor_address,
    ledger_url,
    serve_command,
    shared_secret,
)
from .spawners import ACCESS, check_traits, server_scopes, spawner_class

__all__ = ["ACCESS", "ADMIN_SCOPE", "TEMPLATES", "ConfigureError", "configure"]

TEMPLATES = Path(allotment_hub.spawner.__file__).parent / "templates"


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
    made = spawner_class(spawner)
    check_traits(made, traits)
    if managed and policy is None:
        raise ConfigureError("policy: give the path of the policy file")
    policy_path = None if policy is None else existing_file(policy, "policy")
    inventory_path = None if inventory is None else existing_file(inventory, "inventory")
    check_files(policy_path, inventory_path)
    address = governor_address(url, port)
    where = ledger_url(c, database)
    token = shared_secret(gate_token, where)

    c.JupyterHub.spawner_class = made
    section = c[made.__name__]
    section.governor_url = address
    section.gate_token = token
    for name, value in traits.items():
        section[name] = value
    server_scopes(c, made)
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
            command or serve_command(policy_path, inventory_path, where, arguments)
        )
        service["environment"] = {**(environment or {}), TOKEN_ENV: token}
        if jupyterhub.version_info[0] >= 6:
            service["timeout"] = 60  # seconds to open its port; the hub exits after that
    elif service_token is None or url is None:
        raise ConfigureError("managed=False needs url=… and service_token=… of the governor")
    add_service(c, service)
    add_roles(c, admins)
    append(c.JupyterHub, "template_paths", str(TEMPLATES), first=True)
    return made
