"""The command line, with one file for each command. Commands parse and print; the library does the work."""

import logging
import sys
import warnings
from importlib import import_module
from typing import Any

import typer

from diffcredit.cli.console import complain
from diffcredit.cli.export import restore
from diffcredit.cli.keys import keys
from diffcredit.cli.options import with_shared_options
from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.util.events import event

app = typer.Typer(
    name="diffcredit",
    help="Credit the data contributors of diffusion models: Shapley values with honest error bars.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS = (  # each is a function in the file of its name
    *("demo", "init", "trust", "plan", "pilot", "run", "measure", "baselines", "explain"),
    *("validate", "status", "credits", "compare", "report", "payout", "statements", "verify", "export", "roles"),
    *("check", "anchor"),
)
WITHOUT_STUDY = ("demo", "init", "trust", "check")
for command in COMMANDS:
    function = getattr(import_module(f"diffcredit.cli.{command}"), command)
    app.command()(function if command in WITHOUT_STUDY else with_shared_options(function))
app.command("import")(restore)
app.add_typer(keys)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from diffcredit.execution.versions import package_versions

        typer.echo(f"diffcredit {package_versions().get('diffcredit', '(not installed)')}")
        raise typer.Exit


def main() -> None:
    """Run a command. Exit codes: 0 done, 1 a failure, 2 a user's mistake, 130 stopped by Ctrl-C."""
    warnings.showwarning = _show_warning  # ty: ignore[invalid-assignment]  (it is meant to be replaced)
    try:
        app()
    except DiffcreditError as error:
        complain(error)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except OSError as error:  # a full disk, a folder that may not be written
        complain(f"{error.filename}: {error.strerror}" if error.filename else error)
        sys.exit(1)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    if issubclass(category, DiffcreditWarning):
        event("warning", level=logging.WARNING, message=str(message))
        complain(message, "warning")
    else:
        _show_other_warning(message, category, *place, **more)


_show_other_warning = warnings.showwarning
