# SPDX-License-Identifier: Apache-2.0
"""Builds trireme._C with the torch that is installed, against libtrireme: installed (pkg-config), or TRIREME_DIR, an
installation's prefix or a build folder. TRIREME_BUNDLE=1: the library goes into the package."""
import glob
import os
import shutil
import subprocess
import sys

from setuptools import setup

try:
    import torch
except ImportError:
    # pip builds where installed packages are hidden, but the extension is for the torch that is here.
    here = subprocess.run([sys.executable, "-I", "-c", "import sys; print(*sys.path, sep='\\n')"], check=True, text=True,
                          capture_output=True).stdout.split("\n")
    sys.path += [path for path in here if path and path not in sys.path]
    try:
        import torch
    except ImportError:
        sys.exit("trireme: want PyTorch (1.13 or 2), found none: pip install torch, or apt-get install python3-torch")

from torch.utils.cpp_extension import BuildExtension, CppExtension  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def pkg_config(*args):
    return subprocess.run(["pkg-config", *args, "trireme"], check=True, text=True, capture_output=True).stdout.strip()


def find_library():
    """Folders of the headers and of libtrireme.so."""
    root = os.environ.get("TRIREME_DIR")
    if root:
        root = os.path.abspath(root)
        headers = [f"{root}/include", os.path.join(HERE, "../../include")]
        libraries = [root, *glob.glob(f"{root}/lib*"), *glob.glob(f"{root}/lib/*")]
        for header in headers:
            for library in libraries:
                if os.path.exists(f"{library}/libtrireme.so") and os.path.exists(f"{header}/trireme/comm.h"):
                    return os.path.abspath(header), library
        sys.exit(f"trireme: TRIREME_DIR: want a folder with libtrireme.so, or lib/ and include/ with it, found {root}")
    if shutil.which("pkg-config"):
        try:
            return pkg_config("--variable=includedir"), pkg_config("--variable=libdir")
        except subprocess.CalledProcessError:
            pass
    sys.exit("trireme: want the C library: make install, or TRIREME_DIR=<its prefix or build folder>; found none")


INCLUDE, LIBRARY = find_library()
BUNDLE = os.environ.get("TRIREME_BUNDLE") == "1"  # a wheel that brings its library along
OPTIMIZE = os.environ.get("TRIREME_OPTIMIZE", "-O2")  # the tests build with -O0, in two thirds of the time
STANDARD = ["-std=c++17"] if int(torch.__version__.split(".")[0]) < 2 else []  # torch 2 says its own



class Build(BuildExtension):
    def run(self):
        super().run()
        if BUNDLE:
            name = os.path.realpath(f"{LIBRARY}/libtrireme.so.0")
            shutil.copy(name, os.path.join(self.build_lib, "trireme", "libtrireme.so.0"))


setup(
    ext_modules=[
        CppExtension(
            "trireme._C",
            ["src/all.cpp"],
            include_dirs=[INCLUDE],
            library_dirs=[LIBRARY],
            libraries=["trireme"],
            runtime_library_dirs=["$ORIGIN" if BUNDLE else os.path.realpath(LIBRARY)],
            depends=[os.path.relpath(path, HERE) for path in glob.glob(f"{HERE}/src/*pp")],
            extra_compile_args=[OPTIMIZE, "-g0", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-deprecated-declarations", *STANDARD],
        )
    ],
    cmdclass={"build_ext": Build},
)
