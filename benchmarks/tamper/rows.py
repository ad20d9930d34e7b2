"""Changes to rows: other values, rows removed, inserted, moved, exchanged, given to another study."""

from random import Random

from benchmarks.tamper.copies import Copy
from benchmarks.tamper.tables import JSON_COLUMNS, Tables, any_table, columns
from benchmarks.tamper.values import Impossible, other_json, other_value

FREE = ("one_success", "one_value")  # indices that are in the way of a second value


def change_value(copy: Copy, random: Random) -> str:
    """Write another value into a column of a row."""
    table = any_table(random)
    column = random.choice(columns(table))
    with copy.tables() as tables:
        _unguard(tables, random)
        place = random.choice(tables.places(table))
        old = tables.read(table, column, place)
        others = [tables.read(table, column, random.choice(tables.places(table))) for _ in range(3)]
        value = other_value(old, others, random)
        tables.write(table, column, place, value)
        if tables.stays(table, column, place, old):
            raise Impossible
    return f"{table}.{column}: {old!r:.60} → {value!r:.60}"


def change_json(copy: Copy, random: Random) -> str:
    """Write another JSON text: other content, or the same spelled otherwise."""
    table = random.choices(list(JSON_COLUMNS), [1, 3, 2, 3, 5])[0]
    column = random.choice(JSON_COLUMNS[table])
    with copy.tables() as tables:
        place = random.choice(tables.places(table))
        old = tables.read(table, column, place)
        text = other_json(old, random)
        if text == old:
            raise Impossible
        tables.write(table, column, place, text)
    return f"{table}.{column}: {text!r:.100}"


def remove_row(copy: Copy, random: Random) -> str:
    """Delete a row, by itself or with its link."""
    table = any_table(random)
    with copy.tables() as tables:
        without_keys(tables)
        place = random.choice(tables.places(table))
        key = tables.read(table, "id", place)
        tables.delete(table, place)
    return f"{table} {key} removed"


def insert_row(copy: Copy, random: Random) -> str:
    """Insert a row like another one, under a key of its own, that of none, or one far away."""
    table = any_table(random)
    with copy.tables() as tables:
        _unguard(tables, random)
        places = tables.places(table)
        key = random.choice([tables.read(table, "id", places[-1]) + 1, 0, -5, 10**9])
        other = {"name": "new"} if table == "studies" else {}
        if table in ("recipes", "properties") and random.random() < 0.7:
            other["name"] = "another"
        tables.copy(table, random.choice(places), id=key, **other)
    return f"{table}: a row inserted as {key}"


def move_row(copy: Copy, random: Random) -> str:
    """Give a row another key, or another order to all rows of a table."""
    table = any_table(random)
    with copy.tables() as tables:
        without_keys(tables)
        place = random.choice(tables.places(table))
        key = tables.read(table, "id", place)
        to = random.choice([key + 1000, -key, 10**12 if not tables.on_server else 10**9])
        tables.write(table, "id", place, to)
    return f"{table} {key} is {to} now"


def exchange_keys(copy: Copy, random: Random) -> str:
    """Let two rows of a table change places."""
    table = any_table(random)
    with copy.tables() as tables:
        without_keys(tables)
        first, second = _two(tables, table, random)
        keys = [tables.read(table, "id", place) for place in (first, second)]
        _exchange(tables, table, keys, random)
    return f"{table} {keys[0]} and {keys[1]} exchanged"


def exchange_values(copy: Copy, random: Random) -> str:
    """Exchange what two rows have in a column."""
    table = any_table(random)
    column = random.choice([each for each in columns(table) if each != "id"])
    with copy.tables() as tables:
        _unguard(tables, random)
        first, second = _two(tables, table, random)
        values = [tables.read(table, column, place) for place in (first, second)]
        if values[0] == values[1]:
            raise Impossible
        keys = [tables.read(table, "id", place) for place in (first, second)]
        for key, value in zip(keys, reversed(values), strict=True):
            (place,) = tables.places(table, f"id = {key}")
            tables.write(table, column, place, value)
    return f"{table}.{column} of {keys[0]} and {keys[1]} exchanged"


def give_away(copy: Copy, random: Random) -> str:
    """Give a row to the other study, or take one of its rows: the whole row, or what others refer to."""
    table, column, of = random.choice(
        [
            ("recipes", "study_id", "studies"),
            ("properties", "study_id", "studies"),
            ("entries", "study_id", "studies"),
            ("chain", "study_id", "studies"),
            ("evaluations", "recipe_id", "recipes"),
            ("property_values", "evaluation_id", "evaluations"),
            ("property_values", "property_id", "properties"),
        ]
    )
    with copy.tables() as tables:
        _unguard(tables, random)
        without_keys(tables)
        place = random.choice(tables.places(table))
        old = tables.read(table, column, place)
        others = [key for (key,) in tables.run(f"SELECT id FROM {of}") if key != old]
        new = random.choice(others)
        whole = random.random() < 0.2
        if whole:
            tables.run(f"UPDATE {table} SET {column} = :new WHERE {column} = :old", new=new, old=old)
        else:
            tables.write(table, column, place, new)
    return f"{table}.{column}: {old} → {new}{' of all rows' * whole}"


def _two(tables: Tables, table: str, random: Random) -> list:
    places = tables.places(table)
    if len(places) < 2:
        raise Impossible
    return random.sample(places, 2)


def _exchange(tables: Tables, table: str, keys: list[int], random: Random) -> None:
    free = 999_999_999
    for old, new in ((keys[0], free), (keys[1], keys[0]), (free, keys[1])):
        tables.run(f"UPDATE {table} SET id = {new} WHERE id = {old}")


def _unguard(tables: Tables, random: Random) -> None:
    """Take constraints out of the way now and then, as who owns the database can."""
    if random.random() < 0.5:
        for index in FREE:
            tables.run(f"DROP INDEX {index}")
        if tables.on_server:
            tables.run("ALTER TABLE property_values DROP CONSTRAINT value_or_error")
            tables.run("ALTER TABLE evaluations DROP CONSTRAINT failed_has_error")
            tables.run("ALTER TABLE property_values ALTER COLUMN value DROP NOT NULL")
        else:
            tables.run("PRAGMA ignore_check_constraints = ON")


def without_keys(tables: Tables) -> None:
    """Let rows go that others refer to. A file's keys are checked only by whom asks for it."""
    if tables.on_server:
        tables.run("SET session_replication_role = replica")
