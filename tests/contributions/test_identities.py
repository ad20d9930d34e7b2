"""Accounts that are one person's, merged before anything else is decided."""

import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.identities import read_identities
from diffcredit.errors import UserError

from .pictures import paint_many

SPLIT = {"ada": ["ada_1", "ada_2", "ada_3"]}


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
    """Three accounts of Ada's with 2, 3 and 4 images, five of Bob's and four of Cyd's."""
    folder = tmp_path_factory.mktemp("accounts")
    given = {"ada_1": 2, "ada_2": 3, "ada_3": 4, "bob": 5, "cyd": 4}
    paint_many(folder, [f"{who}/{i}.png" for who, count in given.items() for i in range(count)])
    return folder


def load(folder, **options):
    return load_contributions(folder, resolution=4, **options)


def test_accounts_become_one_contributor(accounts):
    found = load(accounts, identities=SPLIT)
    assert found.contributors == ("ada", "bob", "cyd")
    assert found.counts.tolist() == [9, 5, 4]
    assert found.given == (9, 5, 4)
    assert found.accounts == {"ada": ("ada_1", "ada_2", "ada_3")}
    apart = load(accounts)
    assert (apart.accounts, apart.contributors[:3]) == ({}, ("ada_1", "ada_2", "ada_3"))
    assert found.fingerprint != apart.fingerprint
    assert found.names == apart.names


def test_a_person_may_keep_the_name_of_an_own_account(accounts):
    found = load(accounts, identities={"ada_1": ["ada_1", "ada_2", "ada_3"]})
    assert dict(zip(found.contributors, found.counts.tolist(), strict=True)) == {"ada_1": 9, "bob": 5, "cyd": 4}


def test_merged_before_everybody_is_counted_drawn_held_out_or_the_house(accounts):
    assert load(accounts, identities=SPLIT, at_least=5).contributors == ("ada", "bob")
    assert load(accounts, identities=SPLIT, at_least=5).left_out == ("cyd (4 images)",)
    assert load(accounts, identities=SPLIT, holdout=0.5).withheld == (5, 3, 2)
    housed = load(accounts, identities=SPLIT, house=["ada"])
    assert housed.contributors == ("bob", "cyd")
    assert housed.house.sum() == 9
    for seed in range(5):  # as if the images had been given by one account in the first place
        drawn = load(accounts, identities=SPLIT, draw=2, seed=seed)
        assert set(drawn.contributors) < {"ada", "bob", "cyd"}
        assert set(drawn.accounts) == {"ada"} & set(drawn.contributors)


def test_the_same_as_one_account_would_have_given(accounts, tmp_path):
    for file in accounts.rglob("*.png"):
        who = file.parent.name
        place = tmp_path / ("ada" if who.startswith("ada") else who) / who / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    one, merged = load(tmp_path), load(accounts, identities=SPLIT)
    assert one.contributors == merged.contributors
    for name in one.contributors:
        assert one.works(name).digest == merged.works(name).digest


@pytest.mark.parametrize(
    ("identities", "message"),
    [
        ({"ada": ["ada_1", "eve"]}, r"identities: 'eve' is nobody's account; there are: ada_1, ada_2, ada_3, bob, cyd"),
        ({"ada": ["ada_1"], "x": ["ada_1"]}, r"identities\.x: 'ada_1' is an account of 'ada' already"),
        ({"ada": ["ada_1", "ada_1"]}, r"identities\.ada: 'ada_1' is an account of 'ada' already"),
        ({"bob": ["ada_1", "ada_2"]}, r"identities: 'bob' is an account too, but not one of that person's"),
        ({"ada": []}, r"identities\.ada: \[\]; a list of at least one account"),
        ({"ada": "ada_1"}, r"identities\.ada: 'ada_1'; a list"),
        ({"ada": [True]}, r"identities\.ada: True; names are accepted"),
        ({"ada": [" "]}, r"identities\.ada: ' '; names are accepted"),
        ({"a\x1bda": ["ada_1"]}, r"identities: contributor .* control character U\+001B"),
        ({" ada": ["ada_1"], "ada ": ["ada_2"]}, r"identities: 'ada' is there twice"),
        ({}, r"identities: \{\}; a mapping"),
        ("nowhere.yaml", r"identities: nowhere\.yaml: no file there"),
    ],
)
def test_refused(accounts, identities, message):
    with pytest.raises(UserError, match=message) as caught:
        load(accounts, identities=identities)
    assert "\n" not in str(caught.value)


def test_files(accounts, tmp_path):
    (tmp_path / "people.yaml").write_text("ada: [ada_1, ada_2]\n7: [ada_3]\n")
    (tmp_path / "people.csv").write_text("identity,account,note\nada,ada_1,\nada,ada_2,\n7,ada_3,\n")
    expected = {"ada": ("ada_1", "ada_2"), "7": ("ada_3",)}
    assert read_identities(tmp_path / "people.yaml") == read_identities(tmp_path / "people.csv") == expected
    assert load(accounts, identities=tmp_path / "people.csv").contributors == ("7", "ada", "bob", "cyd")
    (tmp_path / "short.csv").write_text("account,person\nada_1,ada\n")
    with pytest.raises(UserError, match=r"identities: .*short\.csv: line 2: no column 'identity'; there are: account"):
        load(accounts, identities=tmp_path / "short.csv")
    (tmp_path / "list.yaml").write_text("- ada\n")
    with pytest.raises(UserError, match=r"list\.yaml: identities: \['ada'\]; a mapping"):
        load(accounts, identities=str(tmp_path / "list.yaml"))
