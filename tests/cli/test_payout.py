"""``payout`` and ``statements``: what is refused, in one line and with nothing written, and what is paid."""

import csv
import json
import shutil
from decimal import Decimal

import numpy as np
import pytest
import yaml

from paid_study import POLICY, evaluated, stated
from tiny_study import changed, files_below, rows

ENTRIES = "SELECT kind, name, content, entered FROM entries ORDER BY id"


def written(folder):
    """All that a payout may write: files, and entries of the ledger. Every command logs that it was called."""
    files = {name: (folder / name).read_bytes() for name in files_below(folder) - {"results/log.jsonl"}}
    return {name: data for name, data in files.items() if "/ledger.db" not in name}, rows(folder, ENTRIES)


def change(folder, changes):
    """The study file with changes by dotted key."""
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), changes), allow_unicode=True))
    return file


def policy_file(folder, changes=None):
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(changed(POLICY, changes or {}), allow_unicode=True))
    return file


@pytest.fixture
def refuses(diffcredit, paying):
    """Runs ``payout`` and checks that it is refused in one line that says all of ``said``, and nothing is written."""

    def check(*arguments, said=(), pool="100.00"):
        before = written(paying)
        pool = () if pool is None else ("--pool", pool)
        err = diffcredit.refused("payout", paying / "study.yaml", *pool, *arguments)
        assert err.startswith("error: ")
        assert len(err) < 1000
        for words in said:
            assert words in err, f"{words!r} not in {err!r}"
        assert written(paying) == before
        return err

    return check


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("0", "0 is not accepted; an amount above 0 is expected"),
        ("0.00", "0 is not accepted; an amount above 0 is expected"),
        ("-0", "0 is not accepted; an amount above 0 is expected"),
        ("NaN", "'NaN' is not accepted; a finite number is expected"),
        ("sNaN", "'sNaN' is not accepted; a finite number is expected"),
        ("inf", "'inf' is not accepted; a finite number is expected"),
        ("-Infinity", "'-Infinity' is not accepted; a finite number is expected"),
        ("-5", "'-5' is not accepted; an amount from 0 to 1,000,000,000,000 is expected"),
        ("1e13", "'1e13' is not accepted; an amount from 0 to"),
        ("1e999999999", "'1e999999999' is not accepted; a number of at most 30 digits"),
        ("1e-999999999", "a number of at most 30 digits"),
        ("10.005", "10.005 is no multiple of 0.01, the smallest amount that is paid"),
        ("10.00001", "'10.00001' is not accepted; an amount in multiples of 0.0001 is expected"),
        ("1,000.00", "'1,000.00' is not accepted; a number such as 1250.00 is expected"),
        ("100 EUR", "'100 EUR' is not accepted; a number such as 1250.00 is expected"),
        ("", "'' is not accepted; a number such as 1250.00 is expected"),
        ("10.000", "10.000 may mean thousands; 10.00 or 10000.00 is accepted"),
        ("1000000000.01", "1,000,000,000.01 is more than 100,000,000,000 of the smallest amount that is paid, 0.01"),
        ("9" * 5000, "is not accepted; a number of at most 30 digits"),
        ("\x1b[2J\u202e", "is not accepted; a number such as 1250.00 is expected"),
    ],
)
def test_pools_that_are_no_amounts(pool, said, refuses):
    err = refuses(f"--pool={pool}", pool=None, said=["--pool: ", said])
    assert "\x1b" not in err
    assert "\u202e" not in err


