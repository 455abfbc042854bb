"""CUDA C++ sources, and their loader for GPU and CPU. Importing compiles nothing."""

from mgraph.kernels.launch import Kernel, Library, Struct, View, load
from mgraph.kernels.source import constants

__all__ = ["Kernel", "Library", "Struct", "View", "constants", "load"]
