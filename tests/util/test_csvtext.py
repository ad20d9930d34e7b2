import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffcredit.util.csvtext import neutralise


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "  =1", "\n=1", "'=1", "＝1", " \tx"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(name):
    assert neutralise(name) == "'" + name


@pytest.mark.parametrize("name", ["Ada", "'t Hooft", "O'Neil", "a=b", "1-2", " x", "", "نور"])
def test_ordinary_names_stay(name):
    assert neutralise(name) == name


@given(st.lists(st.text(alphabet="'=+-@ \t\rab"), unique=True, min_size=2, max_size=2))
def test_two_names_never_become_one(names):
    assert neutralise(names[0]) != neutralise(names[1])