def test_a_pool_must_be_stated_and_be_the_policy_s(refuses, paying):
    refuses(pool=None, said=["study.yaml: payout: pool: missing; state the amount there, or give it with --pool"])
    file = policy_file(paying, {"pool": 50})
    refuses("--policy", file, said=["--pool: 100.00 is not the policy's, which is 50", "policy.yaml"])
    refuses("--policy", policy_file(paying, {"pool": 0}), pool=None, said=["policy.yaml: pool: 0 is not accepted"])
    err = refuses("--policy", policy_file(paying, {"rounding": "0.05"}), pool="100.01")
    assert "100.01 is no multiple of 0.05" in err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"property": None}, "property: either it or mix is expected"),
        ({"mix": {"colourfulness": 1}}, "property: either it or mix is expected"),
        ({"property": "warmth"}, "property: 'warmth' is no property of the study; accepted: colourfulness, heldout"),
        ({"property": None, "mix": {"warmth": 1}}, "mix: 'warmth' is no property of the study; accepted: colourful"),
        ({"property": None, "mix": {"colourfulness": 0}}, "weights other than 0 are expected"),
        ({"property": None, "mix": {"colourfulness": ".nan"}}, "number such as 1250.00 is expected"),
        ({"property": None, "mix": {"colourfulness": float("nan")}}, "a finite number is expected"),
        ({"property": None, "mix": {"colourfulness": [1]}}, "a number is expected"),
        ({"property": None, "mix": {}}, "{PROPERTY: weight, …} is expected"),
        ({"property": None, "mix": ["colourfulness"]}, "{PROPERTY: weight, …} is expected"),
        ({"currency": None}, "currency: missing"),
        ({"currency": "eur"}, "currency: 'eur' is not accepted; a currency's code of three capital letters"),
        ({"currency": "EURO"}, "currency: 'EURO' is not accepted"),
        ({"currency": "€UR"}, "currency: '€UR' is not accepted"),
        ({"fixed": "heads"}, "fixed: 'heads' is not accepted; input should be 'equal', 'images' or 'lots'"),
        ({"fixed": "lots"}, "fixed: 'lots' needs contributions that are cut into lots (contributions.lots)"),
        ({"merit": "share"}, "merit: 'share' is not accepted"),
        ({"r": 1.5}, "r: 1.5 is not accepted; a number from 0 to 1, or reliability, is expected"),
        ({"r": -0.1}, "r: -0.1 is not accepted"),
        ({"r": float("nan")}, "r: nan is not accepted"),
        ({"r": True}, "r: True is not accepted"),
        ({"r_at_most": 0.2}, "r_at_most: accepted only with r: reliability, which it limits"),
        ({"r": "reliability", "r_at_most": 2}, "r_at_most: 2 is not accepted; a number from 0 to 1 is expected"),
        ({"floor": 10, "cap": 5}, "cap: 5 is below the floor, 10; at least as much is accepted"),
        ({"floor": -1}, "floor: -1 is not accepted; an amount from 0 to"),
        ({"minimum": "0.005"}, "minimum: 0.005 is no multiple of rounding, 0.01"),
        ({"pool": "1.005"}, "pool: 1.005 is no multiple of rounding, 0.01"),
        ({"rounding": 0}, "rounding: 0 is not accepted; the smallest amount that is paid is expected"),
        ({"rounding": "0.00001"}, "rounding: '0.00001' is not accepted"),
        ({"negatives": "cut", "merit": "least"}, "negatives: 'cut' is not accepted with merit: least"),
        ({"verdict": "do not use"}, "verdict: 'do not use' is not accepted; accepted: pay by it, use with care"),
        ({"reference": "house"}, "reference: 'house' is not the study's, which is 'untrained'"),
        ({"poool": 5}, "poool: unknown key; accepted: property, mix, direction"),
        ({"statement": {"payers": "x"}}, "statement.payers: unknown key; accepted: payer, model, licence, objections"),
        ({"statement": {"payer": "x" * 1001}}, "statement.payer: "),
        ({"statement": {"payer": 5}}, "statement.payer: 5 is not accepted"),
        ({"<script>\x1b[2J": 5}, "unknown key"),
        ({"property": "=cmd|' /C calc'!A0\x1b[2J\u202e"}, "is no property of the study"),
    ],
)
def test_policies_that_cannot_be_followed(changes, said, refuses, paying):
    err = refuses("--policy", policy_file(paying, changes), said=["policy.yaml: ", said])
    assert not {"\x1b", "\u202e"} & set(err)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"property: [", "policy.yaml: not valid YAML (line 1"),
        (b"", "policy.yaml: None: a policy is a mapping with the keys property, mix"),
        (b"- 1", "policy.yaml: [1]: a policy is a mapping"),
        (b"r: 1\nr: 2", "policy.yaml: not valid YAML (line 2: the key 'r' is there twice"),
        (b"\xff\xfe", "policy.yaml: cannot be read (not UTF-8 text)"),
        (b"x: " + b"[" * 99 + b"]" * 99, "policy.yaml: not valid YAML (nested too deeply)"),
        (b"x: !!python/object/apply:os.system [exit]", "policy.yaml: not valid YAML"),
        (b"#" * 1_000_001, "policy.yaml: over 1,000,000 bytes"),
        (None, "policy.yaml: cannot be read (No such file or directory)"),
    ],
)
def test_files_that_are_no_policies(content, said, refuses, paying):
    file = paying / "policy.yaml"
    if content is not None:
        file.write_bytes(content)
    refuses("--policy", file, said=[said])


