"""Whoever changes a ledger behind diffcredit's back is found by every command that would show it: exit code 1, one
line, no traceback. Each case is an attack that once passed, or ended in a traceback."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import create_engine, text

import tampering
from paid_study import evaluated, stated

COMMANDS = ("credits", "status", "report", "statements", "verify")


@pytest.fixture
def refused(diffcredit):
    """Check that every command refuses a study with one line that has the ``words``; return what verify lists."""

    def check(study, *words, commands=COMMANDS, code=1):
        for command in commands:
            found, out, complaint = diffcredit(command, study, warned=True)
            assert found == code, f"{command}: {out}{complaint}"
            assert complaint.count("\n") == 1, complaint
            assert complaint.startswith("error: "), complaint
            listed = out if command == "verify" and code == 1 else complaint
            assert all(word in listed + complaint for word in words), f"{command}: {listed}"
            assert out == "" or command == "verify", out
        return listed

    return check


class Stored:
    """One stored value of a database, by table, column and condition; read and written past diffcredit's code."""

    def __init__(self, url, table, column, where):
        self.url, self.table, self.column, self.where = url, table, column, where

    def _run(self, statement, **given):
        engine = create_engine(self.url)
        with engine.begin() as connection:
            result = connection.execute(text(statement), given)
            found = result.scalar_one() if result.returns_rows else None
        engine.dispose()
        return found

    def read(self):
        column = self.column if self.column == "value" else f"CAST({self.column} AS TEXT)"
        return self._run(f"SELECT {column} FROM {self.table} WHERE {self.where}")

    def write(self, value):
        kind = {"value": "DOUBLE PRECISION", "settings": "JSON", "content": "JSON"}.get(self.column)
        place = f"CAST(:value AS {kind})" if kind and "sqlite" not in self.url else ":value"
        self._run(f"UPDATE {self.table} SET {self.column} = {place} WHERE {self.where}", value=value)


