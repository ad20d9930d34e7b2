"""Near-copies: the same picture given twice, also resized, recompressed, cropped a little or mirrored.

``looks`` makes images small and hashes them, ``finding`` finds pairs, ``stated`` reads those that a person found,
``groups`` puts them together around the one that stays, ``sharing`` divides a group's images among contributors,
``dates`` reads who was first, and ``rules`` says who is credited. ``lookalikes`` finds pairs that only features show,
for a person to look at. ``records`` has what was found.
"""
