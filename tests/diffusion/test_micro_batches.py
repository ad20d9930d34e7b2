"""Steps in pieces, by wish or for want of memory."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diffcredit.diffusion import Training
from diffcredit.diffusion.micro_batches import in_smaller_batches, micro_batch_in_use
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.training import train
from diffcredit.errors import DiffcreditError, DiffcreditWarning

from . import plain

WHOLE = Training(steps=4, batch_size=7, learning_rate=0.1, optimizer="sgd", gradient_clip=0.05)


pytestmark = pytest.mark.usefixtures("session")


class Small(plain.Plain):
    """A model whose device holds ``room`` samples at once; ``sizes`` tells what was tried."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.sizes = room, []

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        self.sizes.append(len(batch))
        if len(batch) > self.room:
            raise torch.OutOfMemoryError("out of memory")
        return super().loss(batch, t, noise)


def trained(settings: Training, model: plain.Plain | None = None) -> dict[str, Tensor]:
    model = model or plain.Plain()
    train(model, plain.data(), settings, seed=2)
    return plain.weights(model)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_have_the_gradient_of_the_whole_batch(size):
    # 7 = 2 + 2 + 2 + 1 = 3 + 3 + 1 = 5 + 2: the last piece counts by its size
    torch.testing.assert_close(trained(replace(WHOLE, micro_batch=size)), trained(WHOLE), rtol=1e-12, atol=1e-14)


def test_what_does_not_fit_is_halved_and_the_step_redone():
    model = Small(room=2)
    assert micro_batch_in_use(model, WHOLE) == 7
    with pytest.warns(DiffcreditWarning, match=r"with 7 samples at once; .* of 1, .* \(micro_batch: 1") as caught:
        weights = trained(WHOLE, model)
    assert len(caught) == 1
    torch.testing.assert_close(weights, trained(WHOLE), rtol=1e-12, atol=1e-14)
    # 7, then ⌊7/2⌋ = 3, then 1
    assert model.sizes == [7, 3] + [1] * 7 * 4
    assert micro_batch_in_use(model, WHOLE) == 1


def test_memory_that_runs_out_in_the_middle_of_a_step():
    class Shrinking(Small):
        def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
            if len(self.sizes) == 5:  # the second step's second piece, after the first left its gradient
                self.room = 2
            return super().loss(batch, t, noise)

    model = Shrinking(room=4)
    with pytest.warns(DiffcreditWarning):
        weights = trained(replace(WHOLE, micro_batch=4), model)
    torch.testing.assert_close(weights, trained(WHOLE), rtol=1e-12, atol=1e-14)
    assert model.sizes[:10] == [4, 3, 4, 3, 4, 3, 2, 2, 2, 1]


def test_the_next_training_knows_what_fits():
    with pytest.warns(DiffcreditWarning):
        trained(WHOLE, Small(room=3))
    again = Small(room=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(WHOLE, again)
    assert set(again.sizes) == {3, 1}
    # of another batch size nothing is known
    assert micro_batch_in_use(again, replace(WHOLE, batch_size=8)) == 8
    assert micro_batch_in_use(again, replace(WHOLE, micro_batch=2)) == 2


def test_a_single_sample_that_does_not_fit():
    with pytest.raises(DiffcreditError, match=r"single sample .* gradient_checkpointing: true or precision: bf16"):
        trained(WHOLE, Small(room=0))


def test_work_in_smaller_batches():
    tried = []

    def work(places: range) -> list[int]:
        tried.append(len(places))
        if len(places) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return [place**2 for place in places]

    with pytest.warns(DiffcreditWarning, match="with 8 images at once; going on with 2") as caught:
        results = in_smaller_batches(work, 13, 8)
    assert len(caught) == 1
    assert [number for piece in results for number in piece] == [place**2 for place in range(13)]
    assert tried == [8, 4, 2, 2, 2, 2, 2, 2, 1]
    assert in_smaller_batches(lambda places: (places.start, places.stop), 7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert in_smaller_batches(work, 0, 8) == []
    with pytest.raises(DiffcreditError, match=r"single sample .* a smaller model"):
        in_smaller_batches(lambda places: work(range(9)), 2, 2)


def test_part_of_a_batch():
    whole = replace(plain.data(5), conditions={"states": torch.eye(2)}, condition_of=torch.tensor([0, 1, 1, 0, 1]))
    middle = whole.part(range(1, 4))
    assert middle.rows.tolist() == [1, 2, 3]
    assert middle.x.equal(whole.x[1:4])
    assert middle.flipped.equal(whole.flipped[1:4])
    assert middle.condition["states"].equal(torch.eye(2)[[1, 1, 0]])
    assert plain.data(5).part(range(2)).condition is None


@pytest.mark.gpu
def test_memory_of_a_gpu_that_runs_out():
    from . import tiny

    pictures = tiny.images(64).repeat(8, axis=1).repeat(8, axis=2)
    settings = Training(steps=2, batch_size=512, optimizer="sgd")

    def on_gpu() -> dict[str, Tensor]:
        model = tiny.model().to("cuda")
        train(model, model.encode(pictures), settings, seed=0)
        return tiny.weights(model)

    torch.cuda.reset_peak_memory_stats()
    whole = on_gpu()
    needed, there = torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.6 * needed / there)
    try:
        with pytest.warns(DiffcreditWarning, match="out of memory with 512"):
            pieces = on_gpu()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.testing.assert_close(pieces, whole, rtol=1e-3, atol=1e-5)
