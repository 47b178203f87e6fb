"""The native CPU engine: whole epochs in C, compiled on this machine when first used."""

from workers.native.build import unavailable
from workers.native.native_stack import NativeStack, supports

__all__ = ["NativeStack", "supports", "unavailable"]
