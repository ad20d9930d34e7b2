"""``--no-plugins``, for studies from strangers."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated

import typer

NoPlugins = Annotated[
    bool, typer.Option("--no-plugins", help="Refuse a study that brings its own code (DIFFCREDIT_NO_PLUGINS=1).")
]


def with_no_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the option ``--no-plugins``, as its last one. Worker processes inherit it."""

    @functools.wraps(command)
    def wrapped(*, no_plugins: bool = False, **options: object) -> None:
        if no_plugins:
            from diffcredit.util.plugins import NO_PLUGINS

            os.environ[NO_PLUGINS] = "1"
        command(**options)

    # typer makes options of the signature
    signature = inspect.signature(command, eval_str=True)
    parameter = inspect.Parameter("no_plugins", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=NoPlugins)
    parameters = [*signature.parameters.values(), parameter]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # ty: ignore[missing-attribute]
    wrapped.__annotations__ = {**command.__annotations__, "no_plugins": NoPlugins}
    return wrapped
