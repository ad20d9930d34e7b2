"""Statements: sums that can be typed in, nobody else's numbers, hostile texts, files, and a page in a browser."""

import html
import json
import re
import shlex
import shutil
import string
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from diffcredit.payout.earnings import earnings, exact
from diffcredit.payout.taxes import Tax
from diffcredit.proofs.signing import PublicKey
from diffcredit.report.calculation import steps
from diffcredit.report.statements import Statement, file_names, render_statement, statement_json

from .made_up import HOSTILE, Page
from .made_up_payout import HEAD, payout, policy, recorded, row, three

CHROMIUM = shutil.which("chromium")


def statement(made=None, name="Ann"):
    made = made or payout()
    return Statement(recorded(made), made.row(name), "study.yaml", "ann.json")


def words(made=None, name="Ann"):
    return " ".join(Page(render_statement(statement(made, name))).text.split())


def typed_in(sum_: str) -> Fraction:
    """What a pocket calculator makes of a sum on a statement."""
    powers = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    text = re.sub(r"\u202f×\u202f10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda found: f"e{found[1].translate(powers)}", sum_)
    text = text.replace(",", "").replace("−", "-").replace("×", "*").replace("÷", "/")
    assert re.fullmatch(r"[\d.()*/ e-]+", text), text
    values: list[Fraction] = []
    operators: list[str] = []
    for part in re.sub(r"\(1 - ([\d.]+)\)", lambda found: str(1 - Decimal(found[1])), text).split():
        if part in "*/":
            operators.append(part)
        else:
            values.append(Fraction(part))
    result = values[0]
    for operator, value in zip(operators, values[1:], strict=True):
        result = result * value if operator == "*" else result / value
    return result


@pytest.mark.parametrize(
    ("name", "sums"),
    [
        ("Ann", ["1,000.00 × (1 − 0.4) × 10 ÷ 50", "1,000.00 × 0.4 × 3.0 ÷ 4.0"]),
        ("Ben", ["1,000.00 × (1 − 0.4) × 10 ÷ 50", "1,000.00 × 0.4 × 1.0 ÷ 4.0"]),
        ("Cy", ["1,000.00 × (1 − 0.4) × 30 ÷ 50", "1,000.00 × 0.4 × 0.0 ÷ 4.0"]),
    ],
)
def test_the_sums_are_those_of_the_policy(name, sums):
    made = payout()
    found = steps(made, made.row(name))
    assert [step.sum for step in found] == sums
    assert [typed_in(step.sum) for step in found] == [step.amount for step in found]
    text = words(name=name)
    for sum_ in sums:
        assert f"= {sum_}" in text


@example([(1, 826893.0), (1, 2669.25)], Decimal("0.654"), 1338427, "equal")  # rounding down by nearly a coin
@example([(1, 0.0), (1, 0.0), (277, 1.0)], Decimal("0.001"), 590471, "images")  # rounded up by more than a coin
@example([(1, 188596.9375), (1, 443308.5)], Decimal("0.565"), 2418959, "equal")
@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1e6)), min_size=2, max_size=30),
    st.decimals(0, 1, places=3),
    st.integers(1, 10**11),
    st.sampled_from(["equal", "images"]),
)
def test_every_sum_shown_gives_the_amount_within_a_coin(people, r, cents, fixed):
    names = [f"{i:02d}" for i in range(len(people))]
    worths = [worth for _, worth in people]
    weights = [images if fixed == "images" else 1 for images, _ in people]
    earned = earnings(cents, r, weights, exact(np.array(worths)), names)
    coins = [[Decimal(part) / 100 for part in each] for each in (earned.fixed, earned.merit, earned.amounts)]
    rows = tuple(
        row(name, images_used=images, worth=worth, fixed=a, merit=b, amount=c)
        for name, (images, worth), a, b, c in zip(names, people, *coins, strict=True)
    )
    made = payout(rows, policy=policy(fixed=fixed, r=str(r)), r=r, pool=Decimal(cents) / 100)
    for each in made.rows:
        for step in steps(made, each):
            assert not step.sum or abs(round(100 * typed_in(step.sum)) - 100 * step.amount) <= 1
            assert bool(step.sum) == bool(step.legend)
        assert steps(made, each)[0].sum


