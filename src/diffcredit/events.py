"""What happens in long work, told to Python's logging as records with fields: who embeds the library hears them with a
handler of the logger ``diffcredit``, and a study's run writes them to a file."""

import logging

LOGGER = logging.getLogger("diffcredit")

Field = str | int | float | bool | None


def event(kind: str, /, **fields: Field) -> None:
    """Tells that something of this ``kind`` happened, such as ``worker lost``, with what is known of it."""
    LOGGER.info(kind, extra={"fields": fields}, stacklevel=2)
