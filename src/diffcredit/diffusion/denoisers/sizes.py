"""Which inputs a network can take."""

from diffcredit.errors import UserError


def require_multiple(side: int, factor: int) -> None:
    """Raise a UserError unless ``side``, of the network's inputs, is a multiple of ``factor``."""
    if side % factor:
        raise UserError(
            f"contributions.resolution: it gives the network inputs of {side} × {side}; sides that are multiples of "
            f"{factor} are accepted"
        )
