"""Arguments and options that several commands share."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from diffcredit.errors import UserError
from diffcredit.util.consent import ALLOW_PLUGINS, NO_PLUGINS

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or a folder with a study.yaml.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Worker processes. Default: one for each core or GPU; on a cluster, as many as it has room for. If "
        "there are more than GPUs, they share them.",
    ),
]
OnOption = Annotated[
    Literal["local", "ray"], typer.Option(help="Where evaluations run: on this machine, or on a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Address of the Ray cluster, such as 10.0.0.1:6379. Default: the one that runs on this machine, or a new "
        "one for the run."
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        min=0.0,
        help="GPUs per worker on a Ray cluster; with 0.5, two share one. Default: 1 if the cluster has any and the "
        "study's device is not the CPU.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES",
        help="Kill and replace a worker that takes longer for an evaluation, and repeat the evaluation. Default: ten "
        "times the longest so far, at least 10 minutes; a day for the first. With this option, a single worker is a "
        "process of its own instead of this one.",
    ),
]
NoPlugins = Annotated[
    bool, typer.Option("--no-plugins", help="Refuse a study that brings its own code (DIFFCREDIT_NO_PLUGINS=1).")
]
AllowPlugins = Annotated[
    bool,
    typer.Option(
        "--allow-plugins",
        help="Run the study's own code, whatever it is (DIFFCREDIT_ALLOW_PLUGINS=1). Otherwise only what diffcredit "
        "trust has allowed.",
    ),
]
Outside = Annotated[
    list[str] | None,
    typer.Option(
        "--outside",
        metavar="DIR",
        help="A folder outside the study's project in which it may write: its results, artifacts or ledger "
        "(DIFFCREDIT_OUTSIDE=DIR). May be repeated.",
    ),
]
WORKERS: dict[str, Any] = {
    "workers": (WorkersOption, None),
    "on": (OnOption, "local"),
    "address": (AddressOption, None),
    "gpus_per_worker": (GpusOption, None),
    "timeout": (TimeoutOption, None),
}
"""The fields of :class:`diffcredit.study.workers.Workers` as options, with their defaults."""


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the options ``--allow-plugins`` and ``--no-plugins``, which workers inherit, and ``--outside``;
    one with a parameter ``where`` also the options above, as ``Workers``."""
    signature = inspect.signature(command)
    switches = {"allow_plugins": (AllowPlugins, False), "no_plugins": (NoPlugins, False)}
    switches["outside"] = (Outside, None)
    shared = (WORKERS if "where" in signature.parameters else {}) | switches

    @functools.wraps(command)
    def wrapped(
        *, allow_plugins: bool = False, no_plugins: bool = False, outside: list[str] | None = None, **given: Any
    ) -> None:
        if allow_plugins:
            os.environ[ALLOW_PLUGINS] = "1"
        if no_plugins:
            os.environ[NO_PLUGINS] = "1"
        if outside:
            from diffcredit.study.places import OUTSIDE

            os.environ[OUTSIDE] = os.pathsep.join(outside)
        if "where" in signature.parameters:
            from diffcredit.study.workers import Workers

            given["where"] = Workers(**{name: given.pop(name) for name in WORKERS})
        command(**given)

    parameters = [
        *(parameter for parameter in signature.parameters.values() if parameter.name != "where"),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in shared.items()
        ),
    ]
    # typer makes options of these
    wrapped.__signature__ = signature.replace(parameters=parameters)  # ty: ignore[missing-attribute]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def _known_estimator(method: str | None) -> str | None:
    from diffcredit.credit import METHODS

    if method is not None and method not in METHODS:
        raise UserError(f"--method: {method!r} is unknown; accepted: {', '.join(METHODS)}")
    return method


EstimatorOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        # written out, because importing the registry imports scipy, which would slow down --help
        help="Shapley values: shapley, unshrunk, kernelshap, permutation, exact. Other questions: banzhaf, "
        "banzhaf-msr, leave-one-out, add-one-in, datamodel, datamodel-lasso. Default: shapley, or what the design is "
        "for where it has no Shapley values.",
        callback=_known_estimator,
    ),
]
ConfidenceOption = Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence level of the intervals.")]
BaselineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="A method's name, a plug-in package.module:Class, or a mapping with options such as "
        "'{name: trak, dimensions: 4096}'. Default: all that this study supports.",
    ),
]


def parse_component(text: str, option: str, example: str) -> dict[str, Any]:
    """Parse a component, such as a property, from the command line: a name, or a mapping with a name and options."""
    from diffcredit.util.yamlfile import parse_yaml

    value = parse_yaml(text, option)
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise UserError(
            f"{option}: {text!r} is not accepted; a name, package.module:Name, or a mapping with a name, such as "
            f"'{example}'"
        )
    return value
