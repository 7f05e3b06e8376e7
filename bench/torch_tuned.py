"""The environment in which PyTorch is fastest on this machine: what bench/run and bench/generate share."""
import glob
import os

LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def torch_env(threads, **more):
    """OpenBLAS with OpenMP, tcmalloc, the best kernels for this processor; wheels bring MKL and only need the rest."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), **more)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # where they are set they hold OpenBLAS back from AVX-512
        env.pop(name, None)
    if os.path.isdir(f"{LIBRARIES}/openblas-openmp"):
        env["LD_LIBRARY_PATH"] = f"{LIBRARIES}/openblas-openmp"
    malloc = glob.glob(f"{LIBRARIES}/libtcmalloc_minimal.so.4")
    if malloc:
        env["LD_PRELOAD"] = malloc[0]
    if "avx512f" in open("/proc/cpuinfo").read():
        env["ATEN_CPU_CAPABILITY"] = "avx512"
    return env
