"""Kubernetes: KubeSpawner with its profiles as before, the governor in a pod of its own.

The part of a hub's configuration (``hub.extraConfig`` of the chart) that is about Allotment. The
two secrets come from the environment of both pods.
"""

import os

import allotment_hub

c = get_config()  # noqa: F821 (JupyterHub gives it)

c.KubeSpawner.profile_list = [
    {
        "display_name": "Small image",
        "kubespawner_override": {"image": "quay.io/jupyter/base-notebook"},
    },
    {
        "display_name": "PyTorch",
        "kubespawner_override": {"image": "quay.io/jupyter/pytorch-notebook"},
    },
]

allotment_hub.configure(
    c,
    spawner="kube",
    managed=False,
    url="http://allotment:10101",
    service_token=os.environ["ALLOTMENT_SERVICE_TOKEN"],
    gate_token=os.environ["ALLOTMENT_GATE_TOKEN"],
    admins=["group:gpu-admins"],
    # Where servers reach the governor: by the proxy, as everything else.
    allotment_url="http://proxy-public/services/allotment",
    # How each flavor of the policy is had on this cluster.
    flavors={
        "a100-80g": {
            "resource": "nvidia.com/gpu",
            "node_selector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
            ],
        },
        "a100-1g10": {"resource": "nvidia.com/mig-1g.10gb"},
    },
)
