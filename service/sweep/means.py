"""What a sweep has to train with: how many bundles at once, on which device, in how much memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.settings import Settings
from service.sweep.cluster import check_gpus, cluster, members
from service.sweep.job import SweepOptions
from service.sweep.room import Room, bundle_device, room_on


@dataclass(frozen=True)
class Means:
    """Bundles trained at once, their device, and how many models one of its stacks holds."""

    slots: int
    device: str
    room: Room

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


@contextmanager
def joined(options: SweepOptions, settings: Settings, address: str | None) -> Iterator[Means]:
    """Connect to the cluster, or start one here, and find out what it offers to this sweep."""
    with cluster(address, options.workers):
        resources, _ = members()
        check_gpus(options.gpus_per_bundle, settings.device, resources)
        slots = max(1, int(resources.get("CPU", 1)))
        if options.gpus_per_bundle:
            slots = min(slots, int(resources["GPU"] / options.gpus_per_bundle))
        device = bundle_device(settings.device, options.gpus_per_bundle)
        room = room_on(device, options.gpus_per_bundle)
        yield Means(min(slots, options.workers or slots), device, room)


@contextmanager
def expected(options: SweepOptions, settings: Settings, address: str | None) -> Iterator[Means]:
    """The means of a sweep that is only planned: CPUs of this machine are known without Ray."""
    device = bundle_device(settings.device, options.gpus_per_bundle)
    if address is None and device == "cpu" and not options.gpus_per_bundle:
        yield Means(options.workers or os.cpu_count() or 1, device, room_on(device, 0.0))
        return
    with joined(options, settings, address) as means:
        yield means
