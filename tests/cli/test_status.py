"""What ``diffcredit status`` makes of a ledger whose numbers, clocks and claims are known."""

import io
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from diffcredit.cli import status as command
from diffcredit.cli.console import SafeConsole
from diffcredit.coalitions import encode, make_design
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value, claims
from diffcredit.study import status as facts
from diffcredit.study.run import why_enough
from diffcredit.study.schedule import Schedule
from diffcredit.study.status import StatusReader
from diffcredit.study.study import Study
from diffcredit.study.tally import Tally
from tiny_study import ENVIRONMENT, files_below, write_study

N = 6
NOW = 1.8e9  # seconds since 1970
HOLDER = "head:10:abcd"


def stamp(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def evaluation(coalition, start, finish, *, worker="a:1", purpose="estimate", error=None, replicate=0, unmeasured=None):
    value = Value("colourfulness", None if unmeasured else 1.0, error=unmeasured)
    outcome = ("failed", (), error) if error else ("done", (value,), None)
    return Evaluation(coalition, replicate, purpose, *outcome, {}, {}, worker, stamp(start), stamp(finish))


@pytest.fixture
def clock(monkeypatch):
    """The time, for claims and for views, which the test sets."""
    now = SimpleNamespace(seconds=NOW)
    monkeypatch.setattr(claims.time, "time", lambda: now.seconds)
    return now


DRAWN = [encode(row) for row in make_design("uniform", 0).draw(N, 0, 12)]


@pytest.fixture
def study(tmp_path):
    """A study of 20 evaluations and 2 endpoints, of which 2 + 8 are done, 3 attempts failed and 2 are claimed."""
    file = write_study(tmp_path, {"stop": {"any": [{"evaluations": 20}, {"money": {"amount": 9, "per_hour": 3.6}}]}})
    with Ledger.open(tmp_path / "results/ledger.db") as ledger:
        ledger.register_study("tiny", {"contributors": list("abcdef")})
        for name in ("sparsified", "from_scratch"):
            ledger.register_recipe("tiny", RecipeRecord(name, {}))
        ledger.register_property("tiny", PropertyRecord("colourfulness", {"name": "colourfulness"}, True))
        items = [
            evaluation("0" * N, NOW - 5000, NOW - 4900, purpose="endpoint"),
            evaluation("1" * N, NOW - 5000, NOW - 4900, purpose="endpoint", worker="b:2"),
            # half an hour later two workers, 100 seconds each
            *(evaluation(DRAWN[i], NOW - 1000 + 100 * (i // 2), NOW - 900 + 100 * (i // 2), worker=w)
              for i, w in enumerate(["a:1", "b:2"] * 4)),
            evaluation(DRAWN[8], NOW - 600, NOW - 590, worker="b:2", error="Traceback\nMemoryError: 1"),
            evaluation(DRAWN[8], NOW - 590, NOW - 580, worker="b:2", error="Traceback\nMemoryError: 1"),
            evaluation(DRAWN[9], NOW - 590, NOW - 580, worker="b:2", error="ValueError: [red]\x1b[31m"),
            evaluation(DRAWN[0], NOW - 9000, NOW - 8900, purpose="pilot", replicate=7, worker="c:3"),
        ]  # fmt: skip
        for item in items:
            ledger.record("tiny", "sparsified", item)
        truth = evaluation("110000", NOW - 500, NOW - 100, purpose="truth", unmeasured="x\nKeyError: 'f'")
        ledger.record("tiny", "from_scratch", truth)
    return Study.load(file)


def promise(study, seconds=60.0):
    with study.ledger() as ledger:
        for coalition in DRAWN[10:12]:
            ledger.claim("tiny", "sparsified", coalition, 0, HOLDER, seconds)


@pytest.mark.parametrize("live", [False, True])
def test_the_numbers_are_those_of_the_ledger(study, clock, live):
    promise(study)
    clock.seconds += 20
    found = StatusReader(study, live=live).read()
    assert found.time == stamp(NOW + 20).replace(".000", "")
    ours, truth = found.recipes
    assert (ours.done, ours.failed, ours.others, ours.under_way) == (10, 3, 1, 2)
    assert (ours.total, ours.certain) == (22, False)
    assert ours.per_minute_lately == 0  # the last was done 620 seconds ago
    # 11 done while anything was under way: 100 + 400 + 10 (the failures) + 10 + 100 seconds
    assert ours.per_minute_overall == pytest.approx(60 * 11 / 620)
    # the last of them, pauses left out: 11 in 600 seconds; 12 are left
    assert ours.seconds_left == pytest.approx(12 * 600 / 11)
    assert ours.worker_hours == pytest.approx((11 * 100 + 30) / 3600)
    assert ours.worker_hours_left == pytest.approx(12 * 100 / 3600)
    assert ours.cost_left == pytest.approx(12 * 100 / 1000)  # at the rule's 3.6 an hour
    assert (truth.done, truth.total, truth.seconds_left, truth.under_way) == (1, None, None, 0)
    assert [(each.recipe, each.error, each.count) for each in found.failures] == [
        ("sparsified", "MemoryError: 1", 2),
        ("sparsified", "ValueError: [red]\x1b[31m", 1),
        ("from_scratch", "colourfulness: KeyError: 'f'", 1),
    ]
    (driver,) = found.drivers
    assert (driver.holder, driver.recipe, driver.tasks) == (HOLDER, "sparsified", 2)
    assert driver.expires_in == pytest.approx(40)
    workers = {(each.name, each.recipe): each for each in found.workers}
    assert {key: (each.done, each.failed, each.mean_seconds) for key, each in workers.items()} == {
        ("a:1", "sparsified"): (5, 0, 100),
        ("b:2", "sparsified"): (5, 3, 100),
        ("c:3", "sparsified"): (1, 0, 100),
        ("a:1", "from_scratch"): (1, 0, 400),
    }
    assert workers["b:2", "sparsified"].last_seen == pytest.approx(600)
    assert [part.now for part in found.rule.parts] == ["10", f"{(10 * 100 + 30) / 1000:.2f}"]  # no pilot's


def test_a_price_and_a_claim_that_expired(study, clock):
    promise(study)
    clock.seconds += 61
    found = StatusReader(study, price=36.0, live=True).read()
    clock.seconds = NOW - 150
    assert StatusReader(study).read().recipes[0].per_minute_lately == 0.4  # two of the four pairs
    assert found.drivers == ()
    assert found.recipes[0].under_way == 0
    assert found.recipes[0].cost_left == pytest.approx(12)


def test_the_log_tells_which_worker_has_a_task(study, clock):
    promise(study)
    log = study.folder / "log.jsonl"

    def told(kind, index, worker, seconds):
        record = {"event": kind, "time": stamp(NOW + seconds), "worker": worker}
        return json.dumps(record | {"coalition": DRAWN[index], "replicate": 0}) + "\n"

    log.write_text("half a li\n[]\n" + told("task given", 10, "a:1", -30) + told("task given", 3, "b:2", -20))
    reader = StatusReader(study, live=True)

    def busy():
        return {each.name: (each.coalition, each.busy_seconds) for each in reader.read().workers if each.coalition}

    assert busy() == {"a:1": (DRAWN[10], 30)}  # what b:2 was given is nobody's promise any more
    with log.open("a") as file:
        file.write(told("worker lost", 10, "a:1", -5) + told("task given", 11, "new:9", -1)[:-9])
    assert busy() == {}
    with log.open("a") as file:
        file.write(told("task given", 11, "new:9", -1)[-9:])
    assert busy() == {"new:9": (DRAWN[11], 1)}
    log.rename(log.with_name("log.jsonl.1"))
    log.write_text(told("task given", 10, "b:2", 0))
    clock.seconds += 4
    assert busy() == {"b:2": (DRAWN[10], 4), "new:9": (DRAWN[11], 5)}


def test_a_live_view_reads_what_is_new(study, clock, monkeypatch):
    reader = StatusReader(study, live=True)
    before = reader.read().recipes[0]
    counted = []
    monkeypatch.setattr(Tally, "add", lambda tally, item, add=Tally.add: (counted.append(item), add(tally, item)))
    assert reader.read().recipes[0] == before
    assert counted == []
    new = evaluation(DRAWN[8], NOW - 10, NOW)
    with study.ledger() as ledger:
        ledger.record("tiny", "sparsified", new)
    assert reader.read().recipes[0].done == before.done + 1
    assert counted == [new]


@pytest.mark.parametrize("live", [False, True])
def test_a_lowered_limit_leaves_no_more_done_than_there_are(study, clock, live):
    file = write_study(study.file.parent, {"stop": {"evaluations": 5}})
    ours = StatusReader(Study.load(file), live=live).read().recipes[0]
    assert (ours.done, ours.total, ours.certain, ours.seconds_left) == (10, 10, True, 0)


def test_credits_are_looked_at_while_that_is_cheap(study, clock, monkeypatch):
    file = write_study(study.file.parent, {"stop": {"any": [{"evaluations": 20}, {"correlation": 0.9}]}})
    looks = []
    monkeypatch.setattr(Schedule, "catch_up", lambda schedule: looks.append(1))
    assert StatusReader(Study.load(file), live=True).read().recipes[0].total == 22
    assert len(looks) == 1
    monkeypatch.setattr(facts, "MOST_LOOKED", 5)
    found = StatusReader(Study.load(file), live=True).read()
    assert (found.recipes[0].total, found.recipes[0].certain) == (22, False)
    assert len(looks) == 1


def test_many_are_cut_and_strangers_text_is_shown(study, clock, monkeypatch):
    promise(study)
    monkeypatch.setattr(command, "MOST_WORKERS", 2)
    screen = SafeConsole(width=80, record=True, file=io.StringIO())
    screen.print(command.view(StatusReader(study).read()))
    text = screen.export_text()
    assert "and 2 more" in text
    assert "[red]\\x1b[31m" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_json_says_the_same(diffcredit, study):
    code, out, _ = diffcredit("status", study.file, "--json", "--price", 36)
    told = json.loads(out)
    assert code == 0
    assert (told["study"], told["studied"], told["endpoints"]) == ("tiny", "sparsified", 2)
    (ours, truth) = told["recipes"]
    assert (ours["done"], ours["failed"], ours["total"], ours["cost_left"]) == (10, 3, 22, pytest.approx(12))
    assert truth["name"] == "from_scratch"
    assert [part["wanted"] for part in told["rule"]["parts"]] == ["20 evaluations", "9 spent at 3.6 an hour"]


def test_watching_where_there_is_no_terminal(diffcredit, study, monkeypatch):
    """One below the other, until Ctrl-C, which is no failure."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    for option, line in (([], "tiny, "), (["--json"], '{"study"')):
        code, out, err = diffcredit("status", study.file, "--watch", "--every", 0.5, *option)
        assert (code, err, out.count(line)) == (0, "", 2)
        assert waits == [0.5, 0.5]
        del waits[:]


def test_watching_in_a_terminal(study):
    """The view is there, follows the ledger, and Ctrl-C, typed at the terminal, ends it without complaint."""
    ours, theirs = pty.openpty()
    script = "import sys; from diffcredit.cli import main; sys.argv[0] = 'diffcredit'; main()"
    arguments = [sys.executable, "-c", script, "status", str(study.file), "--watch", "--every", "0.1"]
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    text = ""

    def read_until(wanted):
        nonlocal text
        while wanted not in text:
            text += os.read(ours, 10_000).decode(errors="replace")

    read_until("10 of about 22")
    with study.ledger() as ledger:
        ledger.record("tiny", "sparsified", evaluation(DRAWN[8], NOW - 10, NOW))
    read_until("11 of about 22")
    os.write(ours, b"\x03")
    assert process.wait(60) == 0
    os.close(ours)
    assert "Traceback" not in text


def test_before_during_and_after(diffcredit, finished, tmp_path):
    new = write_study(tmp_path / "new")
    code, out, _ = diffcredit("status", new)
    assert (code, out) == (0, "sparsified: 0 of 18 evaluations; the model is not ready for them yet\n")
    told = json.loads(diffcredit("status", new, "--json")[1])
    assert (told["recipes"], told["rule"], told["workers"]) == ([], None, [])
    assert files_below(new.parent) == {"study.yaml"}

    out = diffcredit.printed("status", finished)
    assert out.splitlines()[1].split()[:4] == ["sparsified", "18", "of", "18"]
    assert "colourfulness: " in out

    write_study(finished, {"stop.evaluations": 30})  # as if it were still under way
    assert diffcredit("status", finished)[1].splitlines()[1].split()[:4] == ["sparsified", "18", "of", "32"]

    write_study(finished, {"retraining": {"method": "fine_tune", "name": "[b]other"}})
    out = diffcredit("status", finished)[1]
    assert out.startswith("[b]other: 0 of 18 evaluations; the model is not ready for them yet\n")
    assert "sparsified" in out


def test_a_rule_with_parts(diffcredit, finished, recorded, tmp_path):
    stop = {"any": [{"evaluations": 300}, {"all": [{"hours": 5}, {"correlation": 0.5}]}, {"width": 1e9}]}
    new = write_study(tmp_path / "new", {"stop": {"hours": 1}})
    out = diffcredit("status", new)[1]
    assert out == "sparsified: 0 evaluations; the model is not ready for them yet\n"

    def shown(folder):
        write_study(folder, {"stop": stop})
        out = diffcredit("status", folder)[1]
        return out.splitlines()[1].split(), {line.strip().partition("  ")[0]: line for line in out.splitlines()}

    first, lines = shown(finished)
    assert first[:5] == ["sparsified", "18", "of", "about", "302"]
    assert lines["300 evaluations"].split()[2:5] == ["16", "≈", "300"]
    assert "no look yet" in lines["correlation ≥ 0.5, 85 % sure"]
    assert "not known yet" in lines["width ≤ 1e+09"]
    assert lines["5 hours"].startswith("     ")  # below its parent
    assert "reached" not in lines["5 hours"]

    first, lines = shown(recorded)
    assert "reached" in lines["width ≤ 1e+09"]
    assert "1 of 3 reached" in lines["any of"]
    assert first[-1] == "done"
    assert why_enough(Study.load(recorded)).startswith("width ≤ 1e+09, now ")
