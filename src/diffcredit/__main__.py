"""``python -m diffcredit``."""

from diffcredit.cli import main

main()
