"""Native kernels: whole steps of a model in C++, over packed weights.

Knows no request, no file and no torch. Importing raises ImportError where nothing is compiled.
"""

from floorline._native import MAX_THREADS, NativeModel, Reader, Unsupported, isas, product
from kernels.build import NativeOptions, build_model
from kernels.packing import PackedMatrix, pack

__all__ = [
    "MAX_THREADS",
    "NativeModel",
    "NativeOptions",
    "PackedMatrix",
    "Reader",
    "Unsupported",
    "build_model",
    "isas",
    "pack",
    "product",
]
