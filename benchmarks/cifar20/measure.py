"""The page of studies/cifar20-h200, computed from its record.

    python -m benchmarks cifar20

Nothing is trained; without a record nothing is written.
"""

import shutil

from benchmarks.cifar20.page import page
from benchmarks.cifar20.record import LEDGER, RECORD, STUDY, recorded

STORY, PAGE, FILES = (STUDY.parent / name for name in ("story.md", "README.md", "results"))


def main() -> None:
    if not (RECORD / LEDGER).exists():
        print("cifar20: studies/cifar20-h200 has no record yet; nothing written")
        return
    with recorded(RECORD) as contest:
        made = page(contest, RECORD, STORY.read_text(encoding="utf-8"))
    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir()
    for name, content in made.files.items():
        (FILES / name).write_bytes(content)
    PAGE.write_text(made.text, encoding="utf-8")
    print(f"cifar20: README.md and {len(made.files)} files written", flush=True)
