import subprocess
import sys

import pytest

from diffcredit import testing


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_is_there(name):
    assert getattr(testing, name) is not None


def test_an_unknown_name_says_so():
    with pytest.raises(AttributeError, match="'check_everything'"):
        testing.check_everything  # noqa: B018


def test_importing_brings_no_torch():
    code = (
        "import sys; from diffcredit.testing import check_design, check_property, check_retraining, learning; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
