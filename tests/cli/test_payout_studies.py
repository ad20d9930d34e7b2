"""Payouts and statements of whole studies whose contributors' true credits are known."""

import csv
import hashlib
import json
import re
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
import yaml
from PIL import Image, ImageOps

from contributions.near_copies_made import picture
from diffcredit.contributions.near_copies.rules import EARLIER
from diffcredit.payout.paying import recorded_payout
from diffcredit.study.study import Study
from paid_study import POLICY, WORTHS, evaluated, stated
from tiny_study import SMALL, changed, rows, write_small, write_study

CENT = Decimal("0.01")


def change(folder, changes):
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), changes), allow_unicode=True))
    return file


def table(folder, name="payouts.csv"):
    with (folder / "results" / name).open(encoding="utf-8", newline="") as file:
        return {line["contributor"]: line for line in csv.DictReader(file)}


def amounts(folder):
    return {name: Decimal(line["amount"]) for name, line in table(folder).items()}


def statements(folder):
    found = (json.loads(file.read_text()) for file in (folder / "results" / "statements").glob("*.json"))
    return {each["contributor"]: each for each in found}


def test_from_a_run_to_a_statement_that_verifies(diffcredit, tmp_path):
    """Really trained, measured and paid, by commands alone."""
    policy = {**POLICY, "fixed": "images", "statement": {"payer": "Acme Ltd", "objections": "Write to us."}}
    file = write_small(tmp_path, {"payout": policy})
    diffcredit.printed("run", file, "--workers", 1)
    kinds = [kind for (kind,) in rows(tmp_path, "SELECT kind FROM chain ORDER BY number")]
    assert kinds.index("entry") < kinds.index("evaluation")
    arguments = ("--pool", "1000.00", "--despite", "a tiny study")
    diffcredit.printed("payout", file, *arguments)
    diffcredit.printed("statements", file)
    paid = amounts(tmp_path)
    assert sum(paid.values()) == 1000
    for name, found in statements(tmp_path).items():
        assert Decimal(found["row"]["amount"]) == paid[name]
        assert found["payout"]["before_evaluations"]
        assert found["payout"]["despite"] == "a tiny study"
        assert len(found["images"]) == found["row"]["images_used"] == 6
        digests = sorted(image["sha256"] for image in found["images"])
        assert hashlib.sha256("\n".join(digests).encode()).hexdigest() == found["row"]["works"]
        assert "rows, all unchanged" in diffcredit.printed("verify", file, "--head", found["head"])
        own, originals = tmp_path / "results" / "statements" / f"{name}.json", tmp_path / "images" / name
        said = diffcredit.printed("check", own, "--images", originals, "--head", found["head"])
        assert said.count(f" is {originals}") == 6
    # the run goes on, and the head on a statement still holds
    diffcredit.printed("run", change(tmp_path, {"stop.evaluations": 9}), "--workers", 1)
    assert "all unchanged" in diffcredit.printed("verify", file, "--head", found["head"])
    assert "was paid on" in diffcredit.refused("payout", file, *arguments)


def test_a_copier_who_is_found_gains_nothing(diffcredit, tmp_path):
    """Really trained and paid twice: without the copies, and with copies that the rule finds. All amounts are equal."""
    policy = {**POLICY, "fixed": "images", "merit": "least"}
    folders = honest, copied = tmp_path / "honest", tmp_path / "copied"
    for folder in folders:
        write_study(folder, {**SMALL, "payout": policy, "contributions.path": "images"})
        for place, who in enumerate(("ann", "ben", "cyd")):
            (folder / "images" / who).mkdir(parents=True)
            for number in range(4):
                picture_of(10 * place + number).save(folder / f"images/{who}/{number}.png")
    edits = (lambda it: it.resize((48, 48)), ImageOps.mirror, lambda it: it.crop((3, 3, 61, 61)), lambda it: it)
    dates = [f"{who}/{number}.png,2026-01-0{number + 1}" for who in ("ann", "ben", "cyd") for number in range(4)]
    for number, edit in enumerate(edits):  # Ben's copies of all that Ann gave
        edit(picture_of(number)).save(copied / f"images/ben/copy-{number}.png")
        dates.append(f"ben/copy-{number}.png,2026-02-01")
    (copied / "dates.csv").write_text("\n".join(["file_name,date", *dates]))
    change(copied, {"contributions.near_copies": {"credit": "first", "dates": "dates.csv"}})
    for folder in folders:
        diffcredit.printed("run", folder / "study.yaml", "--workers", 1)
        diffcredit.printed("payout", folder / "study.yaml", "--pool", "1000.00", "--despite", "a tiny study")
    assert amounts(copied) == amounts(honest)
    assert len(set(amounts(honest).values())) > 1
    works = statements_of(diffcredit, copied)["ben"]["row"]
    assert (works["images_used"], works["images_given"]) == (4, 8)
    assert works["excluded"] == {EARLIER: 4}


