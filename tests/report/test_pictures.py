import pytest

from diffcredit.errors import UserError
from diffcredit.report.pictures import png_size


def test_what_is_no_png_is_refused_by_name():
    with pytest.raises(UserError, match="thumbnail of 'A': not a PNG"):
        png_size(b"GIF89a", "thumbnail of 'A'")
