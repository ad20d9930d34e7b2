"""The ledger's contract as checks that every kind of database must pass.

Each check takes ``open_ledger``, which opens the same database at every call; at first it is empty::

    @pytest.mark.parametrize("check", LEDGER_CHECKS)
    def test_conformance(check, tmp_path):
        check(lambda: Ledger.open(tmp_path / "ledger.db"))
"""

import math
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import (
    ChangedRecord,
    Entry,
    Evaluation,
    Ledger,
    NonDeterminism,
    PropertyRecord,
    RecipeRecord,
    Value,
)
from diffcredit.proofs.rows import next_hash

OpenLedger = Callable[[], Ledger]

STUDY = "openmoji"
SETTINGS = {"data": {"resolution": 32}, "retraining": {"method": "sparsified", "steps": 100}, "seed": 0}
RECIPE = RecipeRecord("sparsified", SETTINGS, weights="abc")
QUALITY = PropertyRecord("quality", {"clusters": 20}, higher_is_better=True, state="def")
DIVERSITY = PropertyRecord("diversité «½»", {}, higher_is_better=False)
HEAD = "02c254355997e22b8411bbf8cc4e9981cc58b8338b86c1dd26bfc0e6bec6b5f4"
"""The head of what :func:`check_the_chain_is_the_same_everywhere` writes."""


def evaluation(coalition: str = "0110", quality: float = 0.5, diversity: float = 2.5) -> Evaluation:
    """Return a done evaluation of :data:`RECIPE` with a value for each of the two properties."""
    return Evaluation(
        coalition=coalition,
        replicate=0,
        purpose="estimate",
        status="done",
        values=(Value(QUALITY.name, quality, standard_error=0.1), Value(DIVERSITY.name, diversity)),
        error=None,
        numerics={"device": "cpu", "threads": 1},
        seconds={"training": 1.25, "sampling": 0.1, "measuring": 0.0},
        worker="machine:17",
        started="2025-01-31T12:00:00.000+00:00",
        finished="2025-01-31T12:00:01.350+00:00",
        versions={"torch": "2.6.0"},
    )


def failure(coalition: str = "0110", error: str = "Traceback: out of memory") -> Evaluation:
    """Return a failed attempt at the same evaluation."""
    return replace(evaluation(coalition), status="failed", values=(), error=error)


def register(ledger: Ledger) -> Ledger:
    """Enter the study, its recipe and its two properties, and return ``ledger``."""
    ledger.register_study(STUDY, {"contributors": ["a", "b", "c", "d"]})
    ledger.register_recipe(STUDY, RECIPE)
    ledger.register_property(STUDY, QUALITY)
    ledger.register_property(STUDY, DIVERSITY)
    return ledger


def check_what_is_recorded_comes_back(open_ledger: OpenLedger) -> None:
    recorded = [evaluation("0110"), failure("1111"), replace(evaluation("1111", 1.5), purpose="endpoint")]
    with register(open_ledger()) as ledger:
        assert all(ledger.record(STUDY, RECIPE.name, item) for item in recorded)
    with open_ledger() as ledger:
        assert ledger.evaluations(STUDY, RECIPE.name) == recorded
        assert ledger.evaluations(STUDY, RECIPE.name, status="failed") == recorded[1:2]
        assert ledger.evaluations(STUDY, RECIPE.name, status="done", purpose="estimate") == recorded[:1]
        assert ledger.evaluations(STUDY, RECIPE.name, purpose="truth") == []
        assert ledger.studies() == [STUDY]
        assert ledger.settings(STUDY) == {"contributors": ["a", "b", "c", "d"]}
        assert ledger.recipes(STUDY) == [RECIPE]
        assert ledger.properties(STUDY) == [QUALITY, DIVERSITY]