def dumped(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def other_order(stored):
    """Another order of the contributors' images: two names change places."""
    settings = json.loads(stored)
    images = settings["data"]["images"]
    assert len(images) > 1
    settings["data"]["images"] = dict(reversed(images.items()))
    return dumped(settings)


RECIPE, VALUE = ("recipes", "settings", "id = 1"), ("property_values", "value", "id = 5")
ROWS = {
    "A1: another order of keys": (RECIPE, other_order, "recipe 'sparsified'"),
    "A1: a key twice": (RECIPE, lambda old: '{"seed":9,' + old[1:], "recipe 'sparsified'"),
    "A1: spaces": (RECIPE, lambda old: json.dumps(json.loads(old), sort_keys=True), "recipe 'sparsified'"),
    "A1: a number spelled otherwise": (RECIPE, lambda old: old.replace('"seed":0', '"seed":0e0', 1), "recipe"),
    "A1: contributors": (
        ("studies", "settings", "id = 1"),
        lambda old: dumped({"contributors": json.loads(old)["contributors"][::-1]}),
        "study 'tiny'",
    ),
    "A4: another value": (VALUE, lambda old: old + 1, "row 13 (value of 'colourfulness')"),
    "A4: infinity": (VALUE, lambda old: float("inf"), "row 13 (value of 'colourfulness')"),
    "A4: another name": (("properties", "name", "id = 1"), lambda old: "beauty", "property 'beauty'"),
    "A4: another amount": (("entries", "content", "id = 1"), lambda old: dumped({"r": 1}), "entry 'policy'"),
    "another hash": (("chain", "hash", "number = 20"), lambda old: "0" * 64, "row 20"),
    "another coalition": (("evaluations", "coalition", "id = 5"), lambda old: "\x1b[2J", "coalition '\\x1b[2J'"),
}


def test_changed_rows(refused, diffcredit, database, tmp_path):
    """Of both kinds of database. What is written back is shown again."""
    study = evaluated(stated(tmp_path / "study", {"ledger": database}))
    before = diffcredit.printed("credits", study)
    for name, (place, change, words) in ROWS.items():
        stored = Stored(database, *place)
        old = stored.read()
        assert change(old) != old, name
        stored.write(change(old))
        refused(study, words, "is not as it was written", commands=("credits", "status", "report", "verify"))
        stored.write(old)
    assert diffcredit.printed("credits", study) == before
    assert "all unchanged" in diffcredit.printed("verify", study)


ON_SERVER = {
    "a view": (
        "ALTER TABLE property_values RENAME TO hidden; CREATE VIEW property_values AS SELECT * FROM hidden",
        "DROP VIEW property_values; ALTER TABLE hidden RENAME TO property_values",
        "property_values is no plain table",
    ),
    "a rule": (
        "CREATE RULE twice AS ON INSERT TO evaluations DO ALSO NOTHING",
        "DROP RULE twice ON evaluations",
        "evaluations has a rule",
    ),
    "row-level security": (
        "ALTER TABLE chain ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE chain DISABLE ROW LEVEL SECURITY",
        "chain has row-level security",
    ),
    "a trigger": (
        "CREATE TRIGGER same BEFORE UPDATE ON entries FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DROP TRIGGER same ON entries",
        "entries has a trigger",
    ),
    "rows of another table": (
        "CREATE TABLE more () INHERITS (property_values)",
        "DROP TABLE more",
        "property_values shows the rows of another",
    ),
    "a column under another name": (
        "ALTER TABLE evaluations RENAME COLUMN worker TO werker",
        "ALTER TABLE evaluations RENAME COLUMN werker TO worker",
        'its tables are not those of a ledger (column "worker" does not exist)',
    ),
    "a column of another type": (
        "ALTER TABLE chain ALTER COLUMN number TYPE text",
        "ALTER TABLE chain ALTER COLUMN number TYPE integer USING CAST(number AS integer)",
        "its tables are not those of a ledger (operator does not exist: text >= ",
    ),
}


def test_tables_that_are_none_on_a_server(refused, diffcredit, postgres, tmp_path):
    study = evaluated(stated(tmp_path / "study", {"ledger": postgres}))
    engine = create_engine(postgres)
    for do, undo, words in ON_SERVER.values():
        for statements, check in ((do, True), (undo, False)):
            with engine.begin() as connection:
                connection.exec_driver_sql(statements)
            if check:
                refused(study, words, commands=("credits", "status", "verify"))
    engine.dispose()
    assert "all unchanged" in diffcredit.printed("verify", study)


@pytest.fixture
def copies(paying, tmp_path):
    """A function that returns new copies of a study with a payout, and of its ledger."""
    numbers = iter(range(1000))

    def copy():
        folder = shutil.copytree(paying, tmp_path / f"copy {next(numbers)}")
        return folder, folder / "results" / "ledger.db"

    return copy


def root_of(index, of):
    """SQL by which one index is looked up in another's pages."""
    root = f"(SELECT rootpage FROM (SELECT * FROM sqlite_master) WHERE name = '{of}')"
    return f"UPDATE sqlite_master SET rootpage = {root} WHERE name = '{index}'"


IN_FILE = {
    "A2: an index that is another": ([root_of("ix_property_values_evaluation_id", "ix_evaluations_recipe_id")], "page"),
    "text for a number": (["UPDATE property_values SET value = 'x' WHERE id = 5"], "row 13 (value"),
    "a blob for a number": (["UPDATE property_values SET value = x'00' WHERE id = 5"], "row 13 (value"),
    "a blob for JSON": (["UPDATE evaluations SET numerics = x'7b7d' WHERE id = 5"], "is not as it was written"),
    "a blob for a text": (["UPDATE evaluations SET worker = x'41' WHERE id = 5"], "is not as it was written"),
    "text for an integer": (["UPDATE evaluations SET replicate = 'x' WHERE id = 5"], "is not as it was written"),
    "a number for a boolean": (["UPDATE properties SET higher_is_better = 7 WHERE id = 1"], "property 'colourfulness'"),
    "text for a link": (["UPDATE chain SET number = 'x' WHERE number = 9"], "rows 9 to 9 of the chain are missing"),
    "a link before the first": (
        ["INSERT INTO chain (study_id, number, kind, row_id, hash) VALUES (1, 0, 'value', 999, '')"],
        "row 0 is before the beginning of the chain",
    ),
    "broken JSON": (["UPDATE recipes SET settings = '{' WHERE id = 1"], "recipe 'sparsified'"),
    "no text": (["UPDATE evaluations SET worker = CAST(x'ff' AS TEXT) WHERE id = 5"], "damaged"),
    "a trigger": (
        ["CREATE TRIGGER t BEFORE INSERT ON property_values BEGIN SELECT 1; END"],
        "the table property_values has a trigger",
    ),
    "a view": (
        ["ALTER TABLE evaluations RENAME TO hidden", "CREATE VIEW evaluations AS SELECT * FROM hidden"],
        "evaluations is a view",
    ),
    "no chain": (["DROP TABLE chain"], "the table chain is missing"),
    "a column under another name": (
        ["UPDATE sqlite_master SET sql = replace(sql, 'worker', 'werker') WHERE name = 'evaluations'"],
        "no such column",
    ),
}


@pytest.mark.parametrize("name", IN_FILE)
def test_changed_files(refused, copies, name):
    folder, ledger = copies()
    statements, words = IN_FILE[name]
    tampering.change(ledger, *statements)
    refused(folder, words, commands=("credits", "status", "verify"))


def test_a_schema_that_is_none(refused, copies):
    folder, ledger = copies()
    tampering.change(ledger, "UPDATE sqlite_master SET sql = 'CREATE TABLE x (' WHERE name = 'evaluations'")
    refused(folder, "malformed", commands=("credits", "status", "verify"))


def test_a_doctored_index_changes_no_credits(diffcredit, refused, copies):
    """A2: an index of values that leads past one of them, made by SQLite itself, beside the table that has it."""
    folder, ledger = copies()
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute("CREATE TABLE other AS SELECT * FROM property_values WHERE id <> 5")
        connection.execute("CREATE INDEX doctored ON other (evaluation_id)")
    tampering.change(ledger, root_of("ix_property_values_evaluation_id", "doctored"))
    refused(folder, "damaged", commands=("credits", "status", "report", "verify"))


def test_bytes_of_a_file(refused, copies):
    """Pages that are gone, cut off or overwritten. Without its header it is no database: a user's mistake."""
    for damage, words in (
        (lambda content: content[:20_000], "damaged"),
        (lambda content: content[:40_960] + b"\xff" * 12_288 + content[53_248:], "damaged"),
        (lambda content: content[:4_096] + bytes(len(content) - 4_096), "changed"),
    ):
        folder, ledger = copies()
        ledger.write_bytes(damage(ledger.read_bytes()))
        refused(folder, words, commands=("credits", "status", "verify"))
    folder, ledger = copies()
    ledger.write_bytes(b"x" * 100 + ledger.read_bytes()[100:])
    refused(folder, "file is not a database", commands=("credits", "status", "verify"), code=2)


def test_every_byte_of_an_index_may_change(diffcredit, copies):
    """A2: whichever bytes of an index's pages are flipped, what is shown stays, or is refused."""
    folder, ledger = copies()
    before = diffcredit.printed("credits", folder)
    content = ledger.read_bytes()
    with closing(sqlite3.connect(ledger)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        roots = connection.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'").fetchall()
    refused = 0
    for (root,) in roots:
        for place in range(root * size - 40, root * size, 13):  # entries stand at a page's end
            ledger.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
            code, out, err = diffcredit("credits", folder)
            assert (code, out) == (0, before) or (code == 1 and err.count("\n") == 1 and out == "")
            refused += code
    assert refused > len(roots)


def test_another_studys_rows_do_not_matter(diffcredit, copies):
    """Beside a study whose rows were changed, and even its chain, another is shown."""
    folder, ledger = copies()
    before = diffcredit.printed("credits", folder)
    tampering.change(
        ledger,
        "INSERT INTO studies (id, name, settings) VALUES (7, 'other', 'no JSON')",
        "INSERT INTO recipes (id, study_id, name, settings, weights) VALUES (7, 7, 'other', x'00', 1)",
        "INSERT INTO chain (study_id, number, kind, row_id, hash) VALUES (7, 'x', x'00', 1, 2)",
    )
    assert diffcredit.printed("credits", folder) == before
    assert "all unchanged" in diffcredit.printed("verify", folder)


def test_what_somebody_wrote_with_the_whole_chain_is_a_record_or_refused(refused, copies):
    """Who writes the chain anew is found by a head kept elsewhere alone, but cannot write what ends in a traceback."""
    for statement in (
        "UPDATE evaluations SET finished = 'soon' WHERE id = 5",
        "UPDATE evaluations SET purpose = 'fun' WHERE id = 5",
        "UPDATE evaluations SET coalition = '01x1' WHERE id = 5",
        """UPDATE evaluations SET seconds = '{"training":"long"}' WHERE id = 5""",
        """UPDATE evaluations SET seconds = '{"training":1e999}' WHERE id = 5""",
        "UPDATE evaluations SET numerics = '[]' WHERE id = 5",
        "UPDATE property_values SET evaluation_id = 4 WHERE evaluation_id = 5",
    ):
        folder, ledger = copies()
        tampering.change(ledger, "DROP INDEX one_value", statement)
        tampering.chain_anew(ledger)
        refused(folder, "row", commands=("credits", "status", "verify"))
