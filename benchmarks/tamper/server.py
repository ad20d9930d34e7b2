"""Changes that only a PostgreSQL server knows: rules, policies, tables that inherit, settings of the database."""

from random import Random

from benchmarks.tamper.copies import Copy, Databases
from benchmarks.tamper.tables import NAMES, columns

TABLES = (*NAMES, "chain", "schema_version")


def change_server(copy: Copy, random: Random) -> str:
    table = random.choice(TABLES)
    column, other = random.choice(columns(table)), random.choice(columns(table))
    name = random.choice(list(ACTS))
    values = {
        "table": table,
        "column": column,
        "other": other,
        "database": Databases.COPY,
        "names": ", ".join(columns(table)),
    }
    statements = [each.format(**values) for each in random.choice(ACTS[name])]
    with copy.tables() as tables:
        tables.script(*statements)
    return f"{name}: {'; '.join(statements)}"


RENAMED = "ALTER TABLE {table} RENAME TO hidden"
SET = "ALTER DATABASE {database} SET "

ACTS: dict[str, list[list[str]]] = {
    "a view": [
        [RENAMED, "CREATE VIEW {table} AS SELECT * FROM hidden"],
        [RENAMED, "CREATE VIEW {table} AS SELECT * FROM hidden LIMIT 1"],
        [RENAMED, "CREATE MATERIALIZED VIEW {table} AS SELECT * FROM hidden"],
    ],
    "a rule": [
        ["CREATE RULE r AS ON INSERT TO {table} DO ALSO NOTHING"],
        ["CREATE RULE r AS ON DELETE TO {table} DO INSTEAD NOTHING"],
        ["CREATE RULE r AS ON UPDATE TO {table} DO INSTEAD DELETE FROM claims"],
    ],
    "a trigger": [
        ["CREATE TRIGGER t BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"]
    ],
    "row-level security": [
        ["ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"],
        ["ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", "ALTER TABLE {table} FORCE ROW LEVEL SECURITY"],
        ["CREATE POLICY p ON {table} USING (false)", "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"],
    ],
    "tables that inherit": [
        ["CREATE TABLE more () INHERITS ({table})"],
        ["CREATE TABLE more () INHERITS ({table})", "INSERT INTO more SELECT * FROM {table}"],
        [
            "CREATE TABLE parent (x integer)",
            "ALTER TABLE {table} ADD COLUMN x integer",
            "ALTER TABLE {table} INHERIT parent",
        ],
    ],
    "a partitioned table": [
        [
            RENAMED,
            "CREATE TABLE {table} (LIKE hidden) PARTITION BY HASH ({column})",
            "CREATE TABLE part PARTITION OF {table} FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            "INSERT INTO {table} SELECT * FROM hidden",
        ]
    ],
    "a table made again": [
        [RENAMED, "CREATE TABLE {table} AS SELECT * FROM hidden"],
        [RENAMED, "CREATE UNLOGGED TABLE {table} AS SELECT * FROM hidden"],
        [RENAMED, "CREATE TABLE {table} AS SELECT * FROM hidden LIMIT 3"],
        [RENAMED, "CREATE TABLE {table} AS SELECT * FROM hidden UNION ALL SELECT * FROM hidden"],
    ],
    "columns": [
        ["ALTER TABLE {table} RENAME COLUMN {column} TO x"],
        ["ALTER TABLE {table} ADD COLUMN x integer DEFAULT 1"],
        ["ALTER TABLE {table} DROP COLUMN {column} CASCADE"],
        [
            "ALTER TABLE {table} DROP COLUMN {column} CASCADE",
            "ALTER TABLE {table} ADD COLUMN {column} text DEFAULT 'x'",
        ],
        [
            "ALTER TABLE {table} RENAME {column} TO x",
            "ALTER TABLE {table} RENAME {other} TO {column}",
            "ALTER TABLE {table} RENAME x TO {other}",
        ],
        ["ALTER TABLE {table} ADD COLUMN x text GENERATED ALWAYS AS ('x') STORED"],
    ],
    "types of columns": [
        ["ALTER TABLE property_values ALTER COLUMN value TYPE real"],
        ["ALTER TABLE property_values ALTER COLUMN value TYPE numeric"],
        ["ALTER TABLE property_values ALTER COLUMN value TYPE text"],
        ["ALTER TABLE property_values ALTER COLUMN images TYPE bigint"],
        ["ALTER TABLE evaluations ALTER COLUMN replicate TYPE bigint"],
        ["ALTER TABLE evaluations ALTER COLUMN replicate TYPE numeric"],
        ["ALTER TABLE evaluations ALTER COLUMN replicate TYPE text"],
        ["ALTER TABLE evaluations ALTER COLUMN numerics TYPE jsonb"],
        ["ALTER TABLE evaluations ALTER COLUMN seconds TYPE text"],
        ["ALTER TABLE evaluations ALTER COLUMN started TYPE timestamptz USING CAST(started AS timestamptz)"],
        ["ALTER TABLE evaluations ALTER COLUMN worker TYPE char(20)"],
        ["ALTER TABLE evaluations ALTER COLUMN coalition TYPE bytea USING CAST(coalition AS bytea)"],
        ["ALTER TABLE entries ALTER COLUMN content TYPE jsonb"],
        ["ALTER TABLE recipes ALTER COLUMN settings TYPE jsonb"],
        ["ALTER TABLE properties ALTER COLUMN higher_is_better TYPE integer USING CAST(higher_is_better AS integer)"],
        ["ALTER TABLE properties ALTER COLUMN higher_is_better TYPE text"],
        ["ALTER TABLE chain ALTER COLUMN number TYPE bigint"],
        ["ALTER TABLE chain ALTER COLUMN hash TYPE bytea USING CAST(hash AS bytea)"],
        ["ALTER TABLE chain ALTER COLUMN hash TYPE char(70)"],
        ["ALTER TABLE chain ALTER COLUMN row_id TYPE text"],
        ["ALTER TABLE schema_version ALTER COLUMN version TYPE text"],
        ["ALTER TABLE schema_version ALTER COLUMN version TYPE numeric"],
    ],
    "settings of the database": [
        [SET + "extra_float_digits = -15"],
        [SET + "standard_conforming_strings = off"],
        [SET + "default_transaction_read_only = on"],
        [SET + "default_transaction_isolation = 'serializable'"],
        [SET + "client_encoding = 'LATIN1'"],
        [SET + "client_encoding = 'SQL_ASCII'"],
        [SET + "bytea_output = 'escape'"],
        [SET + "DateStyle = 'German'"],
        [SET + "IntervalStyle = 'sql_standard'"],
        [SET + "search_path = elsewhere"],
        [SET + "transform_null_equals = on"],
        [SET + "array_nulls = off"],
        [SET + "enable_seqscan = off"],
        [SET + "row_security = off"],
        [SET + "statement_timeout = '1us'"],
        [SET + "statement_timeout = 1"],
        [SET + "lc_messages = 'de_DE.UTF-8'"],
    ],
    "another schema before": [
        [
            "CREATE SCHEMA evil",
            "CREATE TABLE evil.{table} AS SELECT * FROM {table}",
            SET + "search_path = evil, public",
        ],
        [
            "CREATE SCHEMA evil",
            "CREATE TABLE evil.{table} AS SELECT * FROM {table} LIMIT 5",
            SET + "search_path = evil, public",
        ],
        [
            "CREATE SCHEMA evil",
            "CREATE VIEW evil.{table} AS SELECT * FROM {table}",
            SET + "search_path = evil, public",
        ],
        [
            "CREATE SCHEMA evil",
            "CREATE TABLE evil.property_values AS SELECT * FROM property_values",
            "UPDATE evil.property_values SET value = value * 2",
            SET + "search_path = evil, public",
        ],
    ],
    "functions and operators in the way": [
        [
            "CREATE FUNCTION to_regclass(text) RETURNS regclass LANGUAGE sql AS "
            "'SELECT CAST(''pg_class'' AS regclass)'",
            SET + "search_path = public, pg_catalog",
        ],
        [
            "CREATE FUNCTION same(integer, integer) RETURNS boolean LANGUAGE sql "
            "AS 'SELECT $1 OPERATOR(pg_catalog.<>) $2'",
            "CREATE OPERATOR = (LEFTARG = integer, RIGHTARG = integer, FUNCTION = same)",
            SET + "search_path = public, pg_catalog",
        ],
        [
            "CREATE TABLE pg_class AS SELECT * FROM pg_catalog.pg_class WHERE false",
            SET + "search_path = public, pg_catalog",
        ],
        [
            RENAMED,
            "CREATE VIEW {table} AS SELECT * FROM hidden",
            "CREATE TABLE pg_class AS SELECT oid, relname, CAST('r' AS \"char\") AS relkind, false AS relrowsecurity "
            "FROM pg_catalog.pg_class",
            "CREATE TABLE pg_rewrite (ev_class oid)",
            SET + "search_path = public, pg_catalog",
        ],
    ],
    "rows of the version": [
        ["UPDATE schema_version SET version = 3"],
        ["UPDATE schema_version SET version = 99"],
        ["DELETE FROM schema_version"],
        ["INSERT INTO schema_version VALUES (4)"],
    ],
    "a table dropped": [["DROP TABLE {table} CASCADE"]],
    "rights": [["REVOKE ALL ON {table} FROM PUBLIC"], ["ALTER TABLE {table} OWNER TO pg_monitor"]],
}