def statements_of(diffcredit, folder):
    diffcredit.printed("statements", folder / "study.yaml")
    return statements(folder)


def picture_of(seed):
    return Image.fromarray(picture(seed))


def test_who_adds_nothing_gets_the_fixed_part_within_the_interval(tmp_path):
    worths = {"ann": 3.0, "bob": 2.0, "cy": 1.0, "nil": 0.0}
    inside = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        names = (*worths,)

        def game(coalition, random=random, names=names):
            return sum(worths[name] for name, here in zip(names, coalition, strict=True) if here) + random.normal(
                0, 0.3
            )

        file = evaluated(stated(tmp_path / str(seed), names=names), game=game)
        made = Study.load(file).payout(pool="1000.00", despite="whatever they show")
        row = made.row("nil")
        assert row.fixed == 150
        assert row.amount_low <= row.amount <= row.amount_high
        inside.append(row.amount_low <= 150 <= row.amount_high)
    assert sum(inside) >= 3


@pytest.mark.parametrize("merit", ["help", "least"])
@pytest.mark.parametrize("fixed", ["equal", "images"])
def test_twins_get_the_same_but_for_a_coin(tmp_path, merit, fixed):
    worths = {"ann": 2.0, "bob": 2.0, "cy": 1.0, "dee": 1.0, "eve": 0.0}
    changes = {"payout.merit": merit, "payout.fixed": fixed, "payout.r": 0.7}
    file = evaluated(stated(tmp_path, changes, names=tuple(worths)), worths, noise=0.0)
    paid = {row.contributor: row.amount for row in Study.load(file).payout(pool="100.03", despite="exact").rows}
    for first, second in (("ann", "bob"), ("cy", "dee")):
        assert paid[first] - paid[second] in (0, CENT)
    assert paid["ann"] > paid["cy"] > paid["eve"]
    # 70.021 of the 100.03 follow merits of 2, 2, 1, 1 and 0 above the untrained network, or the least helpful
    assert paid["ann"] == pytest.approx(Decimal(100.03 * (0.3 / 5 + 0.7 * 2 / 6)), abs=Decimal("0.02"))
    assert paid["eve"] == pytest.approx(Decimal(100.03 * 0.3 / 5), abs=Decimal("0.02"))


def test_merged_accounts_get_one_row(diffcredit, tmp_path):
    names, people = ("ann", "bob", "bob_2", "bob_3", "cy"), {"ann": 1.0, "Bob Ross": 2.0, "cy": 0.5}
    identities = {"Bob Ross": ["bob", "bob_2", "bob_3"]}
    file = stated(tmp_path, {"contributions.identities": identities, "payout.fixed": "images"}, names=names)
    evaluated(file, people)
    diffcredit.printed("payout", file, "--pool", "500.00", "--despite", "three people")
    diffcredit.printed("statements", file)
    found = statements(tmp_path)
    assert set(found) == set(people) == set(table(tmp_path))
    row = found["Bob Ross"]["row"]
    assert (row["accounts"], row["images_used"]) == (["bob", "bob_2", "bob_3"], 6)
    assert Decimal(row["fixed"]) == 180  # of 300, six of ten images
    assert found["ann"]["row"]["accounts"] == []
    page = (tmp_path / "results" / "statements" / "bob-ross.html").read_text()
    assert "They came from these accounts of yours" in page
    assert "bob_3" not in (tmp_path / "results" / "statements" / "ann.html").read_text()