def check_numbers_come_back_bit_for_bit_in_the_order_of_recording(open_ledger: OpenLedger) -> None:
    numbers = [0.1 + 0.2, -1 / 3, 5e-324, sys.float_info.max, sys.float_info.epsilon, 2.0**53 + 2, 3.0, 0.0] * 8
    coalitions = [f"{(37 * index) % 64:06b}" for index in range(64)]
    with register(open_ledger()) as ledger:
        for coalition, number in zip(coalitions, numbers, strict=True):
            ledger.record(STUDY, RECIPE.name, evaluation(coalition, quality=number, diversity=-number))
        recorded = ledger.evaluations(STUDY, RECIPE.name)
    assert [item.coalition for item in recorded] == coalitions
    for number, item in zip(numbers, recorded, strict=True):
        back = [value.value for value in item.values]
        # minus zero is kept as zero
        assert struct.pack("<2d", *back) == struct.pack("<2d", number, -number if number else 0.0), number


def check_a_success_happens_once(open_ledger: OpenLedger) -> None:
    with register(open_ledger()) as ledger:
        assert ledger.record(STUDY, RECIPE.name, failure())
        assert ledger.record(STUDY, RECIPE.name, evaluation(quality=0.5))
        again = replace(evaluation(quality=0.5), worker="another:1", purpose="pilot")
        assert not ledger.record(STUDY, RECIPE.name, again)
        other, words = evaluation(quality=0.5 + 1e-9), ["0110", "quality", "0.5 ± 0.1", repr(0.5 + 1e-9)]
        _expect(NonDeterminism, words, lambda: ledger.record(STUDY, RECIPE.name, other))
        assert ledger.record(STUDY, RECIPE.name, replace(evaluation(quality=0.7), replicate=1))
        recorded = ledger.evaluations(STUDY, RECIPE.name)
    assert recorded == [failure(), evaluation(quality=0.5), replace(evaluation(quality=0.7), replicate=1)]


def check_values_may_come_later(open_ledger: OpenLedger) -> None:
    """A property measured later, or again after an error, is added to its evaluation."""
    late = PropertyRecord("late", {}, higher_is_better=True)
    both = evaluation()
    quality, diversity = both.values
    error = Value(diversity.property, None, error="no features")
    with register(open_ledger()) as ledger:
        assert ledger.record(STUDY, RECIPE.name, replace(both, values=(quality, error)))
        assert not ledger.record(STUDY, RECIPE.name, replace(both, values=(quality, error)))
        assert ledger.record(STUDY, RECIPE.name, both)
        assert ledger.evaluations(STUDY, RECIPE.name) == [both]
        assert not ledger.record(STUDY, RECIPE.name, replace(both, values=(error,)))
        ledger.register_property(STUDY, late)
        assert ledger.record(STUDY, RECIPE.name, replace(both, values=(Value("late", 7.0),)))
        whole = replace(both, values=(quality, diversity, Value("late", 7.0)))
        assert ledger.evaluations(STUDY, RECIPE.name) == [whole]


def check_an_evaluation_is_there_whole_or_not_at_all(open_ledger: OpenLedger) -> None:
    unknown = replace(evaluation(), values=(*evaluation().values, Value("unheard", 1.0)))
    with register(open_ledger()) as ledger:
        _expect(UserError, ["unheard", "quality"], lambda: ledger.record(STUDY, RECIPE.name, unknown))
        for number in (math.nan, math.inf, -math.inf):
            for value in (Value(QUALITY.name, number), Value(QUALITY.name, 1.0, standard_error=number)):
                item = replace(evaluation(), values=(value,))
                _expect(DiffcreditError, ["0110", "quality"], lambda i=item: ledger.record(STUDY, RECIPE.name, i))
        assert ledger.evaluations(STUDY, RECIPE.name) == []


def check_changes_under_the_same_name_are_refused(open_ledger: OpenLedger) -> None:
    changed = {"data": {"resolution": 32}, "retraining": {"method": "lora", "steps": 200}}
    named = ["sparsified", 'retraining.method "sparsified" → "lora"', "retraining.steps 100 → 200"]
    named += ["seed 0 → (absent)", "another name"]
    with register(open_ledger()) as ledger:
        register(ledger)
        _expect(UserError, named, lambda: ledger.register_recipe(STUDY, replace(RECIPE, settings=changed)))
        other_weights = replace(RECIPE, weights="xyz")
        _expect(UserError, ["weights", "abc", "xyz"], lambda: ledger.register_recipe(STUDY, other_weights))
        for other, words in (
            (replace(QUALITY, settings={"clusters": 8}), ["clusters 20 → 8"]),
            (replace(QUALITY, higher_is_better=False), ["higher_is_better true → false"]),
            (replace(QUALITY, state="xyz"), ["state", "def", "xyz"]),
        ):
            _expect(UserError, ["quality", *words], lambda o=other: ledger.register_property(STUDY, o))
        _expect(UserError, ["contributors"], lambda: ledger.register_study(STUDY, {"contributors": ["a"]}))
        assert ledger.recipes(STUDY) == [RECIPE]
        assert ledger.properties(STUDY) == [QUALITY, DIVERSITY]


