"""Gradients of one batch: by the native engine, and by autograd on the plain network."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from network_oracle import Oracle, dropout_masks
from numpy.typing import NDArray

from groktime.service.spec import RunSpec
from groktime.workers.model import initial_weights, run_parameters, state_of
from groktime.workers.native.engine import Library, flatten, library, make_run
from groktime.workers.streams import Purpose
from groktime.workers.tasks import make_dataset

Gradients = tuple[float, dict[str, NDArray[np.floating]]]


def native_gradients(
    spec: RunSpec, batch: NDArray[np.int64], epoch: int, step: int, engine: Library | None = None
) -> Gradients:
    run = make_run(spec, make_dataset(spec), flatten(spec, state_of(initial_weights(spec))))
    loss, flat = (engine or library()).workspace().gradients(run, batch, epoch, step)
    gradients, start = {}, 0
    for parameter in run_parameters(spec):
        part = flat[start : start + parameter.size]
        gradients[parameter.name] = part.reshape(parameter.shape)
        start += parameter.size
    return loss, gradients


def autograd_gradients(
    spec: RunSpec,
    batch: NDArray[np.int64],
    epoch: int,
    step: int,
    precision: torch.dtype,
    nudge: int | None = None,
) -> Gradients:
    """With `nudge` (a seed) every weight moves by one rounding of single precision, up or down."""
    network = Oracle(spec).to(precision)
    initial = initial_weights(spec)
    if nudge is not None:
        rng = np.random.default_rng(nudge)
        ulp = float(np.finfo(np.float32).eps)
        initial = {
            name: value * (1.0 + ulp * rng.choice([-1.0, 1.0], value.shape))
            for name, value in initial.items()
        }
    weights = {name: torch.from_numpy(value) for name, value in initial.items()}
    network.load_state_dict(weights)
    data = make_dataset(spec)
    masks = None
    if spec.model.dropout > 0:
        hidden = spec.model.hidden
        masks = dropout_masks(spec, Purpose.DROPOUT, hidden, epoch, step, len(batch))
        masks = [mask.to(precision) for mask in masks]
    logits = network(torch.from_numpy(data.x_train[batch]), masks)
    loss = F.cross_entropy(logits, torch.from_numpy(data.y_train[batch]))
    loss.backward()
    gradients = {name: p.grad.numpy() for name, p in network.named_parameters()}
    return float(loss.detach()), gradients


def largest_deviation(
    spec: RunSpec, batch: NDArray[np.int64], engine: Library | None = None
) -> float:
    """The largest error of any gradient, relative to the largest entry of its tensor.

    Exact is autograd in double precision. Where terms cancel (narrow networks, above all) no
    calculation in single precision does better than the gradient moves when its inputs are
    rounded: ten times that is forgiven, taken from autograd in single precision and from exact
    gradients at weights moved by one rounding, five samples since one alone says little.
    """
    loss, ours = native_gradients(spec, batch, 3, 1, engine)
    exact_loss, exact = autograd_gradients(spec, batch, 3, 1, torch.float64)
    rounded = [autograd_gradients(spec, batch, 3, 1, torch.float32)[1]]
    rounded += [autograd_gradients(spec, batch, 3, 1, torch.float64, n)[1] for n in range(4)]
    assert ours.keys() == exact.keys()
    worst = abs(loss / exact_loss - 1)
    for name, expected in exact.items():
        scale = np.abs(expected).max() + 1e-7
        unavoidable = 10 * max(np.abs(other[name] - expected).max() for other in rounded)
        error = np.abs(ours[name] - expected).max() - unavoidable
        worst = max(worst, float(error / scale))
    return worst
