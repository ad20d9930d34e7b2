import gc

import pytest

from diffcredit.util.garbage import no_garbage_collection


def test_it_stays_off_until_the_last_block_is_left():
    """Blocks of two threads overlap and do not nest: the first to come may be the first to go."""
    first, second = no_garbage_collection(), no_garbage_collection()
    assert gc.isenabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_comes_back_after_an_error_and_only_where_it_was_on():
    with pytest.raises(ValueError, match="x"), no_garbage_collection():
        raise ValueError("x")
    assert gc.isenabled()
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
