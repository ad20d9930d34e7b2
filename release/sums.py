"""Write ``SHA256SUMS`` beside the files of a release, in the format of ``sha256sum --check``."""

import hashlib
import sys
from pathlib import Path

NAME = "SHA256SUMS"


def main(folder: Path) -> None:
    files = sorted(file for file in folder.iterdir() if file.name != NAME)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / NAME).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
