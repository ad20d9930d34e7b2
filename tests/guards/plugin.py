"""A property of the guards: the hash of this file belongs to its identity, so leave every byte of it alone."""


def brightness(images, scale=1.0):
    return scale * float(images.mean())
