#!/bin/sh
# Installs into an empty folder and builds programs against it as users do: pkg-config (shared, static) and find_package.
# usage: install.sh BUILD_FOLDER EXAMPLES_FOLDER COMPILER
set -eu
build=$1
examples=$2
compiler=$3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" >/dev/null
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name trireme.pc)")
export PKG_CONFIG_PATH
lib=$(pkg-config --variable=libdir trireme)

# shellcheck disable=SC2046
"$compiler" "$examples/02_all_reduce.c" -I"$examples" $(pkg-config --cflags --libs trireme) -o "$prefix/shared"
LD_LIBRARY_PATH=$lib "$prefix/bin/trireme" launch -n 3 -- "$prefix/shared" | grep "sums 3 6 9 12"

# shellcheck disable=SC2046
"$compiler" "$examples/02_all_reduce.c" -I"$examples" $(pkg-config --cflags trireme) "$lib/libtrireme.a" \
    $(pkg-config --static --libs trireme | sed 's/-ltrireme//') -o "$prefix/static"
"$prefix/bin/trireme" launch -n 2 -- "$prefix/static" | grep "sums 1 3 5 7"

cat >"$prefix/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(trireme 0.1 REQUIRED)
add_executable(user $examples/06_canonical_sum.c)
target_include_directories(user PRIVATE $examples)
target_link_libraries(user trireme::trireme)
CMAKE
cmake -S "$prefix" -B "$prefix/user-build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$prefix/user-build" >/dev/null
"$prefix/user-build/user"

# What goes with the program: man pages, completion, the dashboard, what a cluster is given.
for file in man/man1/trireme.1 man/man1/trireme-train.1 man/man5/trireme-config.5 bash-completion/completions/trireme \
    zsh/vendor-completions/_trireme fish/vendor_completions.d/trireme.fish trireme/grafana/trireme.json \
    doc/trireme/examples/fashion_mnist.yaml doc/trireme/examples/slurm/train.sbatch \
    doc/trireme/examples/kubernetes/values.yaml doc/trireme/examples/tune/cnn_asha.yaml; do
    [ -s "$prefix/share/$file" ] || {
        echo "share/$file was not installed" >&2
        exit 1
    }
done

# Nothing but the public names leaves the library.
if nm -D --defined-only "$lib/libtrireme.so" | awk '$2 == "T" {print $3}' | grep -v '^tri_'; then
    echo "names without tri_ are exported" >&2
    exit 1
fi
