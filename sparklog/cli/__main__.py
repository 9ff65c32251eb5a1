"""`python -m sparklog.cli`: the console script without its wrapper."""

from __future__ import annotations

import sys

from sparklog.cli.main import main

sys.exit(main())
