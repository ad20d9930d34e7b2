"""The command line on changed studies: real processes, whose words and exit codes are what a reader gets."""

import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

from benchmarks.tamper.copies import Copy
from benchmarks.tamper.judging import HARMLESS, REFUSED, SHOWN, TRACEBACK, Judgement

COMMANDS = {"credits": 5, "status": 4, "verify": 4, "statements": 2, "report": 1}
"""How often each is drawn; the last two bring torch and take seconds."""
SINCE = re.compile(r"seen .* ago")
WRITES = ("credits.csv", "payouts.csv", "statements/ann.json", "statements/bob.html")
"""Files that a command may write, which must be as they were."""


class Commands:
    """Runs commands, and knows what each says of the untouched study."""

    def __init__(self, copy: Copy) -> None:
        self._expected = {name: self._run(name, copy) for name in COMMANDS}
        for name, (code, _, complaint, _) in self._expected.items():
            if code != 0:
                raise RuntimeError(f"{name} refuses the untouched study: {complaint}")

    def judge(self, copy: Copy, random: Random, *, noted: bool) -> tuple[str, Judgement]:
        """Run one or two random commands on a changed study; return which, and the worst that became of it."""
        names = random.choices(list(COMMANDS), list(COMMANDS.values()), k=random.choice([1, 1, 2]))
        names = list(dict.fromkeys(["verify"] if noted else names))
        found = [self._judge(name, copy, [f"--head={copy.head}"] if noted else []) for name in names]
        worst = max(found, key=lambda each: [HARMLESS, REFUSED, SHOWN, TRACEBACK].index(each.outcome))
        return ", ".join(names), worst

    def _judge(self, name: str, copy: Copy, options: list[str]) -> Judgement:
        code, printed, complaint, written = self._run(name, copy, *options)
        if code == 0:
            _, expected, _, files = self._expected[name]
            if options:  # nothing is said of keeping a head
                expected = (
                    "\n".join(line for line in expected.splitlines() if not line.startswith("Keep the head")) + "\n"
                )
            differs = printed != expected or written != files
            return Judgement(SHOWN, f"{name}: {printed[:300]}") if differs else Judgement(HARMLESS)
        lines = complaint.splitlines()
        one_line = (
            lines and lines[-1].startswith("error: ") and all(line.startswith("warning: ") for line in lines[:-1])
        )
        silent = not printed or name == "verify"
        if code in (1, 2) and one_line and silent:
            return Judgement(REFUSED, complaint)
        return Judgement(TRACEBACK, f"{name} ended with {code}: {' '.join(lines[-3:])[:500]} {printed[:200]}")

    def _run(self, name: str, copy: Copy, *options: str) -> tuple[int, str, str, dict[str, str]]:
        """Return exit code, output, complaint, and the files written."""
        results = copy.folder / "results"
        for file in WRITES:
            (results / file).unlink(missing_ok=True)
        environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "diffcredit", name, str(copy.file), *options]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        written = {file: _text(results / file) for file in WRITES}
        return ended.returncode, SINCE.sub("seen", ended.stdout), ended.stderr, written


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