@pytest.mark.parametrize("fixed", ["lots", "images", "equal"])
def test_lots_are_counted_and_paid_by_their_contributor(tmp_path, fixed):
    """Ann's five images are two lots of two and a rest of one; the others give two images each."""
    file = stated(tmp_path, {"contributions.lots": 2, "payout.fixed": fixed}, names=("bob", "cy"))
    stated(tmp_path, {"contributions.lots": 2, "payout.fixed": fixed}, names=("ann",), images=5)
    players = Study.load(file).contributions.contributors
    assert len(players) == 5
    worths = dict(zip(players, (1.0, 2.0, -0.5, 1.0, 0.25), strict=True))
    evaluated(file, worths, noise=0.01)
    made = Study.load(file).payout(pool="1000.00", despite="a few images")
    assert made.lot == 2
    assert {row.contributor: (row.images_used, row.lots) for row in made.rows} == {
        "ann": (5, 2),
        "bob": (2, 1),
        "cy": (2, 1),
    }
    weights = {"lots": (2, 1, 1), "images": (5, 2, 2), "equal": (1, 1, 1)}[fixed]
    merits = (3.0, 1.0, 0.25)  # Ann's rest makes the model worse: its merit is 0
    for row, weight, merit in zip(made.rows, weights, merits, strict=True):
        expected = 600 * weight / sum(weights) + 400 * merit / sum(merits)
        assert float(row.amount) == pytest.approx(expected, abs=4)
        assert row.worth == pytest.approx(merit, abs=0.05)
    assert made.row("ann").above == pytest.approx(2.5, abs=0.05)


def test_balances_over_three_periods_lose_no_coin(diffcredit, tmp_path):
    changes = {"payout.minimum": 60, "payout.rounding": "0.05"}
    file = evaluated(stated(tmp_path, changes))
    pools = {"2026-Q1": "100.05", "2026-Q2": "77.35", "2026-Q3": "150.00"}
    paid, carried = Counter(), {}
    for period, pool in pools.items():
        diffcredit.printed("payout", file, "--pool", pool, "--period", period)
        for name, line in table(tmp_path).items():
            numbers = {key: Decimal(line[key]) for key in ("opening", "amount", "paid", "carried")}
            assert numbers["opening"] == carried.get(name, 0)
            assert numbers["opening"] + numbers["amount"] == numbers["paid"] + numbers["carried"]
            due = numbers["opening"] + numbers["amount"]
            assert (numbers["paid"], numbers["carried"]) == ((due, 0) if due >= 60 else (0, due))
            carried[name] = numbers["carried"]
            paid[name] += numbers["paid"]
            assert (line["period"], line["currency"]) == (period, "EUR")
    assert sum(paid.values()) + sum(carried.values()) == sum(Decimal(pool) for pool in pools.values())
    assert any(carried.values())
    assert all(carried[name] < 60 for name in WORTHS)


NAMES = ("=1+1", "-dash", "'quoted", "<b>Bob", "bob", "Bob", "Émile", "نور", "山田 🎨", "a,b;c")


