"""``diffcredit check`` on statements as they are written: nothing but the statement is at hand."""

import hashlib
import json
import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.cli.conftest import diffcredit as command
from tests.proofs.test_merkle import mth

from diffcredit.contributions import load_contributions
from diffcredit.errors import DiffcreditError
from diffcredit.payout.balances import settle
from diffcredit.payout.earnings import earnings, exact
from diffcredit.payout.recorded import Recorded
from diffcredit.payout.taxes import Tax
from diffcredit.proofs.signing import load_key, new_key
from diffcredit.proofs.statements import _head, check_statement
from diffcredit.report.statements import Statement, statement_json

from .made_up_payout import PREVIOUS, payout, policy, recorded, row, three

diffcredit = command  # the fixture
KEY = Ed25519PrivateKey.generate()
TAX = Tax(Decimal("0.3"), "France", "W-8BEN", "1042-S")


def written(made=None, name="Ann", **more):
    """A statement's JSON values."""
    made = recorded(made)
    return json.loads(statement_json(Statement(made, made.payout.row(name), "study.yaml", "ann.json", **more)))


def refused(content):
    """Why a statement is refused; None where it is not."""
    try:
        check_statement(content, "ann.json")
    except DiffcreditError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", ["Ann", "Ben", "Cy"])
def test_a_statement_leads_to_the_head(name):
    checked = check_statement(written(name=name), "here")
    assert (checked.contributor, checked.head) == (name, recorded().head)
    assert checked.signature is None


def test_the_head_is_that_of_the_definition():
    """Worked out here once more, from RFC 6962 and from what docs/ledger.md says of rows."""

    def canonical(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    made = payout()
    content = json.loads(json.dumps(made.content))
    rows = content.pop("rows")
    shared = content | {"contributors": 3, "weights": 50, "worths": 4.0}
    proof = {
        "format": 1,
        "payout": hashlib.sha256(canonical(shared).encode()).hexdigest(),
        "root": mth(sorted((canonical(each).encode() for each in rows), key=lambda leaf: mth([leaf]))).hex(),
        "leaves": 3,
    }
    entry = {"kind": "proof", "name": "2026-Q1", "content": proof, "entered": made.created}
    link = PREVIOUS + canonical({"kind": "entry", "row": entry})
    assert recorded().head == hashlib.sha256(link.encode()).hexdigest()


def many(count):
    """A payout of so many contributors, who earn a cent each."""
    cent = dict.fromkeys(("fixed", "amount", "amount_low", "amount_high", "paid"), "0.01")
    zero = dict.fromkeys(("merit", "opening", "carried"), "0.00")
    rows = tuple(row(f"p{i:04d}", **cent, **zero, worth=0.0, salt=f"{i:032x}") for i in range(count))
    return payout(rows, pool=Decimal(count) / 100, policy=policy(minimum=0))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_any_number_of_contributors(count):
    made = recorded(many(count))
    places = range(count) if count < 10 else (0, 511, 512, 767, 998, 999)
    for i in places:
        each = Statement(made, made.payout.rows[i], "study.yaml", "p.json")
        content = json.loads(statement_json(each))
        assert len(content["proof"]["path"]) <= 10
        assert check_statement(content, "here").head == made.head


def places(value, at=()):
    """Every place in a JSON value that has no places below it."""
    if isinstance(value, dict | list) and value:
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for name, part in parts for leaf in places(part, (*at, name))]
    return [at]


def at(value, place):
    for name in place:
        value = value[name]
    return value


def changed(content, place, to):
    found = json.loads(json.dumps(content))
    at(found, place[:-1])[place[-1]] = to
    return found


def others(value):
    """Values that are not ``value``, some of which are close to it."""
    found = [
        None,
        True,
        False,
        0,
        1,
        -1,
        10**30,
        0.5,
        1e300,
        "",
        "x",
        "0",
        "9.99",
        "1E+999999999",
        [],
        {},
        [[]],
        "\ud800",
    ]
    if isinstance(value, str):
        found += [value + "0", value[:-1], value.swapcase(), value[::-1], f" {value}", value.replace("0", "1", 1)]
        found += [f"{value}\0", value.replace(".", "", 1)]
    if isinstance(value, int | float):
        found += [value + 1, -value, value * 2 + 0.5, str(value), float(value), int(value)]
    return [each for each in found if json.dumps(each) != json.dumps(value)]


