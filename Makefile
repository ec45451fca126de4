# SPDX-License-Identifier: MIT
#
# A thin front of CMake: every target is one or two commands that can be typed by hand. `make help` lists them.

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
# DEPS=: keeps make from installing what is missing.
DEPS ?= tools/install-deps

export JOBS DEPS DESTDIR FUZZ_SECONDS

.PHONY: all demo check check-tsan check-oracle fuzz bench-kernels install clean help
.NOTPARALLEL:

# The program and the libraries; the tests are built by `make check`.
all:
	@$(DEPS) build
	@cmake --preset release >/dev/null
	@cmake --build --preset release --parallel $(JOBS) --target skipdecode skipdecode_static skipdecode_shared

demo: all
	@tools/demo build/skipdecode models/e2e-24l

check:
	@tools/check

check-tsan:
	@tools/check tsan

check-oracle: all .venv-oracle/ready
	.venv-oracle/bin/python tests/parity/oracle.py --program build/skipdecode
	.venv-oracle/bin/python tests/parity/tokenizer_oracle.py --program build/skipdecode
	.venv-oracle/bin/python tests/parity/metrics_oracle.py --program build/skipdecode
	.venv-oracle/bin/python tests/parity/training_oracle.py --program build/skipdecode

.venv-oracle/ready: reference/requirements.txt
	@$(DEPS) oracle
	python3 -m venv .venv-oracle
	.venv-oracle/bin/pip install --quiet --requirement reference/requirements.txt
	touch $@

fuzz:
	@tools/fuzz

bench-kernels:
	@$(DEPS) build
	@cmake --preset release >/dev/null
	@cmake --build --preset release --parallel $(JOBS) --target checkkernels
	build/tests/checkkernels --bench

install: all
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-asan build-tsan build-fuzz build-clang

help:
	@echo 'make                 build the program and the library: build/skipdecode'
	@echo 'make demo            generate with the embedded model, at full depth and with fewer layers'
	@echo 'make check           everything a change has to pass: gcc and clang without warnings, the suite at every CPU'
	@echo '                     level, again under ASan and UBSan, static checks, broken kernels that must be noticed'
	@echo 'make check-tsan      the threaded tests under ThreadSanitizer'
	@echo 'make check-oracle    compare with PyTorch, transformers, sacrebleu, rouge-score, NLTK and pycocoevalcap (a'
	@echo '                     virtual environment in .venv-oracle)'
	@echo 'make fuzz            every fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds'
	@echo 'make bench-kernels   speed of each kernel at each CPU level'
	@echo 'make install         into DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)'
	@echo 'make clean           remove the build folders'
	@echo 'JOBS=$(JOBS) sets the parallelism; DEPS=: keeps make from installing missing packages.'
