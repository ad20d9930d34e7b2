"""Of laws that are known, what is foreseen from where they take a few seconds."""

import pytest
from diffcredit.execution.timing.growth import ENOUGH, extrapolate


class Work:
    def __init__(self, law, least: int = 0) -> None:
        self.law, self.least, self.sizes = law, least, []

    def __call__(self, size: int) -> float:
        if size < self.least:
            raise ValueError(f"{size} are too few")
        self.sizes.append(size)
        return self.law(size)


@pytest.mark.parametrize(
    "law",
    [
        lambda n: 1e-3 * n,
        lambda n: 1e-6 * n**2,
        lambda n: 1e-9 * n**3,
        lambda n: 3.0,
        lambda n: 1.5 + 1e-3 * n,
        lambda n: 40.0 * n,
        lambda n: 1e-7 * n,
        lambda n: 0.0,
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1000, 100_000])
def test_known_laws(law, size):
    work = Work(law)
    assert extrapolate(work, size) == pytest.approx(law(size), rel=1e-6)
    long = [each for each in work.sizes if each < size and law(each) > ENOUGH]
    assert not long or max(work.sizes) == long[0], "no more is done than takes long enough"


def test_what_begins_slowly_and_ends_fast_is_foreseen_a_little_low():
    """Seconds that grow by n and n² together, equal at the end, as where generated and reference images are compared;
    they take long from half of them on."""
    assert extrapolate(Work(lambda n: 10 * n / 4096 + 10 * (n / 4096) ** 2), 4096) == pytest.approx(20, rel=0.15)


def test_too_few_are_passed_over():
    work = Work(lambda n: 1e-3 * n, least=500)
    assert extrapolate(work, 1000) == pytest.approx(1)
    assert min(work.sizes) == 512
    work = Work(lambda n: 1e-1 * n, least=500)
    assert extrapolate(work, 4096) == pytest.approx(409.6)
    assert work.sizes == [512]  # of 256, which it cannot do, nothing is known


def test_what_cannot_be_done_with_all_is_told():
    with pytest.raises(ValueError, match="10 are too few"):
        extrapolate(Work(lambda n: 0.0, least=11), 10)


def test_nothing_at_all():
    assert extrapolate(Work(lambda n: 0.5), 0) == 0.5
