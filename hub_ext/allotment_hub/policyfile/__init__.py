"""Policy and inventory files: read, checked as a whole, written and compared.

The one place that knows the notation of the files. What comes out are the records of
:mod:`allotment_hub.domain`; what goes wrong comes out as one error that lists every fault with
its path, its line and what would be right.
"""

from .document import DocumentError
from .dumping import Change, diff_policies, dump_policy, policy_data, record_data, to_yaml
from .environment import Setting, effective, unknown_environment
from .inventory import load_inventory, read_inventory
from .loading import Loaded, load_policy
from .problems import FileError, InventoryError, PolicyError, Problem, path_text

__all__ = [
    "Change",
    "DocumentError",
    "FileError",
    "InventoryError",
    "Loaded",
    "PolicyError",
    "Problem",
    "Setting",
    "diff_policies",
    "dump_policy",
    "effective",
    "load_inventory",
    "load_policy",
    "path_text",
    "policy_data",
    "read_inventory",
    "record_data",
    "to_yaml",
    "unknown_environment",
]
