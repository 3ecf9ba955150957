# A thin front: everything is done by CMake and the scripts in tools/.
#
#   make              the release build, into build/ (binaries in build/bin)
#   make demo         the whole loop on this machine: actors, a store, learners that share a device
#   make check        the gates and all tests; ends with the counts
#   make check-learn  networks that learn from Relive, and the examples in Python
#   make check-wheel  the wheel in a clean environment, and a build for embed: alone
#   make check-long   100 kills, longer fuzzing, noise and histories, a million iterations
#   make check-deep   valgrind, MSan, coverage, large Spin models
#   make check-vm     stages between virtual machines: RDMA, power failures, lossy networks; check-vm-STAGE: one
#   make campaign-vm  [EVENTS=200] [SEED=1] [FIRST=1] [RESULT=docs/campaign.json]: faults between guests
#   make ratios-vm    [ROUNDS=7] [RESULT=FILE]: what our side of an RDMA wire costs, beside perftest
#   make check-gpu    on a machine with a GPU: the cuda backend on its driver, and what the GPU can do
#   make check-gpudirect  on a machine with a GPU and an RDMA card, as root: batches over RDMA into the GPU; a report to send
#   make bench        every bench with its defaults
#   make wheel        the Python package, into build/wheel, and tries it in a clean environment
#   make check-adaptors  the Python adaptors beside their libraries, from PyPI (15 GB)
#   make learn-curves  learning with Relive, cpprb and without priorities: bench/learning (half an hour)
#   make bench-peers  other replay buffers and stores from PyPI, side by side: bench/peers (half an hour)
#   make docs         the guide and both references as a site, into build/docs
#   make format       clang-format over our sources
#   make install      PREFIX=/usr/local [DESTDIR=]
#
# SETUP=no leaves the installing of packages (tools/setup) out.

PREFIX ?= /usr/local
SETUP ?= yes
BUILD := build
JOBS := $(shell nproc)

ifneq ($(shell command -v ninja 2>/dev/null),)
export CMAKE_GENERATOR ?= Ninja
endif

# Configured anew each time: packages may have come since.
all:
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

setup-build setup-test setup-learn setup-vm:
ifneq ($(SETUP),no)
	@tools/setup $(@:setup-%=%)
endif

# Only what the demo runs is built, and after tools/setup, so that it sees what that has just installed.
demo: setup-build
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target relive_command relive-metad relive-memnode relive-poold
	@$(BUILD)/bin/relive demo --picture $(BUILD)/relive-demo.png

check: setup-test
	@tools/run-check quick

check-learn: setup-learn
	@$(MAKE) --no-print-directory all
	@tests/learn/check

check-wheel: setup-test
	@$(MAKE) --no-print-directory all
	@tools/run-tests $(if $(RLV_COUNTS),--log "$(RLV_COUNTS)") $(BUILD):wheel

check-long: setup-test
	@tools/run-check long

check-deep: setup-test
	@tools/run-check deep

check-vm: setup-vm
	@$(MAKE) --no-print-directory all
	@tests/vm/check

# One stage of tests/vm/stages.
check-vm-%: setup-vm
	@$(MAKE) --no-print-directory all
	@tests/vm/check $*

campaign-vm: setup-vm
	@$(MAKE) --no-print-directory all
	@RLV_VM_EVENTS=$(or $(EVENTS),200) RLV_VM_SEED=$(or $(SEED),1) RLV_VM_FIRST=$(or $(FIRST),1) \
		RLV_VM_RESULT=$(or $(RESULT),docs/campaign.json) tests/vm/stages/campaign.sh

ratios-vm: setup-vm
	@$(MAKE) --no-print-directory all
	@RLV_VM_ROUNDS=$(or $(ROUNDS),7) RLV_VM_RESULT=$(RESULT) tests/vm/stages/ratios.sh

bench: all
	@tools/run-bench $(BUILD)/bin

wheel: setup-test
	@tools/wheel

check-adaptors: all
	@tools/check-adaptors

check-gpu: setup-test
	@$(MAKE) --no-print-directory all
	@tools/check-gpu $(BUILD)/bin $(BUILD)/gpu-report.txt

check-gpudirect: setup-test
	@$(MAKE) --no-print-directory all
	@tools/check-gpudirect $(BUILD)/bin $(BUILD)/gpudirect-report.txt

learn-curves: setup-learn
	@$(MAKE) --no-print-directory all
	@python=$$(tools/learn-env) && PYTHONPATH=$(BUILD)/python "$$python" bench/learning/run.py

bench-peers: all
	@bench/peers/run.py
	@bench/peers/kv.py

docs: setup-test
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target relive_python
	@PYTHONPATH=$(BUILD)/python sphinx-build -W --keep-going -q -b html -d $(BUILD)/docs/.doctrees docs $(BUILD)/docs
	@echo $(BUILD)/docs/index.html

format:
	@git ls-files --cached --others --exclude-standard '*.c' '*.h' | xargs clang-format -i

install: all
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@cmake --install $(BUILD)

clean:
	@rm -rf $(BUILD)

.PHONY: all setup-build setup-test setup-learn setup-vm demo check check-learn check-wheel check-long check-deep check-vm campaign-vm ratios-vm bench check-gpu check-gpudirect check-adaptors learn-curves bench-peers wheel docs format install clean
