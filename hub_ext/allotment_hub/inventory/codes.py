"""The driver's return codes that mean something here; the names are those of nvml.h."""

NO_BINDING = -1
"""Not of the driver: the Python binding is not installed."""

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26

BENIGN = frozenset(
    {
        NOT_SUPPORTED,
        NO_PERMISSION,
        NOT_FOUND,
        FUNCTION_NOT_FOUND,
        NO_DATA,
        ARGUMENT_VERSION_MISMATCH,
        DEPRECATED,
    }
)
"""These say what the driver does not tell, not that the device is broken."""
