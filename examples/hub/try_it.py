"""To try it on a laptop without a GPU: any user name, no password, GPUs that are only declared.

``jupyterhub -f try_it.py``; then log in as ann, bob or root. Not for anything but trying.
"""

from pathlib import Path

import allotment_hub

HERE = Path(__file__).parent
POLICIES = HERE / ".." / "policies"

c = get_config()  # noqa: F821 (JupyterHub gives it)

c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.allow_named_servers = True
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"root"}
c.JupyterHub.load_groups = {"vision": {"users": ["ann"]}, "nlp": {"users": ["bob"]}}
c.Spawner.cmd = ["jupyterhub-singleuser", "--allow-root"]

allotment_hub.configure(
    c,
    spawner="simple",
    policy=POLICIES / "small.yaml",
    inventory=POLICIES / "inventory.yaml",
)