def test_a_folder_is_no_policy_and_no_balances(refuses, paying):
    refuses("--policy", paying / "images", said=["images: cannot be read (Is a directory)"])
    refuses("--balance", paying / "images", said=["images: cannot be read as CSV (Is a directory)"])
    refuses("--balance", paying / "none.csv", said=["none.csv: cannot be read as CSV (No such file or directory)"])


def test_without_a_policy(refuses, paying):
    change(paying, {"payout": None})
    refuses(said=["study.yaml: payout: missing; state a policy there, or give the file of one with --policy"])


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({**POLICY, "r": 2}, "study.yaml: payout.r: 2 is not accepted; a number from 0 to 1, or reliability"),
        ({**POLICY, "verdict": "do not use"}, "study.yaml: payout: verdict: 'do not use' is not accepted"),
        ({"property": "colourfulness"}, "study.yaml: payout.currency: missing"),
        (5, "study.yaml: payout: 5 is not accepted"),
        ("elsewhere.yaml", "elsewhere.yaml: cannot be read (No such file or directory)"),
    ],
)
def test_policies_in_the_study_file(policy, said, refuses, paying):
    change(paying, {"payout": policy})
    refuses(said=[said])


HEADER = "contributor,balance\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER + "zoe,5\n", ":2: contributor: 'zoe' is no contributor of the study, but has a balance of 5"),
        (HEADER + "ann,5\nann,5\n", ":3: contributor: 'ann' is there twice"),
        (HEADER + "ann,NaN\n", ":2: balance: 'NaN' is not accepted; a finite number"),
        (HEADER + "ann,-1\n", ":2: balance: '-1' is not accepted; an amount from 0"),
        (HEADER + "ann,\n", ":2: balance: '' is not accepted"),
        (HEADER + "ann\n", ":2: has another number of cells than the first line"),
        (HEADER + "ann,1,2\n", ":2: has another number of cells than the first line"),
        (HEADER + '"ann,1\n', ": cannot be read as CSV ("),
        ("name,balance\nann,1\n", ": has the columns 'name, balance'; contributor and balance are expected"),
        ("contributor,balance,balance\nann,1,2\n", ": has the column 'balance' twice; one is accepted"),
        ("contributor,amount\nann,1\n", "contributor and balance are expected"),
        ("", "contributor and balance are expected"),
        ("contributor,balance,currency\nann,1,EUR\nbob,1,USD\n", ":3: currency: 'USD'; the policy pays in EUR"),
        ("contributor,carried,currency\nann,1,CHF\n", ":2: currency: 'CHF'; the policy pays in EUR"),
        ("contributor,carried,currency\nann,1,\n", ":2: currency: ''; the policy pays in EUR"),
        (HEADER + "\x1b[2Jann,1\n", "is no contributor of the study"),
        (HEADER + "ann,1\0\n", "balances.csv"),
        (HEADER + "ann," + "9" * 200_000 + "\n", "balances.csv"),
    ],
)
def test_balances_that_cannot_be_followed(content, said, refuses, paying):
    file = paying / "balances.csv"
    file.write_text(content, encoding="utf-8", newline="")
    err = refuses("--balance", file, said=["balances.csv", said])
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("changes", "pool", "said"),
    [
        ({"floor": 26}, "100.00", "floor: 4 contributors times the floor is more than the pool"),
        ({"cap": 24}, "100.00", "cap: 4 contributors times the cap is less than the pool, which must be used up"),
        ({"cap": 33, "negatives": "cut"}, "100.00", "cap: 3 contributors times the cap is less than the pool"),
        (
            {"direction": "lower", "negatives": "cut", "cap": 99},
            "100.00",
            "cap: 1 contributors times the cap is less than the pool",
        ),
    ],
)
def test_limits_that_a_pool_cannot_keep(changes, pool, said, refuses, paying):
    """All but dee surely help, so that of a property of which less is better she alone does."""
    refuses("--policy", policy_file(paying, changes), pool=pool, said=["policy.yaml: ", said])


