"""Build hook: puts the built JupyterLab extension, which git ignores, into distributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatch_jupyter_builder.utils import npm_builder
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LABEXTENSION = "server_ext/allotment/labextension"
INSTALLED_AS = "share/jupyter/labextensions/jupyter-allotment"


class LabExtensionHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling ships no config type
    """Builds the extension where it is missing and adds it to what is distributed.

    A wheel carries it where JupyterLab looks, an sdist where it lies, so that a wheel built from
    the sdist needs no Node either.

    An editable install leaves it alone, so that work on the Python side needs no Node; `make setup`
    links the extension's folder into the environment instead.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run before a wheel or sdist is put together.

        Parameters
        ----------
        version : str
            "standard" or "editable".
        build_data : dict
            What hatchling puts into the distribution; changed in place.

        Raises
        ------
        FileNotFoundError
            When the build left no extension behind.
        """
        if version == "editable":
            return
        package = Path(self.root, LABEXTENSION, "package.json")
        if not package.exists():
            npm_builder(
                self.target_name, version, path=self.root, build_cmd="build:prod", npm=["npm"]
            )
        if not package.exists():
            raise FileNotFoundError(f"{package}: `npm run build:prod` did not make it")
        if self.target_name == "sdist":
            build_data["force_include"][LABEXTENSION] = LABEXTENSION
        elif self.target_name == "wheel":
            build_data["shared_data"][LABEXTENSION] = INSTALLED_AS
            build_data["shared_data"]["labext/install.json"] = f"{INSTALLED_AS}/install.json"
