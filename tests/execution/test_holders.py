"""Names of drivers, in containers too."""

import multiprocessing
import os
import platform
import shutil
import subprocess
import sys

import pytest

from diffcredit.execution import holders
from diffcredit.execution.holders import is_gone, new_holder

NO_PROCESS = 4_194_305  # one more than Linux gives a process
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no places")


def renumbered(holder, pid):
    machine, _, name = holder.rsplit(":", 2)
    return f"{machine}:{pid}:{name}"


def gone_to_an_older_release(holder):
    """Return what the release before places says of a name."""
    machine, pid, _ = holder.rsplit(":", 2)
    if f"{platform.node()}:{int(pid)}" != f"{machine}:{pid}":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


def test_a_driver_that_has_ended_is_gone():
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe()
    child = context.Process(target=lambda: sending.send(new_holder()))
    child.start()
    holder = receiving.recv()
    child.join()
    assert is_gone(holder)
    assert not is_gone(new_holder())


def test_two_drivers_of_one_process_have_two_names():
    assert len({new_holder() for _ in range(100)}) == 100


@on_linux
def test_other_places_and_releases_are_not_judged():
    here = renumbered(new_holder(), NO_PROCESS)
    assert is_gone(here)
    place = here.partition("@")[2].partition(":")[0]
    for holder in (here.replace(place, "0" * 8), here.replace(f"@{place}", ""), here.replace("@", "2@")):
        assert not is_gone(holder)
    assert gone_to_an_older_release(here.replace(f"@{place}", ""))
    assert not gone_to_an_older_release(here)


@pytest.mark.parametrize(
    "holder", ["", "x", "a:b:c", "a:1", f"{platform.node()}:-1:x", f"{platform.node()}:0:x", "a:9:x\n", "\0:1:\0"]
)
def test_damaged_names_are_not_gone(holder):
    assert not is_gone(holder)


def test_no_number_is_too_large_for_a_process():
    here = new_holder()
    for pid in (10**30, 10**9, 0, -1, "٣"):
        assert not is_gone(renumbered(here, pid))


@on_linux
def test_nobody_shares_a_place_that_is_not_known(monkeypatch):
    names = set()
    monkeypatch.setattr(holders.Path, "readlink", lambda path: (_ for _ in ()).throw(FileNotFoundError(path)))
    for _ in range(2):
        holders._here.cache_clear()
        names.add(holders._here())
    holders._here.cache_clear()
    assert len(names) == 2


@on_linux
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_a_driver_in_a_container_is_not_gone():
    """It has this machine's name and a process number that nobody has here."""
    command = (
        "import sys; from diffcredit.execution.holders import new_holder; print(new_holder(), flush=True); input()"
    )
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    holder = process.stdout.readline().strip()
    if not holder:
        pytest.skip(f"no namespaces here: {process.communicate()[1]}")
    assert holder.startswith(f"{platform.node()}@")
    assert ":1:" in holder
    assert not is_gone(renumbered(holder, NO_PROCESS))
    process.communicate("\n")
    assert not is_gone(holder)
