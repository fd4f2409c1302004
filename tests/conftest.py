"""Make the helpers beside the tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore = ["integrations/faulty_app"]  # an app of its own, for processes of its own