def check_studies_and_recipes_do_not_mix(open_ledger: OpenLedger) -> None:
    truth = RecipeRecord("from_scratch", {"seed": 0})
    with register(open_ledger()) as ledger:
        ledger.register_recipe(STUDY, truth)
        ledger.register_study("other", {})
        ledger.register_recipe("other", replace(RECIPE, weights="xyz"))
        ledger.register_property("other", replace(QUALITY, state="xyz"))
        only_quality = replace(evaluation(quality=3.0), values=(Value(QUALITY.name, 3.0),))
        assert ledger.record(STUDY, RECIPE.name, evaluation(quality=1.0))
        assert ledger.record(STUDY, truth.name, evaluation(quality=2.0))
        assert ledger.record("other", RECIPE.name, only_quality)
        assert ledger.evaluations(STUDY, RECIPE.name) == [evaluation(quality=1.0)]
        assert ledger.evaluations(STUDY, truth.name) == [evaluation(quality=2.0)]
        assert ledger.evaluations("other", RECIPE.name) == [only_quality]
        _expect(UserError, ["lora", "sparsified", "from_scratch"], lambda: ledger.evaluations(STUDY, "lora"))
        _expect(UserError, ["unheard", "openmoji", "other"], lambda: ledger.recipes("unheard"))


def check_writers_take_turns(open_ledger: OpenLedger) -> None:
    """Several writers record the same evaluations: each is added once."""
    register(open_ledger()).close()
    items = [evaluation(f"{index:05b}", quality=index / 3) for index in range(32)]

    def write(_writer: int) -> int:
        with open_ledger() as own:
            return sum(own.record(STUDY, RECIPE.name, item) for item in items)

    with ThreadPoolExecutor(4) as writers:
        added = sum(writers.map(write, range(4)))
    with open_ledger() as ledger:
        recorded = ledger.evaluations(STUDY, RECIPE.name)
    assert added == len(items)
    assert sorted(recorded, key=lambda item: item.coalition) == items


def check_any_error_text_is_kept(open_ledger: OpenLedger) -> None:
    """A traceback may contain characters that no database accepts; the failure must be recorded nevertheless."""
    with register(open_ledger()) as ledger:
        assert ledger.record(STUDY, RECIPE.name, failure(error="zero \0 and half \ud83d of 🙂"))
        unmeasured = replace(evaluation(), values=(Value(QUALITY.name, None, error="\0"),))
        assert ledger.record(STUDY, RECIPE.name, unmeasured)
        failed, done = ledger.evaluations(STUDY, RECIPE.name)
    assert failed.error == "zero \\x00 and half \\ud83d of 🙂"
    assert done.values[0].error == "\\x00"


def check_new_evaluations_are_reported_once(open_ledger: OpenLedger) -> None:
    with register(open_ledger()) as ledger, open_ledger() as other:
        assert ledger.evaluations_since(STUDY, RECIPE.name, 0) == ([], 0)
        ledger.record(STUDY, RECIPE.name, evaluation("0001"))
        first, mark = other.evaluations_since(STUDY, RECIPE.name, 0)
        assert first == [evaluation("0001")]
        assert other.evaluations_since(STUDY, RECIPE.name, mark) == ([], mark)
        ledger.record(STUDY, RECIPE.name, failure("0010"))
        ledger.record(STUDY, RECIPE.name, evaluation("0010"))
        assert other.evaluations_since(STUDY, RECIPE.name, mark)[0] == [failure("0010"), evaluation("0010")]


