"""The demonstration hub. The part that a hub of your own needs is the last statement."""

import json
from pathlib import Path

import allotment_hub

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - JupyterHub gives it
here = Path(__file__).parent
settings = json.loads((here / "settings.json").read_text(encoding="utf-8"))

# An ordinary small hub: one machine, one shared password, servers as processes.
c.JupyterHub.bind_url = settings["url"]
c.JupyterHub.hub_bind_url = settings["hub_url"]
c.JupyterHub.db_url = f"sqlite:///{here / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(here / "jupyterhub_cookie_secret")
c.JupyterHub.allow_named_servers = True
c.JupyterHub.default_url = "/services/allotment/"  # whoever logs in sees the GPUs first
c.ConfigurableHTTPProxy.command = settings["proxy_command"]
c.ConfigurableHTTPProxy.api_url = settings["proxy_api_url"]
c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
c.ConfigurableHTTPProxy.pid_file = str(here / "proxy.pid")
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = settings["password"]
c.SharedPasswordAuthenticator.admin_password = settings["admin_password"]
c.Authenticator.allowed_users = set(settings["users"])
c.Authenticator.admin_users = set(settings["admins"])
c.JupyterHub.load_groups = settings["groups"]
c.SimpleLocalProcessSpawner.home_dir_template = f"{here}/homes/{{username}}"
c.Spawner.cmd = settings["server_command"]
c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", settings["mark"]]
c.Spawner.environment = {"JUPYTER_CONFIG_DIR": str(here / "jupyter")}
c.Spawner.http_timeout = 120
c.Spawner.start_timeout = 120

# What the demonstration itself does in the names of its users goes through this token.
c.JupyterHub.services = [{"name": "demo", "api_token": settings["demo_token"]}]
c.JupyterHub.load_roles = [
    {
        "name": "demo",
        "services": ["demo"],
        "scopes": ["admin:users", "admin:servers", "tokens", "access:services", "access:servers"],
    }
]

allotment_hub.configure(
    c,
    spawner="simple",
    policy=here / "policy.yaml",
    inventory=here / "inventory.yaml",
    database=f"sqlite:///{here / 'allotment.sqlite'}",
    port=settings["governor_port"],
    environment={settings["mark"]: settings["mark_value"]},
)
