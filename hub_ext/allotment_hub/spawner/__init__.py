"""Lays the gate over any JupyterHub spawner.

>>> from jupyterhub.spawner import SimpleLocalProcessSpawner
>>> governed(SimpleLocalProcessSpawner).__name__
'GovernedSimpleLocalProcessSpawner'

``GovernedLocalProcessSpawner``, ``GovernedSimpleLocalProcessSpawner`` and, where KubeSpawner is
installed, ``GovernedKubeSpawner`` are made when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner, Spawner

from .mixin import Governed

if TYPE_CHECKING:
    GovernedKubeSpawner: Any
    GovernedLocalProcessSpawner: Any
    GovernedSimpleLocalProcessSpawner: Any
    GovernedSimpleSpawner: Any

__all__ = [
    "Governed",
    "GovernedKubeSpawner",
    "GovernedLocalProcessSpawner",
    "GovernedSimpleLocalProcessSpawner",
    "GovernedSimpleSpawner",
    "governed",
]

_made: dict[type, type] = {}


def governed(spawner_class: Any) -> type:
    """Return the governed version of a spawner class; the same one for the same class.

    Parameters
    ----------
    spawner_class : type
        A subclass of :class:`jupyterhub.spawner.Spawner`. One that is governed already is
        returned as it is.

    Raises
    ------
    TypeError
        It is not such a class.
    """
    if not isinstance(spawner_class, type) or not issubclass(spawner_class, Spawner):
        raise TypeError(
            f"governed() takes a spawner class such as LocalProcessSpawner, not {spawner_class!r}"
        )
    if issubclass(spawner_class, Governed):
        return spawner_class
    made = _made.get(spawner_class)
    if made is None:
        made = _made[spawner_class] = _make(spawner_class)
    return made


def _make(spawner_class: type) -> type:
    name = f"Governed{spawner_class.__name__}"
    body = {
        "__doc__": f"{spawner_class.__name__}, governed: see :class:`~.mixin.Governed`.",
        "__module__": __name__,
        "__qualname__": name,
    }
    made: type = type(spawner_class)(name, (_mixin_for(spawner_class), spawner_class), body)
    # Found by its name again, as pickle and tracebacks do, unless another class has the name.
    globals().setdefault(name, made)
    return made


def _mixin_for(spawner_class: type) -> type:
    names = {base.__module__.partition(".")[0] for base in spawner_class.__mro__}
    if "kubespawner" not in names:
        return Governed
    from .kube import GovernedPod

    if not hasattr(spawner_class, "_make_create_pod_request"):
        raise TypeError(
            f"{spawner_class.__name__} is of a version of KubeSpawner whose final manifest "
            "cannot be checked; use jupyterhub-kubespawner 7"
        )
    return GovernedPod


def __getattr__(name: str) -> Any:
    if name == "GovernedLocalProcessSpawner":
        return governed(LocalProcessSpawner)
    if name in ("GovernedSimpleLocalProcessSpawner", "GovernedSimpleSpawner"):
        return governed(SimpleLocalProcessSpawner)
    if name == "GovernedKubeSpawner":
        try:
            from kubespawner import KubeSpawner
        except ImportError as error:
            raise ImportError(
                "GovernedKubeSpawner needs KubeSpawner: pip install 'jupyter-allotment[kubernetes]'"
            ) from error
        return governed(KubeSpawner)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