def check_the_chain_is_the_same_everywhere(open_ledger: OpenLedger) -> None:
    """Every row has its link, and the head is the same on every machine and database."""
    with open_ledger() as ledger:
        ledger.register_study("another, whose rows have keys of the same tables", {})
        register(ledger)
        both = evaluation()
        error = Value(DIVERSITY.name, None, error="no features")
        ledger.record(STUDY, RECIPE.name, replace(both, values=(both.values[0], error)))
        ledger.record(STUDY, RECIPE.name, failure("1111"))
        ledger.record(STUDY, RECIPE.name, both)
        ledger.record(STUDY, RECIPE.name, both)
    with open_ledger() as ledger:
        found = ledger.audit(STUDY)
        assert found.problems == ()
        assert (found.rows, found.migrated) == (9, 0)
        assert found.head == HEAD, found.head
        assert (ledger.head(STUDY).number, ledger.head(STUDY).hash) == (9, HEAD)
        assert ledger.audit(STUDY, HEAD).problems == ()
        assert len(ledger.audit(STUDY, "0" * 64).problems) == 1
        _expect(UserError, ["unheard"], lambda: ledger.audit("unheard"))


def check_changed_rows_are_refused_by_all_readers_and_writers(open_ledger: OpenLedger) -> None:
    """And another study's are not."""
    with register(open_ledger()) as ledger:
        ledger.register_study("other", {"contributors": ["e"]})
        ledger.record(STUDY, RECIPE.name, evaluation())
        _execute(ledger, "UPDATE property_values SET value = 0.75 WHERE id = 1")
    with open_ledger() as ledger:
        policy = Entry("policy", "policy", {}, "2026-01-31T12:00:00+00:00")
        for action in (
            lambda: ledger.settings(STUDY),
            lambda: ledger.recipes(STUDY),
            lambda: ledger.properties(STUDY),
            lambda: ledger.entries(STUDY, "policy"),
            lambda: ledger.evaluations(STUDY, RECIPE.name),
            lambda: ledger.evaluations_since(STUDY, RECIPE.name, 0),
            lambda: ledger.done(STUDY, RECIPE.name, "0110", 0),
            lambda: ledger.head(STUDY),
            lambda: ledger.export(STUDY),
            lambda: ledger.record(STUDY, RECIPE.name, evaluation("0001")),
            lambda: ledger.enter(STUDY, policy, lambda known, evaluated: True),
            lambda: ledger.register_recipe(STUDY, RECIPE),
            lambda: ledger.register_property(STUDY, QUALITY),
            lambda: ledger.register_study(STUDY, {}),
        ):
            words = ["the record was changed: row 6 (value of 'quality') is not as it was written; diffcredit verify"]
            _expect(ChangedRecord, words, action)
        assert ledger.audit(STUDY).problems == ("row 6 (value of 'quality') is not as it was written",)
        assert ledger.settings("other") == {"contributors": ["e"]}
        _execute(ledger, "UPDATE property_values SET value = 0.5 WHERE id = 1")
        assert ledger.evaluations(STUDY, RECIPE.name) == [evaluation()]


def check_rows_that_were_read_are_missed_where_they_are_gone(open_ledger: OpenLedger) -> None:
    """Whoever has read the head notices that it is gone, and what was compared once is not read again."""
    with register(open_ledger()) as ledger:
        ledger.record(STUDY, RECIPE.name, evaluation("0001"))
        assert ledger.head(STUDY).number == 7
        _execute(ledger, "UPDATE property_values SET value = 0.75 WHERE id = 1")
        assert ledger.evaluations(STUDY, RECIPE.name) == [evaluation("0001")]
        _execute(ledger, "DELETE FROM property_values WHERE id = 2", "DELETE FROM chain WHERE number = 7")
        for _ in range(2):
            words = ["row 7 of the chain is not what it was when it was last read"]
            _expect(ChangedRecord, words, lambda: ledger.evaluations(STUDY, RECIPE.name))


