"""The options for where evaluations run, shared by all commands that evaluate."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Worker processes. Default: one for each core or GPU; on a cluster, as many as it has room for. If "
        "there are more than GPUs, they share them.",
        show_default=False,
    ),
]
OnOption = Annotated[
    Literal["local", "ray"], typer.Option(help="Where evaluations run: on this machine, or on a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Address of the Ray cluster, such as 10.0.0.1:6379. Default: the one that runs on this machine, or a new "
        "one for the run.",
        show_default=False,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        min=0.0,
        help="GPUs per worker on a Ray cluster; with 0.5, two share one. Default: 1 if the cluster has any and the "
        "study's device is not the CPU.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES",
        help="Kill and replace a worker that takes longer for an evaluation, and repeat the evaluation. Default: ten "
        "times the longest so far, at least 10 minutes; a day for the first. With this option, a single worker is a "
        "process of its own instead of this one.",
        show_default=False,
    ),
]


OPTIONS: dict[str, Any] = {
    "workers": (WorkersOption, None),
    "on": (OnOption, "local"),
    "address": (AddressOption, None),
    "gpus_per_worker": (GpusOption, None),
    "timeout": (TimeoutOption, None),
}
"""The fields of :class:`diffcredit.study.workers.Workers` as options, with their defaults."""


def with_where(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the options above, after its own; it receives them as its keyword ``where``."""

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        from diffcredit.study.workers import Workers

        where = Workers(**{name: given.pop(name) for name in OPTIONS})
        command(**given, where=where)

    # typer makes options of the signature
    signature = inspect.signature(command)
    others = [parameter for parameter in signature.parameters.values() if parameter.name != "where"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in OPTIONS.items()
    ]
    wrapped.__signature__ = signature.replace(parameters=[*others, *options])  # ty: ignore[missing-attribute]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in (*others, *options)}
    return wrapped
