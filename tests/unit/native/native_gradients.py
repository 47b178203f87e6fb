"""Gradients of one batch: by the native engine, and by autograd on the plain network."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from network_oracle import Oracle, dropout_masks
from numpy.typing import NDArray

from service.spec import RunSpec
from workers.model import initial_weights, run_parameters, state_of
from workers.native.library import Library, library, make_run
from workers.native.native_stack import flatten
from workers.streams import Purpose
from workers.tasks import make_dataset

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
    spec: RunSpec, batch: NDArray[np.int64], epoch: int, step: int, precision: torch.dtype
) -> Gradients:
    network = Oracle(spec).to(precision)
    weights = {name: torch.from_numpy(value) for name, value in initial_weights(spec).items()}
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

    Exact is autograd in double precision. Where terms cancel, single precision cannot do better:
    ten times the error that autograd makes in single precision is forgiven, and a tensor whose
    gradient is under a hundredth of the largest one's is held to that hundredth.
    """
    loss, ours = native_gradients(spec, batch, 3, 1, engine)
    exact_loss, exact = autograd_gradients(spec, batch, 3, 1, torch.float64)
    _, single = autograd_gradients(spec, batch, 3, 1, torch.float32)
    assert ours.keys() == exact.keys()
    worst = abs(loss / exact_loss - 1)
    largest = max(np.abs(expected).max() for expected in exact.values())
    for name, expected in exact.items():
        scale = np.abs(expected).max() + 0.01 * largest
        unavoidable = 10 * np.abs(single[name] - expected).max()
        error = np.abs(ours[name] - expected).max() - unavoidable
        worst = max(worst, float(error / scale))
    return worst
