"""Shares a pool of GPUs among the tenants of a JupyterHub, by rule."""
