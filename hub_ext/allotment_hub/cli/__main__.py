"""``python -m allotment_hub.cli``: as the command ``allotment-hub``."""

import sys

from . import main

sys.exit(main())