def test_a_statement_says_what_was_paid_why_and_how_to_check_it():
    text = words()
    for said in (
        "You earned EUR 420.00 in the period 2026-Q1. EUR 427.25 are paid now.",
        "divided among 3 contributors: 60 % by the number of images used (the fixed part), and 40 % by merit",
        "10 of all 50 images used are yours; 3.0 is your merit and 4.0 everybody’s together",
        "Your images help 1.5 more than those of the average contributor (95 % interval 0.5 to 2.5).",
        "1 of 3 by the estimate; anything from 1 to 2 is possible",
        "would give you between EUR 380.00 and EUR 470.00 (95 % interval)",
        "the contributor in the next place really helps more is 12 %",
        "The credits passed their test.",
        "10 of your images were used, of 12 that you gave. Not used: 2 held out to measure the model.",
        "on 2026-01-01, 08:00 UTC, before the ledger’s first evaluation",
        f"diffcredit verify study.yaml --head {HEAD}",
        "Measured on 64 models, each trained with the images of some contributors and without the others’.",
        "diffcredit check ann.json checks this statement’s JSON file on your machine",
        "“How to read your statement” in its documentation explains each line and check",
        "Licence 3.1",
        "If you object: write to us.",
        "Acme Ltd · Acme Paint 2 · 2026-Q1",
    ):
        assert said in text.replace("\xa0", " "), said


def test_other_outcomes():
    ben, cy = words(name="Ben").replace("\xa0", " "), words(name="Cy").replace("\xa0", " ")
    assert "Nothing is paid now; EUR 220.00 are carried forward." in ben
    assert "below the minimum payment of 250.00" in ben
    assert "Cannot be distinguished from the average contributor." in ben
    assert "How many you gave in all was not at hand" in ben
    assert "would very likely give you the same amount (95 % interval)." in cy
    assert "This amount does not depend on the credits." in words(payout(r=Decimal(0)), name="Cy")
    assert "Your images help 2.0 less than" in cy
    assert "3 of 3, and that is sure" in cy
    assert "all that you gave" in cy
    late = payout(before_evaluations=False, finished=False, level="do not use", despite="no other way")
    text = words(late)
    assert "entered after the first evaluations" in text
    assert "not finished" in text
    assert "“no other way”" in text
    assert "before the ledger’s first evaluation" not in text
    untrained = payout(reference_kind="untrained", texts=dict.fromkeys(("payer", "model", "licence", "objections"), ""))
    assert "an untrained network, which is nobody’s alternative" in words(untrained)
    assert "not stated by the payer" in words(untrained)


def test_nobody_elses_name_or_numbers():
    rows = three()
    for mine in rows:
        made = payout()
        page, data = words(made, mine.contributor), statement_json(statement(made, mine.contributor))
        for other in rows:
            if other is not mine:
                assert not re.search(rf"\b{other.contributor}\b", page + data)
                for amount in {other.amount, other.paid, other.merit} - {mine.fixed, mine.amount, mine.carried, 0}:
                    assert f"{amount}" not in page + data


def test_the_json_has_the_page_s_numbers():
    data = json.loads(statement_json(statement()))
    assert (data["format"], data["version"], data["contributor"], data["head"]) == (
        "diffcredit statement",
        1,
        "Ann",
        HEAD,
    )
    assert data["row"]["amount"] == "420.00"
    assert (data["payout"]["weights"], data["payout"]["worths"]) == (50, 4.0)
    assert "rows" not in data["payout"]
    assert data["payout"]["contributors"] == 3
    assert "images" not in data


def test_taxes_are_shown_and_change_nothing_else():
    made = replace(statement(), tax=Tax(Decimal("0.3"), "<b>France</b>", "W-8BEN", "1042-S"))
    text = " ".join(Page(render_statement(made)).text.split()).replace("\xa0", " ")
    assert "Paid now, before tax 427.25 Withheld for tax = 427.25 × 30 % −128.18 Transferred to you 299.07" in text
    assert (
        "The tax is as the payer states it; your residence: <b>France</b>; form on file: W-8BEN; form to be issued: "
        "1042-S. It is no part of the ledger." in text
    )
    data, plain = json.loads(statement_json(made)), json.loads(statement_json(statement()))
    texts = {"residence": "<b>France</b>", "form_on_file": "W-8BEN", "form_to_issue": "1042-S"}
    assert data.pop("tax") == {**texts, "rate": "0.3", "withheld": "128.18", "transferred": "299.07"}
    assert data == plain
    free = " ".join(Page(render_statement(replace(statement(), tax=Tax(Decimal(0))))).text.split())
    assert "Transferred to you 427.25" in free
    assert "The tax is as the payer states it. It is no part" in free
    assert "Transferred" not in words()


