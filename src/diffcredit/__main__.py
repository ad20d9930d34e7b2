"""``python -m diffcredit``."""

import sys
from pathlib import Path

# Python puts the working folder first, where a stranger's modules would take the place of packages
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[:1] == [str(Path.cwd())]:
    del sys.path[0]

from diffcredit.cli import main

main()