def test_an_earlier_table_hands_balances_on_under_every_name(diffcredit, tmp_path):
    """Names that a spreadsheet would run come back as they were."""
    worths = dict(zip(NAMES, np.linspace(4, -0.5, len(NAMES)), strict=True))
    old = stated(tmp_path / "old", {"payout.minimum": 1000}, names=NAMES)
    evaluated(old, worths)
    diffcredit.printed("payout", old, "--pool", "500.00", "--despite", "names")
    new = stated(tmp_path / "new", names=NAMES)
    evaluated(new, worths)
    balances = tmp_path / "old" / "results" / "payouts.csv"
    carried = {row.contributor: row.carried for row in recorded_payout(Study.load(old)).payout.rows}
    assert sum(carried.values()) == 500
    diffcredit.printed("payout", new, "--pool", "300.00", "--balance", balances, "--despite", "names")
    made = recorded_payout(Study.load(new)).payout
    assert {row.contributor: row.opening for row in made.rows} == carried
    assert sum(row.paid for row in made.rows) == 800
    err = diffcredit.refused("payout", new, "--pool", "1.00", "--period", "b", "--balance", balances)
    assert "was carried forward from study. The ledger knows the balances of its own payouts" in err
    diffcredit.printed("statements", new)
    files = [file.name for file in (tmp_path / "new" / "results" / "statements").iterdir()]
    assert len({name.lower() for name in files}) == 2 * len(NAMES)
    assert all(re.fullmatch(r"[a-z0-9-]+\.(html|json)", name) for name in files)


def test_a_statement_has_nobody_else_s_numbers(diffcredit, tmp_path):
    """No other name, account, amount, number or hash of an image occurs in a page or a file, and no file's name."""
    names = ("annika", "bobolink", "bobolink_2", "cyrus", "deepika")
    worths = {"annika": 4.12345, "bobolink": 2.54321, "cyrus": 1.0777, "deepika": -1.3}
    changes = {"contributions.identities": {"bobolink": ["bobolink", "bobolink_2"]}, "payout.minimum": 150}
    file = evaluated(stated(tmp_path, changes, names=names), worths)
    diffcredit.printed("payout", file, "--pool", "1234.56", "--period", "q1")
    diffcredit.printed("payout", file, "--pool", "1234.56", "--period", "q2")
    diffcredit.printed("statements", file)
    made, study = recorded_payout(Study.load(file)).payout, Study.load(file)
    folder = tmp_path / "results" / "statements" / "q2"
    numbers = ("help", "help_low", "help_high", "above", "above_low", "above_high", "worth", "overtaken")
    money = ("fixed", "merit", "amount", "amount_low", "amount_high", "opening", "carried", "paid")
    for mine in made.rows:
        text = "".join((folder / f"{mine.contributor}.{kind}").read_text() for kind in ("html", "json"))
        assert str(mine.amount) in text.replace(",", "")
        own = {str(getattr(mine, key)) for key in (*numbers, *money)} | {"0.00"}
        for other in made.rows:
            if other is mine:
                continue
            assert other.contributor not in text
            assert not any(account in text for account in other.accounts)
            assert other.works not in text
            assert not any(digest in text for _, digest in study.contributions.works(other.contributor).images)
            for key in (*numbers, *money):
                value = str(getattr(other, key))
                if len(value) >= 5 and value not in own:  # a shorter one is anywhere
                    assert value not in text.replace(",", ""), (mine.contributor, key)


@pytest.mark.parametrize("policy", [{}, {"merit": "least", "fixed": "images", "floor": 100, "cap": 400}])
def test_the_same_study_gives_the_same_bytes(diffcredit, tmp_path, policy):
    """Made twice, from the images to the statements: but for times and the ledger's hashes, all is the same."""
    found = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        file = evaluated(stated(folder, {f"payout.{key}": value for key, value in policy.items()}))
        diffcredit.printed("payout", file, "--pool", "1000.00")
        diffcredit.printed("statements", file)
        made = recorded_payout(Study.load(file))
        # times, salts, and what follows from them: heads of the ledger, and paths to them
        own = [made.head, made.payout.head, made.payout.created, made.payout.entered, made.previous]
        own += [each for row in made.payout.rows for each in (row.salt, *made.proof.steps(row.contributor)["path"])]
        files = {}
        for path in sorted((folder / "results").rglob("*.*")):
            if path.suffix in (".csv", ".html", ".json"):
                text = path.read_bytes().decode()
                for each in own:
                    text = text.replace(each, "…")
                files[path.name] = re.sub(r"\d{4}-\d\d-\d\d, \d\d:\d\d UTC|\"index\": \d", "…", text)
        found.append(files)
    assert len(found[0]) == 10
    assert found[0] == found[1]
