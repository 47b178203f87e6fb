"""The native CPU engine: whole epochs in C, compiled on this machine when first used."""

from groktime.workers.native.engine import NativeStack, supports, unavailable

__all__ = ["NativeStack", "supports", "unavailable"]
