"""Changes to the chain: its hashes, numbers, kinds and what it links, and a chain that is written anew."""

from collections.abc import Callable
from random import Random

from tests.tampering import chain_anew

from benchmarks.tamper import rows
from benchmarks.tamper.copies import Copy
from benchmarks.tamper.tables import Tables, columns
from benchmarks.tamper.values import Impossible, other_value

CHANGES: tuple[Callable[[Copy, Random], str], ...] = (
    *(rows.change_value, rows.change_value, rows.change_json, rows.remove_row, rows.move_row),
    *(rows.exchange_keys, rows.exchange_values, rows.give_away, rows.insert_row),
)
"""Those over which a chain is written anew."""


def change_link(copy: Copy, random: Random) -> str:
    """Write another value into a column of a link, remove it, insert one like it, or exchange what two have."""
    act = random.choice([_write, _write, _write, _remove, _insert, _exchange])
    with copy.tables() as tables:
        return act(tables, random)


def _write(tables: Tables, random: Random) -> str:
    column, places = random.choice(columns("chain")), tables.places("chain")
    place = random.choice(places)
    old = tables.read("chain", column, place)
    value = other_value(old, [tables.read("chain", column, random.choice(places)) for _ in range(3)], random)
    tables.write("chain", column, place, value)
    if tables.stays("chain", column, place, old):
        raise Impossible
    return f"chain.{column}: {old!r:.70} → {value!r:.70}"


def _remove(tables: Tables, random: Random) -> str:
    place = random.choice(tables.places("chain"))
    number = tables.read("chain", "number", place)
    tables.delete("chain", place)
    return f"link {number} removed"


def _insert(tables: Tables, random: Random) -> str:
    place, number = random.choice(tables.places("chain")), random.choice([0, -1, 10**6])
    tables.copy("chain", place, number=number, row_id=random.choice([1, 10**6]))
    return f"a link inserted as {number}"


def _exchange(tables: Tables, random: Random) -> str:
    column = random.choice(["hash", "kind", "row_id"])
    two = random.sample(tables.places("chain"), 2)
    names = [(tables.read("chain", "study_id", each), tables.read("chain", "number", each)) for each in two]
    values = [tables.run(f"SELECT {column} FROM chain WHERE {_named(each)}")[0][0] for each in names]
    if values[0] == values[1]:
        raise Impossible
    free = 10**9 if column == "row_id" else "x"  # a row is linked once
    for name, value in ((names[0], free), (names[1], values[0]), (names[0], values[1])):
        tables.run(f"UPDATE chain SET {column} = :value WHERE {_named(name)}", value=value)
    return f"chain.{column} of {names[0]} and {names[1]} exchanged"


def _named(link: tuple[int, int]) -> str:
    return f"study_id = {link[0]} AND number = {link[1]}"


def cut_end(copy: Copy, random: Random) -> str:
    """Remove the last rows of a study with their links: what remains is whole in itself."""
    with copy.tables() as tables:
        rows.without_keys(tables)
        count = random.randint(1, 80)
        last = tables.run("SELECT number, kind, row_id FROM chain WHERE study_id = 1 ORDER BY number DESC")[:count]
        named = {"evaluation": "evaluations", "value": "property_values", "entry": "entries"}
        for number, kind, key in last:
            if kind in named:
                tables.run(f"DELETE FROM {named[kind]} WHERE id = :key", key=key)
                tables.run("DELETE FROM chain WHERE study_id = 1 AND number = :number", number=number)
    return f"the last {len(last)} rows and links removed"


def rewrite(copy: Copy, random: Random) -> str:
    """Change rows, and write the whole chain anew over them."""
    words = random.choice(CHANGES)(copy, random)
    try:
        chain_anew(copy.ledger)
    except (TypeError, ValueError, KeyError, RecursionError) as error:  # what is no JSON has no hash
        raise Impossible from error
    return f"{words}, and the chain written anew"
