# SPDX-License-Identifier: Apache-2.0
"""Trireme's collectives for PyTorch: trireme.torch (a backend of torch.distributed), trireme.horovod."""
