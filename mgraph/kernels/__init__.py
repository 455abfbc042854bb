"""CUDA C++ sources and the one loader that compiles them, for the GPU and for the CPU. Importing compiles nothing."""

from mgraph.kernels.launch import Kernel, Library, Struct, View, load

__all__ = ["Kernel", "Library", "Struct", "View", "load"]
