"""Changes to a file below SQL: root pages that lead elsewhere, doctored indices, bytes, and the write-ahead log."""

import sqlite3
from contextlib import closing
from random import Random

from tests.tampering import change

from benchmarks.tamper.copies import Copy
from benchmarks.tamper.tables import NAMES
from benchmarks.tamper.values import Impossible

PAGE = 4096
REFUSALS = (sqlite3.Error, OverflowError, UnicodeError)  # by which a change cannot be made
ROOT = "(SELECT rootpage FROM (SELECT * FROM sqlite_master) WHERE name = '{}')"


def move_root(copy: Copy, random: Random) -> str:
    """Let an index or a table be looked up in the pages of another, or in any page."""
    with closing(sqlite3.connect(copy.ledger)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE rootpage > 0")]
    name, other = random.sample(names, 2)
    pages = copy.ledger.stat().st_size // PAGE
    root = random.choice([ROOT.format(other), ROOT.format(other), str(random.randint(-1, pages + 2))])
    change(copy.ledger, f"UPDATE sqlite_master SET rootpage = {root} WHERE name = '{name}'")
    return f"{name} is looked up in {root if root.isdigit() else other}"


def doctor_index(copy: Copy, random: Random) -> str:
    """Put an index in place of another that leads past a row, or to rows with other values, made by SQLite itself."""
    with closing(sqlite3.connect(copy.ledger)) as connection, connection:
        found = connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'").fetchall()
        name, table = random.choice(found)
        names = [row[2] for row in connection.execute(f"PRAGMA index_info('{name}')")]
        what = random.choice(["rowid <> 5", "rowid % 2", "0", "1"])
        connection.execute(f"CREATE TABLE other AS SELECT * FROM {table} WHERE {what}")
        if what == "1":
            connection.execute(f"UPDATE other SET {names[0]} = {names[0]} + 1 WHERE rowid = 3")
        connection.execute(f"CREATE INDEX doctored ON other ({', '.join(names)})")
    change(copy.ledger, f"UPDATE sqlite_master SET rootpage = {ROOT.format('doctored')} WHERE name = '{name}'")
    return f"{name} leads to rows of {table} where {what}"


def doctor_table(copy: Copy, random: Random) -> str:
    """Put a table with other rows in place of one: its own indices are those of the old rows."""
    table = random.choice([*NAMES, "chain"])
    with closing(sqlite3.connect(copy.ledger)) as connection, connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        connection.execute(made.replace(f"CREATE TABLE {table}", "CREATE TABLE other", 1))
        connection.execute(f"INSERT INTO other SELECT * FROM {table} WHERE rowid <> 3")
    change(copy.ledger, f"UPDATE sqlite_master SET rootpage = {ROOT.format('other')} WHERE name = '{table}'")
    return f"{table} has another root"


def change_bytes(copy: Copy, random: Random) -> str:
    """Change a byte or a few, anywhere; more often in headers, of the file and of its pages."""
    content = bytearray(copy.ledger.read_bytes())
    pages = len(content) // PAGE
    place = random.choice(
        [
            random.randrange(len(content)),
            random.randrange(len(content)),
            random.randrange(100),
            random.randrange(pages) * PAGE + random.randrange(40),
            random.randrange(1, pages + 1) * PAGE - random.randrange(1, 200),
        ]
    )
    old = content[place]
    content[place] = random.choice([old ^ (1 << random.randrange(8)), random.randrange(256), 0, 255])
    if random.random() < 0.2:
        for further in range(place, min(len(content), place + random.choice([2, 4, 16, 300, PAGE]))):
            content[further] = random.randrange(256) if random.random() < 0.5 else 0
    if bytes(content) == copy.ledger.read_bytes():
        raise Impossible
    copy.ledger.write_bytes(content)
    return f"byte {place:,} of {len(content):,}: {old} → {content[place]}"


def change_pages(copy: Copy, random: Random) -> str:
    """Cut the file off, exchange two pages, or put one in place of another."""
    content = copy.ledger.read_bytes()
    count = len(content) // PAGE
    act = random.choice(["cut", "cut at a page", "exchange", "put", "append"])
    if act.startswith("cut"):
        length = random.randrange(len(content)) if act == "cut" else random.randrange(count) * PAGE
        copy.ledger.write_bytes(content[:length])
        return f"cut to {length:,} of {len(content):,} bytes"
    pages = [content[number * PAGE : (number + 1) * PAGE] for number in range(count)]
    first, second = random.sample(range(count), 2)
    if act == "exchange":
        pages[first], pages[second] = pages[second], pages[first]
    elif act == "put":
        pages[second] = pages[first]
    else:
        pages.append(random.randbytes(PAGE))
    if b"".join(pages) == content:
        raise Impossible
    copy.ledger.write_bytes(b"".join(pages))
    return f"pages {first} and {second}: {act}"


def change_log(copy: Copy, random: Random) -> str:
    """Change the write-ahead log: what was written last is there alone. SQLite itself leaves out whatever follows a
    damaged frame, which is as if rows had been cut off."""
    with closing(sqlite3.connect(copy.ledger)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        _write_last_again(connection, random.randint(1, 60))
        log = copy.ledger.with_name(copy.ledger.name + "-wal")
        content, file = bytearray(log.read_bytes()), copy.ledger.read_bytes()
    act = random.choice(["byte", "byte", "header", "cut", "remove", "noise"])
    place = random.randrange(32 if act == "header" else len(content))
    if act in ("byte", "header"):
        content[place] ^= 1 << random.randrange(8)
    elif act == "cut":
        del content[place:]
    elif act == "noise":
        content = bytearray(random.randbytes(len(content)))
    copy.ledger.write_bytes(file)
    if act != "remove":
        log.write_bytes(content)
    return f"{act} {place:,} of the log's {len(content):,} bytes"


def _write_last_again(connection: sqlite3.Connection, count: int) -> None:
    """Take the last rows off the file, and write them again, one by one, to the log."""
    last = connection.execute(
        "SELECT number, kind, row_id, hash FROM chain WHERE study_id = 1 ORDER BY number DESC LIMIT ?", (count,)
    ).fetchall()
    kept = []
    for number, kind, key, hashed in last:
        table = {"evaluation": "evaluations", "value": "property_values", "entry": "entries"}[kind]
        row = connection.execute(f"SELECT * FROM {table} WHERE id = ?", (key,)).fetchone()
        kept.append((table, row, (1, number, kind, key, hashed)))
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (key,))
        connection.execute("DELETE FROM chain WHERE study_id = 1 AND number = ?", (number,))
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for table, row, link in reversed(kept):
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        connection.execute("INSERT INTO chain VALUES (?, ?, ?, ?, ?)", link)
        connection.commit()
