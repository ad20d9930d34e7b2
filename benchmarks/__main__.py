"""``python -m benchmarks [NAME …]``: runs all benchmarks, or those named."""

import sys
from importlib import import_module

BENCHMARKS = (
    "estimators",
    "demo",
    "fidelity",
    "sampling",
    "overhead",
    "models",
    "gpu",
    "extractors",
    "gradients",
    "priors",
    "validation",
    "verdicts",
    "evidence",
    "payouts",
    "near_copies",
    "cifar20",
    "cluster",
    "scale",
    "tamper",
    "fuzz",
    "faults",
)


def main() -> None:
    for name in sys.argv[1:] or BENCHMARKS:
        if name not in BENCHMARKS:
            sys.exit(f"benchmarks: {name!r} is unknown; accepted: {', '.join(BENCHMARKS)}")
        import_module(f"benchmarks.{name}.measure").main()


if __name__ == "__main__":  # worker processes import this file
    main()
