"""GPU kernels in Triton for operations of many networks at once that no library offers. A *slope* is a gradient."""