@pytest.mark.parametrize(
    "period", ["", "../../etc", "a/b", "-x", ".hidden", "x" * 41, "2026 Q1", "q\n", "é", "ann.html"]
)
def test_periods_that_are_no_names(period, refuses):
    refuses(f"--period={period}", said=["period: ", "up to 40 letters, digits, dashes and underscores"])


def test_a_verdict_below_the_policy_s_needs_a_reason(refuses, paying):
    said = ["Colourfulness: the verdict is 'use with care' and the policy asks for 'pay by it'", "--despite"]
    file = policy_file(paying, {"verdict": "pay by it"})
    refuses("--policy", file, said=said)
    refuses("--policy", file, "--despite", " \t", said=said)


def test_credits_of_no_use_are_paid_despite_their_verdict_alone(diffcredit, tmp_path):
    """A study of noise: its verdict is refused by every policy, and a reason makes the payout one that says so."""
    noise = np.random.default_rng(0)
    file = evaluated(stated(tmp_path), game=lambda _: 10 + noise.normal())
    before = written(tmp_path)
    err = diffcredit.refused("payout", file, "--pool", "100.00")
    assert "the verdict is 'do not use' and the policy asks for 'use with care': The evaluations do not show" in err
    assert written(tmp_path) == before
    out = diffcredit.printed("payout", file, "--pool", "100.00", "--despite", "promised in the contract")
    assert "Paid despite the verdict: promised in the contract" in out
    diffcredit.printed("statements", file)
    assert len(pages(tmp_path)) == 5
    said = (
        "This was paid despite the verdict “do not use” on the credits. The payer’s reason: “promised in the contract”"
    )
    assert all(said in page for page in pages(tmp_path).values())


@pytest.mark.parametrize("key", ["payer", "model", "licence", "objections"])
@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_texts_that_no_ledger_or_page_can_hold(key, text, refuses, paying):
    """YAML can write what is no text: half a character, and the end of one."""
    written_out = json.dumps(text)
    file = policy_file(paying)
    file.write_text(f"{file.read_text()}statement: {{{key}: {written_out}}}\n")
    refuses("--policy", file, said=[f"policy.yaml: statement.{key}: {text!r} is not accepted"])


def test_a_reason_that_no_ledger_can_hold(refuses, paying):
    for reason in ("a\udcff", "a\0b", "\x1b[2J"):
        refuses("--despite", reason, said=[f"--despite: {reason!r} is not accepted; a text without control characters"])
    refuses("--despite", "x" * 1001, said=["--despite: ", "at most 1,000 characters are accepted"])


def test_another_policy_after_the_evaluations(diffcredit, refuses, paying):
    changes = {
        "r": (0.5, 'r "0.4" → "0.5"'),
        "fixed": ("images", 'fixed "equal" → "images"'),
        "merit": ("least", 'merit "help" → "least"'),
        "floor": (1, 'floor "0" → "1"'),
        "minimum": (1, 'minimum "0" → "1"'),
        "cap": (90, 'cap null → "90"'),
        "currency": ("CHF", 'currency "EUR" → "CHF"'),
        "direction": ("higher", 'direction null → "higher"'),
        "reference": ("untrained", 'reference null → "untrained"'),
        "negatives": ("cut", 'negatives "zero" → "cut"'),
        "rounding": ("0.05", 'rounding "0.01" → "0.05"'),
        "pool": (100, 'pool null → "100"'),
        "property": ("heldout_loss", 'property "colourfulness" → "heldout_loss"'),
    }
    for key, (value, said) in changes.items():
        err = refuses("--policy", policy_file(paying, {key: value}), said=[said, "there are evaluations since"])
        assert "the policy of " in err
    # the same terms in other words, and another text on statements, are the same policy
    same = policy_file(paying, {"r": "0.400", "rounding": "0.010", "negatives": "zero", "statement": {"payer": "Acme"}})
    diffcredit.printed("payout", paying, "--policy", same, "--pool", "100")
    assert json.loads(rows(paying, ENTRIES)[-2][2])["texts"]["payer"] == "Acme"


