"""What bench/compare and bench/tcp share: how the peers' programs are built, and settings that suit the peers best."""
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent
# program: compiler, source, libraries
ROWS = {
    "limit": (["cc", "-std=gnu11"], "limit.c", []),
    "openmpi": (["mpicc.openmpi", "-std=gnu11"], "mpi.c", []),
    "mpich": (["mpicc.mpich", "-std=gnu11"], "mpi.c", []),
    "gloo": (["c++", "-std=c++20"], "gloo.cc", ["-lgloo", "-pthread"]),
    "trireme": (["cc", "-std=gnu11"], "trireme.c", ["-ltrireme"]),
}
# Big pages for the peer's buffers and those it allocates in every call, which it then keeps.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=17179869184"}
ROOT_USER = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def build(name, folder, library=None):
    """Compiles a program into the folder unless it is there and younger than its sources; returns what went wrong, or None. library: the
    folder of one that is not installed."""
    compiler, source, libraries = ROWS[name]
    out, inputs = pathlib.Path(folder, name), [FOLDER / source, *FOLDER.glob("*.h")]
    if out.exists() and all(out.stat().st_mtime > f.stat().st_mtime for f in inputs):
        return None
    if library:
        libraries = [f"-I{FOLDER.parents[1]}/include", f"-L{library}", f"-Wl,-rpath,{library}", *libraries]
    try:
        done = subprocess.run([*compiler, "-O3", "-march=native", str(FOLDER / source), "-o", str(out), *libraries], text=True,
                              capture_output=True)
    except FileNotFoundError:
        return f"there is no {compiler[0]}"
    return None if done.returncode == 0 else f"{' '.join(compiler)} {source} failed:\n{done.stderr}"