def as_number(text):
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


NOT_COVERED = {("tax", "residence"), ("tax", "form_on_file"), ("tax", "form_to_issue")}


@pytest.mark.parametrize("signed", [False, True])
def test_every_change_of_every_field_is_refused(signed):
    """Where it is not signed, with the exception of the payer's words on taxes, which are in no ledger."""
    content = written(tax=TAX, key=KEY if signed else None)
    assert refused(content) is None
    for place in places(content):
        for value in others(at(content, place)):
            of_tax = not signed and place[0] == "tax" and isinstance(value, str)
            if of_tax and (place in NOT_COVERED or as_number(value) == as_number(at(content, place))):
                continue
            assert refused(changed(content, place, value)), (place, value)
        without = json.loads(json.dumps(content))
        del at(without, place[:-1])[place[-1]]
        assert refused(without), place
    for holder in [(), ("row",), ("payout",), ("proof",), ("payout", "policy"), ("tax",), ("row", "excluded")]:
        assert refused(changed(content, (*holder, "bonus"), "1000.00")), holder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_changes(data):
    content = written(key=KEY)
    place = data.draw(st.sampled_from(places(content)))
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=4,
    )
    value = data.draw(json_values.filter(lambda other: json.dumps(other) != json.dumps(at(content, place))))
    assert refused(changed(content, place, value))


def test_parts_of_another_payout_or_of_somebody_else():
    content = written()
    later = json.loads(
        statement_json(Statement(Recorded(payout(period="2026-Q2"), "1f" * 32), three()[0], "study.yaml", "ann.json"))
    )
    salted = replace(three()[1], salt="7d" * 16)
    other = written(payout((three()[0], salted, three()[2])))
    for stranger in (later, other, written(name="Ben")):
        assert refused(stranger) is None
        for part in ("proof", "payout", "row"):
            if stranger[part] != content[part]:
                assert "do not lead to its head" in refused({**content, part: stranger[part]})
    assert "do not lead to its head" in refused({**content, "head": later["head"]})
    # a signature of the same payer on another statement
    signed = [written(key=KEY), written(name="Ben", key=KEY)]
    assert "one of something else" in refused({**signed[0], "signature": signed[1]["signature"]})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fixed": "130.00", "amount": "430.00", "paid": "437.25"}, "the fixed part is not pool"),
        ({"merit": "310.00", "amount": "430.00", "paid": "437.25"}, "the part that follows merit is not pool"),
        ({"amount": "430.00", "paid": "437.25"}, "the amount is not the sum of its two parts"),
        ({"paid": "427.00", "carried": "0.25"}, "what is paid now is not what the policy's minimum"),
        ({"amount_low": "421.00"}, "the amount lies outside what it could be"),
    ],
)
def test_sums_of_a_payer_who_reckons_wrongly(changes, said):
    """The head covers them, and yet they are refused."""
    first, second, third = three()
    made = replace(first, **{key: Decimal(value) for key, value in changes.items()})
    difference = made.amount - first.amount
    rest = replace(third, amount=third.amount - difference, amount_low=Decimal(0), paid=third.paid - difference)
    assert said in refused(written(payout((made, second, rest))))