def test_a_period_is_paid_once(diffcredit, refuses, paying):
    diffcredit.printed("payout", paying, "--pool", "100.00")
    said = ["--period: 'study' was paid on 20", "already; name another period", "diffcredit statements"]
    refuses(said=said)
    refuses("--period", "study", said=said)
    diffcredit.printed("payout", paying, "--pool", "100.00", "--period", "2026-Q1")
    refuses("--period", "2026-Q1", said=["--period: '2026-Q1' was paid on 20"])
    refuses("--period", "2026-q1", said=["--period: '2026-Q1' was paid on 20"])  # one folder, where case does not count
    assert [kind for kind, *_ in rows(paying, ENTRIES)] == ["policy", "terms", "credits", *["payout", "proof"] * 2]


def test_statements_that_cannot_be_written(diffcredit, paying):
    def refused(*arguments):
        before = written(paying)
        err = diffcredit.refused("statements", paying / "study.yaml", *arguments)
        assert written(paying) == before
        return err

    assert "study.yaml: nothing was paid yet; diffcredit payout divides a pool" in refused()
    diffcredit.printed("payout", paying, "--pool", "100.00", "--period", "2026-Q1")
    assert "--period: '../x' was not paid; there are: 2026-Q1" in refused("--period", "../x")
    assert "--only: 'zoe' is no contributor of this payout; there are: ann, bob, cy, dee" in refused("--only", "zoe")
    assert "'<b>\\x1b'" in refused("--only", "ann", "--only", "<b>\x1b")
    change(paying, {"name": "elsewhere"})
    assert "elsewhere" in refused()


def test_taxes_on_statements(diffcredit, paying):
    """They stand on the statements, and nowhere in the ledger."""
    diffcredit.printed("payout", paying, "--pool", "100.00")
    (paying / "tax.csv").write_text("contributor,rate,residence\nann,30 %,Atlantis\n")
    before = rows(paying, "SELECT count(*) FROM chain")
    diffcredit.printed("statements", paying, "--tax", paying / "tax.csv")
    found = pages(paying)
    assert "Atlantis" in found["ann.html"]
    assert "Transferred to you" not in found["bob.html"] + found["payout.html"]
    assert rows(paying, "SELECT count(*) FROM chain") == before
    assert not any(b"Atlantis" in file.read_bytes() for file in (paying / "results").glob("ledger.db*"))
    (paying / "tax.csv").write_text("contributor,rate\nzoe,0.3\n")
    said = "tax.csv:2: contributor: 'zoe' is no contributor of this payout"
    assert said in diffcredit.refused("statements", paying, "--tax", paying / "tax.csv")


def test_files_that_cannot_be_written_leave_the_payout(diffcredit, paying):
    place = paying / "results" / "payouts.csv"
    place.mkdir()
    status, _, err = diffcredit("payout", paying / "study.yaml", "--pool", "100.00")
    assert status == 1
    assert "the payout is recorded, but its files cannot be written" in " ".join(err.split())
    assert ".part" not in err
    place.rmdir()
    diffcredit.printed("statements", paying / "study.yaml")
    assert sum(Decimal(line["amount"]) for line in table(paying).values()) == 100


def test_neither_works_without_a_ledger(diffcredit, paying):
    (paying / "results" / "ledger.db").unlink()
    for command in (["payout", "--pool", "1"], ["statements"]):
        assert "ledger.db" in diffcredit.refused(command[0], paying / "study.yaml", *command[1:])
        assert not (paying / "results" / "ledger.db").exists()


def table(folder, name="payouts.csv"):
    with (folder / "results" / name).open(encoding="utf-8", newline="") as file:
        return {line["contributor"]: line for line in csv.DictReader(file)}


def test_what_is_printed_and_written(diffcredit, paying):
    out = diffcredit.printed("payout", paying, "--pool", "1000.00")
    assert "1,000.00 EUR for Colourfulness, period study" in out
    assert "Verdict: use with care. Nobody has tested these estimates" in out
    assert "The policy was entered before the ledger's first evaluation." in out
    assert "The policy was entered after" not in out
    found = table(paying)
    assert [*found] == ["ann", "bob", "cy", "dee"]
    # equal fixed parts of 600, and 400 by merits of 4, 2.5 and 1, which noise of 0.1 hardly changes
    for name, expected in {"ann": 150 + 1600 / 7.5, "bob": 150 + 1000 / 7.5, "cy": 150 + 400 / 7.5}.items():
        assert float(found[name]["amount"]) == pytest.approx(expected, abs=8)
        assert float(found[name]["amount_low"]) < expected < float(found[name]["amount_high"])
    assert {found["dee"][key] for key in ("amount", "amount_low", "amount_high", "fixed", "paid")} == {"150.00"}
    assert sum(Decimal(line["amount"]) for line in found.values()) == 1000
    printed = diffcredit.printed("statements", paying)
    assert "4 statements" in printed
    folder = paying / "results" / "statements"
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        f"{name}.{kind}" for name in found for kind in ("html", "json")
    )
    assert {name: json.loads((folder / f"{name}.json").read_text())["row"]["amount"] for name in found} == {
        name: line["amount"] for name, line in found.items()
    }


