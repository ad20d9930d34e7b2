"""The errors a user may meet, and what the command line does with them."""


class DiffcreditError(Exception):
    """Something failed; the message says what. The command line prints it in one line and exits with 1."""


class UserError(DiffcreditError):
    """Something the user said cannot be followed; the message names the file, the key, the value and what
    is accepted. The command line prints it in one line and exits with 2."""


class DiffcreditWarning(UserWarning):
    """Something the user should look at, though the work goes on."""
