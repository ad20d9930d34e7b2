"""What GPU runs of one study show of its credits.

    python -m benchmarks evidence

Nothing is trained: the page is computed from the ledgers of three runs, which took 25 minutes of an H200, and from the
distances between images that the third has left.
"""

from benchmarks.evidence.figures import drawings, in_the_guide, unlearned
from benchmarks.evidence.findings import findings
from benchmarks.evidence.page import page, scores_csv
from benchmarks.evidence.runs import HERE, contests


def main() -> None:
    with contests() as runs:
        found = findings(runs)
    for figure in drawings(found):
        (HERE / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
    (HERE.parents[1] / "docs" / "trust-lds.svg").write_text(in_the_guide(found).svg, encoding="utf-8")
    (HERE / "unlearned.png").write_bytes(unlearned(found))
    (HERE / "lds.csv").write_text(scores_csv(found), encoding="utf-8", newline="")
    (HERE / "results.md").write_text(page(found), encoding="utf-8")
    print("evidence: results.md, lds.csv and figures written", flush=True)
