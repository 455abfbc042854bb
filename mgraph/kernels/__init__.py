"""CUDA C++ sources, and their loader for GPU and CPU. Importing compiles nothing."""

from mgraph.kernels.launch import Kernel, Library, Struct, View, compile_together, load
from mgraph.kernels.source import constants

__all__ = ["Kernel", "Library", "Struct", "View", "compile_together", "constants", "load"]
