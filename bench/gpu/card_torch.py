"""PyTorch on one card, or on the CPU with the word --cpu, for the programs beside this file. Where there is none they print {"missing": why}
and end."""
import json
import sys

DEVICE = "cpu" if "--cpu" in sys.argv else "cuda"


def missing(why):
    print(json.dumps({"missing": why}))
    sys.exit(0)


try:
    import torch
except ImportError:
    missing("PyTorch is not installed")
if DEVICE == "cuda" and not torch.cuda.is_available():
    missing("PyTorch finds no card")


def wait():
    """For all that the card has been given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
