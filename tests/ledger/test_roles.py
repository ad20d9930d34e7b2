"""A team's rights on a ledger, as its PostgreSQL server enforces them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from diffcredit.cli import app
from diffcredit.errors import UserError
from diffcredit.ledger import Entry, Ledger, roles
from tiny_study import SMALL, run_here, write_study

from .contract import RECIPE, STUDY, evaluation, failure, register

NEW = Entry("note", "first", {"text": "…"}, "2025-01-31T12:00:00.000+00:00")


@dataclass(frozen=True)
class Team:
    """The URL of one ledger for each of its users."""

    superuser: str
    owner: str
    writer: str
    reader: str
    group: str  # the writer's


@pytest.fixture
def team(postgres, postgres_server):
    """The owner is no superuser, the writer belongs to a group."""
    owner, group, writer, reader = (postgres_server.new_user() for _ in range(4))
    schema = postgres.rpartition("%3D")[2]
    execute(postgres, f"ALTER SCHEMA {schema} OWNER TO {owner}", f"GRANT {group} TO {writer}")
    urls = [postgres_server.as_user(postgres, user) for user in (owner, writer, reader)]
    roles.grant(urls[0], writers=[group], readers=[reader])
    return Team(postgres, *urls, group)


def execute(url, *statements):
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            return [connection.exec_driver_sql(statement) for statement in statements]
    finally:
        engine.dispose()


def tables_of(url):
    """Every table, as the server lists them."""
    engine = create_engine(url)
    with engine.connect() as connection:
        query = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
        found = connection.execute(query).scalars().all()
    engine.dispose()
    return found


def write_all(url):
    """Write a row of every kind, and what drivers write."""
    with Ledger.open(url) as ledger:
        register(ledger)
        held = ledger.claim(STUDY, RECIPE.name, "0110", 0, "me:1:x", 60)
        assert ledger.renew([held], 60) == [held]
        ledger.release([held])
        assert ledger.claim(STUDY, RECIPE.name, "0110", 0, "you:1:x", 60)
        assert ledger.record(STUDY, RECIPE.name, evaluation("0110"))
        assert ledger.record(STUDY, RECIPE.name, failure())
        assert ledger.enter(STUDY, NEW, lambda *_: True)
        assert ledger.audit(STUDY).problems == ()


def test_a_writer_writes_whatever_drivers_write(team):
    write_all(team.writer)
    with Ledger.open(team.writer) as ledger:
        rows, head = ledger.export(STUDY)
    execute(team.superuser, f"TRUNCATE {', '.join(set(tables_of(team.superuser)) - {'schema_version'})}")
    with Ledger.open(team.writer) as ledger:
        ledger.restore(rows, head)


def test_writers_and_the_owner_take_turns(team):
    """They lock the same row, as older releases do."""
    write_all(team.owner)
    with ThreadPoolExecutor(3) as writers:

        def write(url, part):
            with Ledger.open(url) as ledger:
                for index in range(30):
                    ledger.record(STUDY, RECIPE.name, evaluation(f"{part:02b}{index:08b}"))

        for each in [writers.submit(write, url, part) for part, url in enumerate([team.owner, *[team.writer] * 2])]:
            each.result()
    with Ledger.open(team.reader, create=False) as ledger:
        assert ledger.audit(STUDY).problems == ()
        assert len(ledger.evaluations(STUDY, RECIPE.name)) == 92  # with those that the owner wrote first


CHANGING = ["UPDATE {} SET {column} = {column}", "DELETE FROM {}"]
FORBIDDEN = [
    "TRUNCATE {} CASCADE",
    "ALTER TABLE {} ADD COLUMN more integer",
    "ALTER TABLE {} DISABLE TRIGGER ALL",
    "ALTER TABLE {} OWNER TO CURRENT_USER",
    "CREATE TRIGGER own BEFORE INSERT ON {} EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE own AS ON INSERT TO {} DO INSTEAD NOTHING",
    "DROP TABLE {} CASCADE",
]
ELSEWHERE = [
    "CREATE TABLE more (id integer)",
    "INSERT INTO schema_version VALUES (3)",
    "DELETE FROM schema_version",
    "UPDATE schema_version SET version = 3",
    "UPDATE schema_version SET version = 3 WHERE false",
    "DROP TRIGGER only_the_owner ON schema_version",
    "DROP FUNCTION diffcredit_refuse_version() CASCADE",
    "SELECT setval('evaluations_id_seq', 1)",
    "SET session_replication_role = replica",
    # a catalogue of one's own must not decide who the owner is
    "CREATE TEMP TABLE pg_class AS SELECT oid, oid AS relowner FROM pg_roles WHERE false; "
    "INSERT INTO pg_class SELECT 'schema_version'::regclass, oid FROM pg_roles WHERE rolname = current_user; "
    "SET search_path = pg_temp, public, pg_catalog; UPDATE {schema}.schema_version SET version = 3",
]


def column_of(table):
    return "version" if table == "schema_version" else "study_id" if table == "chain" else "id"


def check_refused(url, *statements):
    for statement in statements:
        with pytest.raises(DBAPIError) as refused:
            execute(url, statement)
        assert refused.value.orig.sqlstate == "42501", f"{statement}: {refused.value.orig}"


def test_a_server_refuses_a_writer_whatever_the_record_does_not_allow(team):
    write_all(team.writer)
    schema = team.superuser.rpartition("%3D")[2]
    tables = tables_of(team.superuser)
    assert {"evaluations", "property_values", "chain", "claims", "entries", "schema_version"} <= set(tables)
    for table in tables:
        changing = [] if table == "claims" else CHANGING
        column = column_of(table)
        check_refused(team.writer, *(each.format(table, column=column) for each in [*changing, *FORBIDDEN]))
    check_refused(team.writer, *(each.format(schema=schema) for each in ELSEWHERE))
    execute(team.writer, "UPDATE claims SET expires = 0", "DELETE FROM claims")
    with Ledger.open(team.reader, create=False) as ledger:
        assert ledger.audit(STUDY).problems == ()


def test_a_server_lets_a_reader_read_and_nothing_else(team):
    write_all(team.owner)
    schema = team.superuser.rpartition("%3D")[2]
    for table in tables_of(team.superuser):
        execute(team.reader, f"SELECT * FROM {table}")
        column = "token" if table == "claims" else column_of(table)
        forbidden = [*CHANGING, *FORBIDDEN, "INSERT INTO {} SELECT * FROM {}", "SELECT * FROM {} FOR UPDATE"]
        forbidden += ["SELECT * FROM {} FOR KEY SHARE", "LOCK TABLE {} IN ROW EXCLUSIVE MODE"]
        check_refused(team.reader, *(each.format(table, table, column=column) for each in forbidden))
    check_refused(team.reader, *(each.format(schema=schema) for each in ELSEWHERE))
    check_refused(team.reader, "SELECT nextval('evaluations_id_seq')")


def test_who_may_not_write_is_told_in_a_line(team):
    write_all(team.owner)
    refusal = r"^postgresql\S*: permission denied for table schema_version; diffcredit roles lets its owner grant"
    with pytest.raises(UserError, match=refusal):
        Ledger.open(team.reader)
    with Ledger.open(team.reader, create=False) as ledger, pytest.raises(UserError, match=refusal):
        ledger.record(STUDY, RECIPE.name, evaluation("1111"))


def test_an_older_ledger_is_migrated_by_its_owner(team):
    write_all(team.owner)
    execute(team.superuser, "DROP TABLE entries", "DELETE FROM chain WHERE kind = 'entry'")
    execute(team.superuser, "UPDATE schema_version SET version = 3")
    with pytest.raises(UserError, match=r"^postgresql\S*: permission denied for schema"):
        Ledger.open(team.writer)
    roles.grant(team.owner, writers=[team.group])
    with Ledger.open(team.writer) as ledger:
        assert ledger.enter(STUDY, NEW, lambda *_: True)
        assert ledger.audit(STUDY).problems == ()


def test_grants_again_and_less(team, postgres_server):
    reader = team.reader.partition("//")[2].partition(":")[0]
    roles.grant(team.owner, writers=[reader])
    write_all(team.reader)
    roles.grant(team.owner, readers=[reader])
    check_refused(
        team.reader, "INSERT INTO claims VALUES (1, '1', 0, 1, 'x', 0)", "UPDATE schema_version SET version=1"
    )


def test_refuses_roles_that_cannot_be_limited(team, tmp_path):
    owner, reader = (url.partition("//")[2].partition(":")[0] for url in (team.owner, team.reader))
    for given, said in (
        ({"writers": ["nobody's"]}, 'no role "nobody\'s"; make it first'),
        ({"readers": [owner]}, "owns the ledger"),
        ({"writers": ["tests"]}, "or is a superuser"),
        ({"writers": [reader], "readers": [reader]}, "both a writer and a reader"),
    ):
        with pytest.raises(UserError, match=said):
            roles.grant(team.owner, **given)
    with pytest.raises(UserError, match="has no roles"):
        roles.grant(tmp_path / "ledger.db", writers=["me"])
    with pytest.raises(UserError, match="permission denied"):
        roles.grant(team.writer, readers=[reader])


def printed(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_team_runs_and_shows_a_study(team, small):
    """Its owner brings the ledger, a reader shows and checks it, and a writer goes on with it."""
    with Ledger.open(small / "results" / "ledger.db") as ledger, Ledger.open(team.owner) as server:
        server.restore(*ledger.export("tiny"))
    (small / "results" / "ledger.db").unlink()
    write_study(small, {**SMALL, "ledger": team.owner})
    reader = team.reader.partition("//")[2].partition(":")[0]
    told = printed("roles", small, "--writer", team.group, "--reader", reader)
    assert f"{team.group}: may add rows and change claims" in told
    assert f"{reader}: may read everything, and write nothing" in told

    write_study(small, {**SMALL, "ledger": team.reader})
    for command in ("credits", "status", "report", "verify"):
        printed(command, small)
    assert (small / "results" / "report.html").exists()
    with pytest.raises(UserError, match="permission denied"):
        run_here(small / "study.yaml")

    more = write_study(small, {**SMALL, "ledger": team.writer, "stop.evaluations": SMALL["stop.evaluations"] + 2})
    assert len(run_here(more)) == 2
    assert "all unchanged" in printed("verify", small)


def test_the_command_names_what_it_needs(small):
    with pytest.raises(UserError, match="give --writer ROLE or --reader ROLE"):
        printed("roles", small)
    with pytest.raises(UserError, match=r"study\.yaml: ledger: is a file, which has no roles"):
        printed("roles", small, "--reader", "me")
