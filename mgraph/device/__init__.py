"""Devices: a GPU with CuPy, or the CPU with NumPy.

`Device` is built up file by file: `hardware` with streams and free memory, then the `allocator`, then `transfers`
between device and host, then `device` with NumPy's operations.
"""

from mgraph.device.allocator import page_locked_memory
from mgraph.device.device import Device
from mgraph.device.hardware import PAGE, Array, gpu_count, touch_pages
from mgraph.device.transfers import STAGED, STAGING

__all__ = ["PAGE", "STAGED", "STAGING", "Array", "Device", "gpu_count", "page_locked_memory", "touch_pages"]