def check_what_is_returned_is_the_callers_own(open_ledger: OpenLedger) -> None:
    with register(open_ledger()) as ledger:
        ledger.record(STUDY, RECIPE.name, evaluation())
        for _ in range(2):
            (found,) = ledger.evaluations(STUDY, RECIPE.name)
            assert found == evaluation()
            found.numerics["device"] = found.seconds["training"] = found.versions["torch"] = "mine"
            assert ledger.recipes(STUDY) == [RECIPE]
            ledger.recipes(STUDY)[0].settings["data"]["resolution"] = 64
            assert ledger.settings(STUDY) == {"contributors": ["a", "b", "c", "d"]}
            ledger.settings(STUDY)["contributors"].append("e")


def check_entries_are_added_where_their_check_agrees(open_ledger: OpenLedger) -> None:
    """An entry is added, skipped or refused by its check, and knows whether it came before any evaluation."""
    first = Entry("policy", "policy", {"r": "0.3", "mix": {"a": 1}}, "2026-01-31T12:00:00+00:00")
    second = replace(first, content={"r": "0.4"}, entered="2026-02-01T12:00:00+00:00")
    seen: list[tuple[list[Entry], bool]] = []

    def agrees(known: list[Entry], evaluated: bool) -> bool:
        seen.append((known, evaluated))
        return True

    def refuses(known: list[Entry], evaluated: bool) -> bool:
        raise UserError(f"there are {len(known)} already")

    with open_ledger() as ledger:
        register(ledger)
        _expect(UserError, ["unheard"], lambda: ledger.enter("unheard", first, agrees))
        assert ledger.entries(STUDY, "policy") == []
        assert ledger.enter(STUDY, first, agrees)
        assert not ledger.enter(STUDY, second, lambda known, evaluated: False)
        _expect(UserError, ["there are 1 already"], lambda: ledger.enter(STUDY, second, refuses))
        assert ledger.enter(STUDY, replace(second, kind="payout"), agrees)  # other kinds are not counted
        before = ledger.head(STUDY).hash
        ledger.record(STUDY, RECIPE.name, evaluation())
        assert ledger.enter(STUDY, second, agrees)
        after = ledger.head(STUDY).hash
    assert [evaluated for _, evaluated in seen] == [False, False, True]
    assert [[each.content for each in known] for known, _ in seen] == [[], [], [first.content]]
    with open_ledger() as ledger:
        known = ledger.entries(STUDY, "policy")
        assert [replace(each, head="") for each in known] == [first, replace(second, before_evaluations=False)]
        assert known[1].head == after
        assert ledger.entries(STUDY, "unheard") == []
        found = ledger.audit(STUDY, before)
        assert (found.problems, found.rows) == ((), 4 + 2 + 3 + 1)


def check_entries_that_belong_together(open_ledger: OpenLedger) -> None:
    """An entry's followers stand right behind it, or nothing is entered at all."""
    first, second = (Entry(kind, "a", {"r": "0.3"}, "2026-01-31T12:00:00+00:00") for kind in ("payout", "proof"))

    def refuses(known: list[Entry], evaluated: bool) -> bool:
        raise UserError("not now")

    with open_ledger() as ledger:
        register(ledger)
        before = ledger.head(STUDY)
        _expect(UserError, ["not now"], lambda: ledger.enter(STUDY, first, refuses, [second]))
        assert not ledger.enter(STUDY, first, lambda known, evaluated: False, [second])
        assert ledger.head(STUDY) == before
        assert ledger.enter(STUDY, first, lambda known, evaluated: True, [second])
        heads = [ledger.entries(STUDY, each.kind)[0].head for each in (first, second)]
        assert heads[0] == next_hash(before.hash, "entry", first.row)
        assert heads[1] == next_hash(heads[0], "entry", second.row) == ledger.head(STUDY).hash
        assert ledger.audit(STUDY, before.hash).problems == ()