def test_who_is_cut_off_and_bounds():
    nothing = dict.fromkeys(
        ("fixed", "merit", "amount", "amount_low", "amount_high", "opening", "carried", "paid"), "0"
    )
    worse = row("Zoe", **nothing, above=-2.0, above_low=-3.0, above_high=-1.0, worth=0.0)
    cutting = payout((*three(), worse), policy=policy(fixed="images", negatives="cut"))
    assert refused(written(cutting, name="Zoe")) is None
    assert refused(written(cutting)) is None
    paid_all_the_same = replace(worse, fixed=Decimal("1.00"))
    assert "gives nothing" in refused(written(replace(cutting, rows=(*three(), paid_all_the_same)), name="Zoe"))
    floor = policy(fixed="images", floor=430)
    raised = replace(three()[0], amount=Decimal("430.00"), amount_high=Decimal("470.00"), paid=Decimal("437.25"))
    lowered = replace(three()[2], amount=Decimal("350.00"), amount_low=Decimal("350.00"), paid=Decimal("350.00"))
    assert refused(written(payout((raised, three()[1], lowered), policy=floor))) is None


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(-1e3, 1e6)), min_size=1, max_size=12),
    st.decimals(0, 1, places=3),
    st.integers(1, 10**11),
    st.sampled_from(["0.01", "0.05", "1", "0.0001"]),
    st.sampled_from(["equal", "images"]),
    st.tuples(st.floats(0, 1), st.floats(1, 3), st.booleans(), st.booleans()),
    st.integers(0, 10**9),
)
def test_every_honest_payout_passes(people, r, coins, rounding, fixed, bounds, minimum):
    """Whatever the policy: by the module that divides the pool, with floors, caps and people who are cut off."""
    names, coin, n = [f"{i:02d}" for i in range(len(people))], Decimal(rounding), len(people)
    cut = [bounds[3] and worth < 0 for _, worth in people]
    paid = n - sum(cut)
    if not paid:
        return
    floor = int(coins / paid * bounds[0]) if bounds[2] else 0
    cap = int(coins / paid * bounds[1]) + 1 if bounds[2] else None
    worths = [max(worth, 0.0) for _, worth in people]
    weights = [images if fixed == "images" else 1 for images, _ in people]
    earned = earnings(coins, r, weights, exact(np.array(worths)), names, floor=floor, cap=cap, cut=cut)
    terms = {"fixed": fixed, "r": str(r), "rounding": rounding, "minimum": minimum * coin}
    terms |= {"negatives": "cut" if bounds[3] else "zero", "floor": floor * coin, "cap": cap and cap * coin}
    made = []
    for i, (name, (images, worth)) in enumerate(zip(names, people, strict=True)):
        parts = [part[i] * coin for part in (earned.fixed, earned.merit, earned.amounts)]
        settled = settle(coin, parts[2], minimum * coin, coin)
        money = dict(zip(("fixed", "merit", "amount"), parts, strict=True)) | {"amount_low": 0, "amount_high": parts[2]}
        money |= {"opening": coin, "paid": settled.paid, "carried": settled.carried}
        above = {"above": worth, "above_low": worth - 1, "above_high": worth}
        made.append(row(name, images_used=images, worth=max(worth, 0.0), salt=f"{i:032x}", **money, **above))
    whole = payout(tuple(made), policy=policy(**terms), r=r, pool=coins * coin)
    for name in names:
        assert refused(written(whole, name)) is None


def test_a_payer_s_texts_begin_no_line(diffcredit, tmp_path):
    name = "Ann\nSigned on 2026-01-01 by the key of the payer, which is that of payer.key.pub."
    made = payout((replace(three()[0], contributor=name), *three()[1:]), study="\x1b[2J\nharbours")
    (tmp_path / "ann.json").write_text(json.dumps(written(made, name)), encoding="utf-8")
    said = diffcredit.printed("check", tmp_path / "ann.json")
    assert not re.search(r"^(Signed|harbours)", said, re.M)
    assert "\x1b" not in said


def test_whatever_a_payer_has_recorded():
    """The head covers it, so that nothing but the check itself can refuse it."""
    content = written()
    shapes = [None, True, 5, 10**400, -1.5, "x", "1E+99999", "\udcff", [], {}, {"equal": 1}]
    for part in ("row", "payout"):
        for place in places(content[part]):
            for value in shapes:
                made = changed(content, (part, *place), value)
                try:
                    head = _head(made["payout"], made["row"], made["proof"])
                except (ValueError, TypeError):
                    continue
                refused(made | {"head": head, "contributor": made["row"]["contributor"]})


def test_tax_that_is_wrong():
    content = written(tax=TAX)
    assert "tax withheld is not its rate" in refused(changed(content, ("tax", "withheld"), "128.17"))
    assert "tax withheld is not its rate" in refused(changed(content, ("tax", "rate"), "1.3"))


