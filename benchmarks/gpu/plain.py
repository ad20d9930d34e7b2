"""The loop that one writes with diffusers, as the method's published code runs it."""

import time

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch.nn import functional as F

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.model import Batch

WARM_UP = 10


def training_seconds(model: DDPM, data: Batch, batch_size: int, steps: int, *, autocast: bool) -> float:
    """Of one step: a batch of images that are on the GPU already, noise, the loss, clipping, Adam."""
    network, schedule = model.network.train(), DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            torch.cuda.synchronize()
            clock = time.perf_counter()
        x = data.x[torch.randint(len(data), (batch_size,), device=data.x.device)]
        noise = torch.randn_like(x)
        t = torch.randint(0, 1000, (batch_size,), device=x.device)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            predicted = network(schedule.add_noise(x, noise, t), t).sample
        F.mse_loss(predicted.float(), noise).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    network.eval()
    return (time.perf_counter() - clock) / steps


@torch.no_grad()
def sampling_seconds(model: DDPM, batch_size: int, steps: int, *, autocast: bool) -> float:
    """Of one step of DDIM on a batch of images."""
    scheduler = DDIMScheduler(**DDPM.schedule)
    scheduler.set_timesteps(100)
    x = torch.randn(batch_size, *model.shape, device=model.device)
    for step, t in enumerate(scheduler.timesteps[: WARM_UP + steps]):
        if step == WARM_UP:
            torch.cuda.synchronize()
            clock = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            predicted = model.network(x, t).sample
        x = scheduler.step(predicted.float(), t, x).prev_sample
    torch.cuda.synchronize()
    return (time.perf_counter() - clock) / steps
