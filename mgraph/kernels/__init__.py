"""CUDA C++ sources, and the loader that compiles them for the GPU and for the CPU. Importing it compiles nothing."""

from mgraph.kernels.launch import Kernel, Library, Struct, View, load
from mgraph.kernels.source import constants

__all__ = ["Kernel", "Library", "Struct", "View", "constants", "load"]
