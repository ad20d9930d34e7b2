"""Where evaluations run: the options that all commands which evaluate have in common."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Worker processes. Default: the CPU's cores, or one for each GPU; on a cluster, as many as it has room "
        "for. More than there are GPUs share them.",
        show_default=False,
    ),
]
OnOption = Annotated[
    Literal["local", "ray"], typer.Option(help="Where evaluations run: on this machine, or on a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster's, such as 10.0.0.1:6379. Default: the one that runs on this machine, or one that is "
        "started here for the run.",
        show_default=False,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        min=0.0,
        help="GPUs of each worker on a Ray cluster; 0.5: two share one. Default: 1 where the cluster has any and the "
        "study's device is not the CPU.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES",
        help="A worker that takes longer for an evaluation is killed and replaced, and the evaluation repeated. "
        "Default: ten times the longest so far, at least 10; a day before there is one. A single worker, which is this "
        "very process otherwise, is a process of its own with this option.",
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
    """Give ``command`` the options above, last of all; it gets them as its keyword ``where``."""

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
