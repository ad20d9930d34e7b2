"""GPU kernels in Triton for operations of many networks at once that no library offers. A *slope* is a gradient."""

PROCESSORS = 132  # about the number of a large GPU


def ceil_div(total: int, each: int) -> int:
    """Return ⌈total / each⌉."""
    return -(-total // each)


def next_power_of_2(least: int) -> int:
    """Return the smallest power of 2 that is at least ``least``."""
    return 1 << (max(1, least) - 1).bit_length()