def test_the_same_files_again(diffcredit, paying):
    diffcredit.printed("payout", paying, "--pool", "1000.00", "--period", "a")
    diffcredit.printed("statements", paying)
    before = written(paying)
    results = paying / "results"
    for name in [*before[0]]:
        if name.startswith(("results/payout", "results/statements")):
            (paying / name).unlink()
    diffcredit.printed("statements", paying, "--period", "a")
    assert written(paying) == before
    diffcredit.printed("payout", paying, "--pool", "500.00", "--period", "b")
    assert (results / "payouts.csv").read_bytes() != before[0]["results/payouts.csv"]
    last = (results / "payouts.csv").read_bytes(), (results / "payout.html").read_bytes()
    diffcredit.printed("statements", paying, "--period", "a")
    assert ((results / "payouts.csv").read_bytes(), (results / "payout.html").read_bytes()) == last
    for name in ("payouts.csv", "payout.html"):
        stem, _, ending = name.partition(".")
        assert (results / f"{stem}-a.{ending}").read_bytes() == before[0][f"results/{name}"]
    for name, data in before[0].items():
        if name.startswith("results/statements"):
            assert (paying / name).read_bytes() == data


def test_the_same_credits_give_the_same_bytes(diffcredit, paying, tmp_path):
    """Two payouts of one ledger in two folders: but for times and hashes of the ledger, all is the same."""
    other = shutil.copytree(paying, tmp_path / "other")
    for folder in (paying, other):
        diffcredit.printed("payout", folder, "--pool", "777.77")
    assert (paying / "results/payouts.csv").read_bytes() == (other / "results/payouts.csv").read_bytes()


AFTERWARDS = "The policy was entered after the first evaluations"


def pages(folder):
    """The text of every page of a payout, by its file's name."""
    return {page.name: page.read_text() for page in (folder / "results").rglob("*.html")}


def test_a_policy_that_is_entered_after_evaluations(diffcredit, paying):
    """It is accepted once, and every page says so."""
    content = yaml.safe_load((paying / "study.yaml").read_text())
    (paying / "results" / "ledger.db").unlink()
    late = {"payout": None}
    evaluated(change(paying, late))
    assert rows(paying, ENTRIES) == []
    (paying / "study.yaml").write_text(yaml.safe_dump(content))
    assert AFTERWARDS[:37] in diffcredit.printed("payout", paying, "--pool", "100.00")
    diffcredit.printed("statements", paying)
    found = pages(paying)
    assert len(found) == 5
    assert all(AFTERWARDS in page for page in found.values())
    assert not any("before the ledger’s first evaluation" in page for page in found.values())
    change(paying, {"payout.r": 0.1})
    assert "there are evaluations since" in diffcredit.refused("payout", paying, "--pool", "1", "--period", "b")


def test_a_reason_is_on_every_page(diffcredit, paying):
    (paying / "results" / "ledger.db").unlink()
    evaluated(change(paying, {"payout.verdict": "pay by it"}))
    reason = "<b>Because</b> we & they {{ 7 * 7 }} agreed"
    diffcredit.printed("payout", paying, "--pool", "100.00", "--despite", f"  {reason} ")
    diffcredit.printed("statements", paying)
    found = pages(paying)
    assert len(found) == 5
    for page in found.values():
        assert "“&lt;b&gt;Because&lt;/b&gt; we &amp; they {{ 7 * 7 }} agreed”" in page
        assert AFTERWARDS not in page
    # a reason that was not needed is recorded, and not repeated
    (paying / "results" / "ledger.db").unlink()
    evaluated(change(paying, {"payout.verdict": None}))
    diffcredit.printed("payout", paying, "--pool", "100.00", "--despite", "not needed")
    assert "not needed" not in pages(paying)["payout.html"]
    assert json.loads(rows(paying, ENTRIES)[-2][2])["despite"] == "not needed"
