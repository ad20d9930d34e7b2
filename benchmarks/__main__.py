"""``python -m benchmarks [NAME …]``: runs all benchmarks, or those named."""

import sys
from importlib import import_module

BENCHMARKS = ("estimators", "demo")

for name in sys.argv[1:] or BENCHMARKS:
    if name not in BENCHMARKS:
        sys.exit(f"benchmarks: {name!r} is unknown; accepted: {', '.join(BENCHMARKS)}")
    import_module(f"benchmarks.{name}.measure").main()
