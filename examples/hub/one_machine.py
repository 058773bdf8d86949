"""One machine: local servers, the machine's own GPUs, one line for Allotment.

Run it from this folder: ``jupyterhub -f one_machine.py``. Users are system users.
"""

from pathlib import Path

import allotment_hub

HERE = Path(__file__).parent

c = get_config()  # noqa: F821 (JupyterHub gives it)

c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.allow_named_servers = True
c.Authenticator.admin_users = {"root"}
# Groups of the hub are what tenants are known by; an authenticator may fill them at login.
c.JupyterHub.load_groups = {"vision": {"users": ["ann"]}, "nlp": {"users": ["bob"]}}

allotment_hub.configure(c, spawner="local", policy=HERE / ".." / "policies" / "small.yaml")