def test_the_command_is_one_that_a_reader_can_paste():
    """Whatever the payer's study file is called, a shell takes it as one file's name."""
    for name in ("study.yaml", "our study.yaml", "x; echo stolen #.yaml", "$(id).yaml", "it's.yaml"):
        made = Statement(recorded(), payout().row("Ann"), name, name)
        assert shlex.split(made.own_command) == ["diffcredit", "check", name]
        assert shlex.split(made.command) == ["diffcredit", "verify", name, "--head", HEAD]
        assert html.escape(made.command, quote=False) in html.unescape(render_statement(made)).replace("&", "&amp;")


def test_hostile_texts_are_only_text():
    for name in HOSTILE:
        rows = (replace(three()[0], contributor=name, accounts=HOSTILE, reason=name), *three()[1:])
        texts = dict.fromkeys(("payer", "model", "licence", "objections"), name)
        made = payout(rows, study=name, texts=texts, title=name, explanations={name: name}, despite=name, verdict=name)
        page = Page(render_statement(Statement(recorded(made), made.rows[0], name, name)))
        plain = Page(render_statement(statement()))
        assert not page.all("script")
        assert not page.all("img")
        assert page.contents["style"] == plain.contents["style"]
        assert not any(each.startswith("on") for _, attributes in page.elements for each in attributes)
        assert json.loads(statement_json(Statement(recorded(made), made.rows[0], name, name)))["contributor"] == name


@given(st.lists(st.text(min_size=1, max_size=80), unique=True, min_size=1, max_size=30))
def test_files_have_plain_names_that_no_two_share(names):
    found = file_names(names)
    assert len({name.lower() for name in found.values()}) == len(names)
    for file in found.values():
        assert set(file) <= set(string.ascii_lowercase + string.digits + "-")
        assert file[0] != "-"
        assert len(file) < 80
    assert file_names(names[:1])[names[0]].split("-")[0] == found[names[0]].split("-")[0]


def test_readable_names_stay():
    assert file_names(["Ada Lovelace", "Bob"]) == {"Ada Lovelace": "ada-lovelace", "Bob": "bob"}
    assert all(len(name) > 10 for name in file_names(["CON", "nul", "com1", "Aux"]).values())  # Windows' own
    apart = file_names(["Bob", "bob", "../../etc", "Émile"])
    assert apart["Bob"].startswith("bob-")
    assert apart["Bob"] != apart["bob"]
    assert apart["../../etc"].startswith("etc-")
    assert apart["Émile"].startswith("emile-")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
def test_a_statement_fits_a_phone_and_one_sheet_of_paper(tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    long = "Works were used under the contributor agreement of 2025, accepted on upload, and may be withdrawn. " * 2
    rows = (
        replace(three()[0], contributor="Ann " + "Mary-" * 20, accounts=("ann_1", "ann_2"), reason=long),
        *three()[1:],
    )
    texts = {"payer": "Acme Ltd", "model": "Acme Paint 2", "licence": long, "objections": long}
    late = {"before_evaluations": False, "level": "do not use", "despite": "no other way", "finished": False}
    made = payout(rows, texts=texts, **late)
    tax = Tax(Decimal("0.3"), "United States", "W-8BEN", "1042-S")
    file = tmp_path / "ann.html"
    key = Ed25519PrivateKey.generate()
    page = render_statement(Statement(recorded(made), made.rows[0], "study.yaml", "ann-mary.json", tax=tax, key=key))
    assert f"signed by the key {PublicKey.of(key).fingerprint}" in page
    file.write_text(page, encoding="utf-8")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 360, "height": 740})
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        pdf = page.pdf(prefer_css_page_size=True)
        browser.close()
    assert complaints == []
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1


def test_nobody_takes_the_file_of_somebody_else_s_statement():
    """Bob's page has a hash in its name because of bob; a third calls himself like that file."""
    names = ["bob", "Bob", "BOB"]
    for _ in range(2):
        names += [file for file in file_names(names).values() if file not in names]
    found = file_names(names)
    assert len(set(found.values())) == len(names)
    long = ["x" * 255, "x" * 254 + "y", "x" * 60]
    assert len(set(file_names(long).values())) == 3