def check_a_task_is_claimed_once(open_ledger: OpenLedger) -> None:
    """A claim holds until it is released, expires, or its evaluation is done; tokens only grow."""
    task = STUDY, RECIPE.name, "0110", 0
    with register(open_ledger()) as ledger, open_ledger() as other:
        first = ledger.claim(*task, "a", 60)
        assert first is not None
        assert other.claim(*task, "b", 60) is None
        assert other.claim(*task[:3], 1, "b", 60) is not None
        assert ledger.renew([first], 60) == [first]
        ledger.release([first])
        second = other.claim(*task, "b", 0)
        assert second is not None
        assert second.token > first.token
        assert ledger.renew([first], 60) == []
        third = ledger.claim(*task, "a", 60)  # b's claim expired at once
        assert third is not None
        assert third.token > second.token
        other.release([second])  # no longer b's
        assert other.renew([second], 60) == []
        assert other.claim(*task, "b", 60) is None
        assert other.record(STUDY, RECIPE.name, evaluation())  # late, but valid
        assert ledger.claim(*task, "a", 60) is None
        assert ledger.renew([third], 60) == []
        assert not ledger.record(STUDY, RECIPE.name, evaluation())
        assert ledger.evaluations(STUDY, RECIPE.name) == [evaluation()]


def check_a_failed_attempt_may_be_claimed_again(open_ledger: OpenLedger) -> None:
    task = STUDY, RECIPE.name, "0110", 0
    with register(open_ledger()) as ledger, open_ledger() as other:
        mine = ledger.claim(*task, "a", 60)
        assert mine is not None
        other.record(STUDY, RECIPE.name, failure())  # late, by a former holder
        assert other.claim(*task, "b", 60) is None
        assert ledger.renew([mine], 60) == [mine]
        ledger.release([mine])
        assert other.claim(*task, "b", 60) is not None


def check_claimants_take_turns(open_ledger: OpenLedger) -> None:
    """Several drivers claim the same tasks: each task goes to one of them."""
    register(open_ledger()).close()

    def claim(holder: int) -> list[str]:
        with open_ledger() as own:
            wanted = [f"{index:05b}" for index in range(16)]
            return [each for each in wanted if own.claim(STUDY, RECIPE.name, each, 0, str(holder), 60)]

    with ThreadPoolExecutor(4) as drivers:
        claimed = [each for some in drivers.map(claim, range(4)) for each in some]
    assert sorted(claimed) == [f"{index:05b}" for index in range(16)]


def check_current_claims_are_listed(open_ledger: OpenLedger) -> None:
    """Claims of one study that are neither released, expired nor done, with the seconds left."""
    truth = RecipeRecord("from_scratch", {"seed": 0})
    with register(open_ledger()) as ledger, open_ledger() as other:
        ledger.register_recipe(STUDY, truth)
        ledger.register_study("other", {})
        ledger.register_recipe("other", RECIPE)
        assert other.claims(STUDY) == []
        ledger.claim("other", RECIPE.name, "0001", 0, "a", 60)
        ledger.claim(STUDY, truth.name, "0001", 2, "a", 300)
        ledger.claim(STUDY, RECIPE.name, "0010", 0, "b", 60)
        ledger.claim(STUDY, RECIPE.name, "0110", 0, "a", 60)
        ledger.claim(STUDY, RECIPE.name, "0111", 0, "a", 0)
        returned = ledger.claim(STUDY, RECIPE.name, "1000", 0, "a", 60)
        assert returned is not None
        ledger.release([returned])
        found = other.claims(STUDY)
        assert [(each.recipe, each.coalition, each.replicate, each.holder) for each in found] == [
            (RECIPE.name, "0110", 0, "a"),
            (RECIPE.name, "0010", 0, "b"),
            (truth.name, "0001", 2, "a"),
        ]
        leases = (60, 60, 300)
        assert all(lease - 30 < each.seconds_left <= lease for lease, each in zip(leases, found, strict=True))
        ledger.record(STUDY, RECIPE.name, evaluation("0110"))
        assert [each.coalition for each in other.claims(STUDY)] == ["0010", "0001"]
        _expect(UserError, ["unheard"], lambda: other.claims("unheard"))


LEDGER_CHECKS: tuple[Callable[[OpenLedger], None], ...] = tuple(
    check for name, check in list(vars().items()) if name.startswith("check_")
)


def _execute(ledger: Ledger, *statements: str) -> None:
    """Change the database behind the ledger's back."""
    with ledger._database.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def _expect(kind: type[DiffcreditError], words: list[str], action: Callable[[], object]) -> None:
    """Check that the action raises an error of this kind whose message contains all these words."""
    try:
        action()
        message = None
    except kind as error:
        message = str(error)
    assert message is not None, f"no {kind.__name__} was raised"
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"
