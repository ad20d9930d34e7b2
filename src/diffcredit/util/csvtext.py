"""Names in CSV files that spreadsheets open.

A name is data, yet a spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line
break as a formula. Such names, also behind white space, get one leading apostrophe, which spreadsheets show
as text. Names that already carry apostrophes before such a character get one more, so that no two names ever
become one: to undo, drop the first apostrophe wherever one of these characters follows it.
"""

import re

# the full-width signs too: some spreadsheets fold them into the ordinary ones
_FORMULA = re.compile(r"[\s']*[=+\-@＝＋－＠\t\r\n]")


def neutralise(text: str) -> str:
    """``text`` such that no spreadsheet takes it for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text
