# SPDX-License-Identifier: Apache-2.0
"""Ends with 0 where the extension can be built; else with 1. Says what it found, or what is missing."""
import os
import sys
import sysconfig

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit("no module torch")
if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    sys.exit("no Python.h (python3-dev)")
headers = [os.path.join(os.path.dirname(torch.__file__), "include"), "/usr/include"]
if not any(os.path.exists(f"{folder}/torch/csrc/distributed/c10d/Work.hpp") for folder in headers):
    sys.exit("no headers of torch (libtorch-dev)")
if not dist.is_available() or not dist.is_gloo_available():
    sys.exit("torch without torch.distributed or Gloo")
print("torch", torch.__version__)
