"""How many tiles there are, and how large one is."""

PROCESSORS = 132  # about as many as a large GPU has


def ceil_div(total: int, each: int) -> int:
    """⌈total / each⌉."""
    return -(-total // each)


def next_power_of_2(least: int) -> int:
    """The smallest that is not less."""
    return 1 << (max(1, least) - 1).bit_length()
