"""What the tests of commands share."""

import dataclasses
import itertools
import shutil
import sys
import warnings

import numpy as np
import pytest

from diffcredit.cli import main
from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.timing.calibration import Timing
from diffcredit.execution.timing.measuring import MeasuringTime
from diffcredit.ledger import Value
from diffcredit.study.study import Study
from tiny_study import write_study


@pytest.fixture
def diffcredit(monkeypatch, capsys):
    """Runs a command in this process: its exit code, output and complaint. With ``warned`` a warning is a complaint,
    as it is for users; without, an error. ``printed`` returns the output of a command that succeeds, ``refused`` the
    one line with which a user's mistake is refused."""

    def call(*arguments, warned=False):
        monkeypatch.setattr(sys, "argv", ["diffcredit", *map(str, arguments)])
        with warnings.catch_warnings():
            if warned:
                warnings.simplefilter("always", DiffcreditWarning)
            with pytest.raises(SystemExit) as ended:
                main()
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    def printed(*arguments, warned=False):
        code, out, err = call(*arguments, warned=warned)
        assert code == 0, err
        assert warned or err == ""
        return out

    def refused(*arguments, warned=False):
        code, _, err = call(*arguments, warned=warned)
        assert (code, err.count("\n")) == (2, 1), err
        return err

    call.printed, call.refused = printed, refused
    return call


COSTS = {"once": 0.5, "together": 0.125}  # seconds a step


@pytest.fixture
def speeds(monkeypatch):
    """Made-up times: of training by steps, of images, and of measuring; on a GPU that takes fleets of eight. What is
    timed is noted."""
    asked = []

    def time_training(model, settings, at_once=None):
        asked.append((settings.steps, at_once))
        return Timing(settings.steps * COSTS["once" if at_once is None else "together"], compiling=20.0)

    def time_sampling(model, sampling, *, often=False):
        asked.append(("images", often))
        return Timing(3.0 if often else 4.0, compiling=1.0)

    monkeypatch.setattr("diffcredit.study.plan.time_training", time_training)
    monkeypatch.setattr("diffcredit.study.plan.time_sampling", time_sampling)
    monkeypatch.setattr("diffcredit.study.plan.time_measuring", lambda *_: MeasuringTime(1.0, 5.0, {}))
    monkeypatch.setattr("diffcredit.study.plan.fleet_size", lambda model, settings: 8)
    return asked


def with_records(folder, count, standard_error, scale=1.0):
    """The finished study's ledger with ``count`` evaluations, which nobody made: value and seconds are made up.
    ``scale`` is that of the credits, beside noise of deviation 1."""
    study = Study.load(write_study(folder, {"stop.evaluations": count}))
    rng, credit = np.random.default_rng(0), scale * np.linspace(-1, 1, 12)
    schedule = study.schedule()
    with study.ledger() as ledger:
        done = {e.key for e in ledger.evaluations(study.name, study.recipe.name)}
        like = ledger.evaluations(study.name, study.recipe.name)[-1]
        for task in itertools.islice(schedule.coalitions(), count):
            if task.key in done:
                continue
            effect = float(np.array([member == "1" for member in task.coalition]) @ credit + rng.normal())
            values = tuple(
                Value(old.property, old.value + effect, None if old.property == "heldout_loss" else standard_error)
                for old in like.values
            )
            made = {"coalition": task.coalition, "replicate": task.replicate, "purpose": "estimate", "values": values}
            seconds = {"training": 3.0, "sampling": 1.0, "measuring": 0.0}
            ledger.record(study.name, study.recipe.name, dataclasses.replace(like, **made, seconds=seconds))


@pytest.fixture(scope="session")
def _recorded(_finished, tmp_path_factory):
    folder = shutil.copytree(_finished, tmp_path_factory.mktemp("recorded") / "study")
    with_records(folder, 200, standard_error=0.5)
    return folder


@pytest.fixture
def recorded(_recorded, tmp_path):
    """The tiny study with 200 evaluations, most of them made up, with standard errors of 0.5; the test's own copy."""
    return shutil.copytree(_recorded, tmp_path / "recorded")
