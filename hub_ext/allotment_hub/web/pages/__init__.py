"""The pages that people see. Shells only: what they show comes from the same REST interface.

A page holds no data but who looks at it and where things are, so it has nothing to leak and
nothing to go stale; names from outside are never part of markup. Scripts and styles are files
below :mod:`static`, because the content policy allows nothing else.
"""

from .assets import ASSETS_PATH, assets_hash
from .handlers import page_handlers, page_html

__all__ = ["ASSETS_PATH", "assets_hash", "page_handlers", "page_html"]
