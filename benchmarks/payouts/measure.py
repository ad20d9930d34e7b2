"""What do false names and copies gain, and do amounts lie in their intervals?

    python -m benchmarks payouts

Everything is compared with exact Shapley values: of games whose values are known, and of one that is learnt for real.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.payouts.amounts import CASES, exact_twins, measured
from benchmarks.payouts.manipulations import manipulated
from benchmarks.payouts.page import write_page

RESULTS = Path(__file__).parent / "results.json"
WORLDS = 5
STUDIES = 400


def main() -> None:
    results: dict[str, Any] = {"worlds": WORLDS, "studies": STUDIES, "exact": exact_twins(20)}
    for kind in ("split", "copy"):
        results[kind] = [row for number in range(WORLDS) for row in manipulated(number, kind)]
        print(kind, flush=True)
    results["cases"] = [measured(case, STUDIES) for case in CASES]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results, RESULTS.with_suffix(".md"))


if __name__ == "__main__":
    main()
