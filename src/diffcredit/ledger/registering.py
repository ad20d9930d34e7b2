"""Entering a study, a recipe or a property, once.

A name that is new is entered. A name that is known must mean the same as before: values measured under two meanings
would otherwise be mixed in one estimate. The refusal says what differs. (``keys.ledger`` in messages is the ledger's
name.)
"""

from typing import Any

from sqlalchemy import Connection

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.chain import append, head_of
from diffcredit.ledger.differences import differences
from diffcredit.ledger.keys import Keys
from diffcredit.ledger.reading import find, studies
from diffcredit.ledger.records import PropertyRecord, RecipeRecord
from diffcredit.ledger.rows import insert_property, insert_recipe, insert_study


def register_study(connection: Connection, keys: Keys, name: str, settings: dict[str, Any]) -> None:
    known = studies(connection)
    if name in known:
        _refuse_changed(keys, "study", name, known[name], settings)
        return
    link = insert_study(connection, name, settings)
    append(connection, link.row_id, head_of(connection, link.row_id), [link])


def check_recipe_settings(connection: Connection, keys: Keys, study: str, name: str, settings: dict[str, Any]) -> None:
    old = find(connection, tables.recipes, study, name)
    if old is not None:
        _refuse_changed(keys, "recipe", name, old.settings, settings)


def register_recipe(connection: Connection, keys: Keys, study: str, recipe: RecipeRecord) -> None:
    study_id = keys.study(connection, study)
    old = find(connection, tables.recipes, study, recipe.name)
    if old is None:
        link = insert_recipe(connection, study_id, recipe)
        append(connection, study_id, head_of(connection, study_id), [link])
        return
    _refuse_changed(keys, "recipe", recipe.name, old.settings, recipe.settings)
    if old.weights != recipe.weights:
        raise UserError(
            f"{keys.ledger}: recipe {recipe.name!r} starts from other weights than before "
            f"({old.weights or 'none'} → {recipe.weights or 'none'}) though its settings are the same; "
            "restore the weights or give the retraining another name"
        )


def register_property(connection: Connection, keys: Keys, study: str, prop: PropertyRecord) -> None:
    study_id = keys.study(connection, study)
    old = find(connection, tables.properties, study, prop.name)
    if old is None:
        link = insert_property(connection, study_id, prop)
        append(connection, study_id, head_of(connection, study_id), [link])
        return
    direction = {"higher_is_better": old.higher_is_better}, {"higher_is_better": prop.higher_is_better}
    _refuse_changed(keys, "property", prop.name, old.settings, prop.settings)
    _refuse_changed(keys, "property", prop.name, *direction)
    if old.state != prop.state:
        raise UserError(
            f"{keys.ledger}: property {prop.name!r} has another fitted state than before "
            f"({old.state or 'none'} → {prop.state or 'none'}) though its settings are the same; restore what it "
            "was fitted to, such as the files that it names, or give the property another name"
        )


def _refuse_changed(keys: Keys, kind: str, name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    if lines := differences(old, new):
        renamed = "retraining" if kind == "recipe" else kind
        raise UserError(
            f"{keys.ledger}: {kind} {name!r} changed: {'; '.join(lines)}; "
            f"give the {renamed} another name or restore the settings"
        )
