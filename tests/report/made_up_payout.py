"""A made-up payout whose amounts can be checked by hand."""

from decimal import Decimal
from typing import Any

from diffcredit.payout.recorded import Recorded
from diffcredit.payout.records import Payout, Row
from diffcredit.study.policy import PolicySection

PREVIOUS = "b0" * 32


def policy(**changes: Any) -> dict[str, Any]:
    stated = {
        "property": "colourfulness",
        "fixed": "images",
        "merit": "help",
        "r": "0.4",
        "currency": "EUR",
        "minimum": 250,
    }
    return PolicySection.model_validate(stated | changes).terms


def row(contributor: str, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "contributor": contributor,
        "accounts": (),
        "images_used": 10,
        "images_given": 12,
        "excluded": {"held out to measure the model": 2},
        "works": "a1" * 32,
        "lots": None,
        "help": 1.5,
        "help_low": 0.5,
        "help_high": 2.5,
        "rank": 1,
        "rank_low": 1,
        "rank_high": 2,
        "above": 3.0,
        "above_low": 2.0,
        "above_high": 4.0,
        "worth": 3.0,
        "overtaken": 0.125,
        "reason": "",
        "salt": "9c" * 16,
    }
    money = {"fixed": "200.00", "merit": "300.00", "amount": "500.00", "amount_low": "450.00", "amount_high": "560.00"}
    money |= {"opening": "7.25", "carried": "0.00", "paid": "507.25"}
    values |= {name: Decimal(amount) for name, amount in money.items()}
    decimals = {name: Decimal(value) for name, value in changes.items() if name in money}
    return Row(**values | changes | decimals)


def three() -> tuple[Row, ...]:
    """Ann, Ben and Cy gave 10, 10 and 30 images and have merits of 3, 1 and 0."""
    ann = {"fixed": "120.00", "merit": "300.00", "amount": "420.00", "paid": "427.25"}
    ann |= {"amount_low": "380.00", "amount_high": "470.00"}
    ben = {"fixed": "120.00", "merit": "100.00", "amount": "220.00", "amount_low": "190.00", "amount_high": "260.00"}
    ben |= {"opening": "0.00", "paid": "0.00", "carried": "220.00"}
    ben |= {"help": -0.5, "help_low": -1.5, "help_high": 0.5, "rank": 2, "rank_low": 1, "rank_high": 3}
    ben |= {"worth": 1.0, "above": 1.0, "above_low": 0.0, "above_high": 2.0, "images_given": None, "excluded": {}}
    ben |= {"reason": "Carried forward: 220.00 is below the minimum payment of 250.00."}
    cy = {"fixed": "360.00", "merit": "0.00", "amount": "360.00", "amount_low": "360.00", "amount_high": "360.00"}
    cy |= {
        "opening": "0.00",
        "paid": "360.00",
        "images_used": 30,
        "images_given": 30,
        "excluded": {},
        "overtaken": None,
    }
    cy |= {"help": -2.0, "help_low": -3.0, "help_high": -1.0, "rank": 3, "rank_low": 3, "rank_high": 3}
    cy |= {"worth": 0.0, "above": -1.0, "above_low": -2.0, "above_high": 0.5}
    return row("Ann", **ann), row("Ben", **ben), row("Cy", **cy)


def payout(rows: tuple[Row, ...] | None = None, **changes: Any) -> Payout:
    values: dict[str, Any] = {
        "study": "harbours",
        "period": "2026-Q1",
        "created": "2026-03-31T10:20:30+00:00",
        "policy": policy(),
        "policy_hash": "c2" * 32,
        "entered": "2026-01-01T08:00:00+00:00",
        "before_evaluations": True,
        "texts": {"payer": "Acme Ltd", "model": "Acme Paint 2", "licence": "Licence 3.1", "objections": "write to us."},
        "pool": Decimal("1000.00"),
        "currency": "EUR",
        "title": "Colourfulness",
        "explanations": {"Colourfulness": "How vivid the images are."},
        "higher_is_better": True,
        "reference": "the model of the house images alone",
        "reference_kind": "house",
        "full": 13.0,
        "empty": 10.0,
        "method": "shapley",
        "evaluations": 64,
        "finished": True,
        "confidence": 0.95,
        "level": "pay by it",
        "verdict": "The credits passed their test.",
        "tested": "The credits passed their test.",
        "despite": "",
        "r": Decimal("0.4"),
        "r_words": "The policy states it.",
        "moved": Decimal("31.40"),
        "data": "d3" * 32,
        "resolution": 16,
        "recipe": "e4" * 32,
        "weights": "f5" * 32,
        "lot": None,
        "head": "a9" * 32,
    }
    return Payout(**values | changes, rows=three() if rows is None else rows)


def recorded(made: Payout | None = None) -> Recorded:
    return Recorded(payout() if made is None else made, PREVIOUS)


HEAD = recorded().head
