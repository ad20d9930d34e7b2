"""The errors a user may meet, and what the command line does with them."""

from collections.abc import Generator
from contextlib import contextmanager


class DiffcreditError(Exception):
    """Something failed; the message says what. The command line prints it in one line and exits with 1."""


class UserError(DiffcreditError):
    """Something the user said cannot be followed; the message names the file, the key, the value and what
    is accepted. The command line prints it in one line and exits with 2."""


@contextmanager
def located(where: object) -> Generator[None]:
    """Puts ``where``, such as the study file, before the message of a mistake or failure that comes from within."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except DiffcreditError as error:
        raise DiffcreditError(f"{where}: {error}") from error


class DiffcreditWarning(UserWarning):
    """Something the user should look at, though the work goes on."""