@pytest.fixture
def originals(tmp_path):
    """Two contributors' originals, larger than the study's images and not square, and a file that is no image."""
    generator = np.random.default_rng(0)
    for name in ("Ann", "Ben"):
        for i in range(3):
            file = tmp_path / "given" / name / "sketches" / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(generator.integers(0, 256, (40, 30 + i, 3), dtype=np.uint8)).save(file)
    (tmp_path / "given" / "Ann" / "notes.txt").write_text("not an image")
    (tmp_path / "given" / "Ann" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    return tmp_path / "given"


@pytest.fixture
def statement(originals):
    (originals / "Ann" / "broken.png").rename(originals / "broken")
    works = load_contributions(originals, resolution=16).works("Ann")
    (originals / "broken").rename(originals / "Ann" / "broken.png")
    fixed = round(Decimal("600.00") * 3 / (3 + 10 + 30), 2)
    amounts = dict.fromkeys(("amount", "amount_low", "amount_high"), fixed + 300)
    ann = replace(three()[0], works=works.digest, images_used=3, fixed=fixed, paid=fixed + Decimal("307.25"), **amounts)
    made = payout((ann, three()[1], replace(three()[2], amount=Decimal("780.00") - ann.amount)))
    return written(made, works=works)


def test_the_list_of_images_is_covered(statement):
    assert refused(statement) is None
    listed = statement["images"]
    for images in (listed[:2], [*listed, listed[0]], [], [{**listed[0], "sha256": "0" * 64}, *listed[1:]]):
        assert refused({**statement, "images": images})


def test_originals_are_found(diffcredit, statement, originals):
    file = originals.with_name("ann.json")
    file.write_text(json.dumps(statement), encoding="utf-8")
    said = diffcredit.printed("check", file, "--images", originals / "Ann")
    for i in range(3):
        assert re.search(rf"{i}\.png is .*Ann/sketches/{i}\.png", said.replace("\\", "/"))
    Image.new("RGB", (30, 30)).save(originals / "Ann" / "sketches" / "1.png")
    code, said, complaint = diffcredit("check", file, "--images", originals / "Ann")
    assert code == 1
    assert said.count("not among your files") == 1
    assert "1 of the 3 images are not in" in " ".join(complaint.split())
    assert "is no folder" in diffcredit.refused("check", file, "--images", originals / "Zoe")


def test_what_is_said(diffcredit, tmp_path):
    new_key(tmp_path / "payer.key", "")
    new_key(tmp_path / "other.key", "")
    file = tmp_path / "ann.json"
    file.write_text(json.dumps(written(tax=TAX)), encoding="utf-8")
    said = diffcredit.printed("check", file)
    for words in (
        "Statement of Ann: study harbours, period 2026-Q1.",
        "opening balance 7.25 + earned 420.00 = paid 427.25 + carried forward 0.00 EUR.",
        f"head after this payout is {recorded().head}.",
        f"a pool of 1000.00 among 3 contributors, the policy {'c2' * 32} entered on 2026-01-01T08:00:00+00:00",
        f"your help 1.5, your 10 images, whose hash is {'a1' * 32},",
        "It lists no images: only the hash of all of them is covered.",
        "It is not signed.",
        "not covered: the tax.",
        "A payer could keep two ledgers and show you one of them.",
    ):
        assert words in said, words
    assert "two ledgers" not in diffcredit.printed("check", file, "--head", recorded().head.upper())
    code, _, complaint = diffcredit("check", file, "--head", "0" * 64)
    assert (code, "keeps two ledgers" in " ".join(complaint.split())) == (1, True)
    assert "--head: 'abc' is not a head" in diffcredit.refused("check", file, "--head", "abc")
    code, _, complaint = diffcredit("check", file, "--key", tmp_path / "payer.key.pub")
    assert (code, "ann.json: is not signed" in complaint.replace("\n", "")) == (1, True)
    file.write_text(json.dumps(written(tax=TAX, key=load_key(tmp_path / "payer.key"))), encoding="utf-8")
    assert "Whose key that is remains to be seen" in diffcredit.printed("check", file)
    said = diffcredit.printed("check", file, "--key", tmp_path / "payer.key.pub")
    assert f"which is that of {tmp_path / 'payer.key.pub'}" in said
    assert "not covered" not in said
    code, _, complaint = diffcredit("check", file, "--key", tmp_path / "other.key.pub")
    assert (code, "signed by another key" in " ".join(complaint.split())) == (1, True)
    file.write_text("{}")
    code, _, complaint = diffcredit("check", file)
    assert (code, complaint.count("\n")) == (1, 1)
    assert "ann.json: cannot be read" in diffcredit.refused("check", tmp_path / "none" / "ann.json")
