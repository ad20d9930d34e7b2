"""What the fast path runs on a GPU where no library has a kernel for many networks at once, in Triton's language."""
