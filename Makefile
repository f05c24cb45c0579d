# run     build, and start a queue manager to try
# islands two queue managers and a message each way, protected in four ways: what lies where
# shared  three queue managers and a group of shared queues in three servers of NATS: its owner is killed, twice
# group-faults clients of shared queues while members and servers fail, GROUP_FAULTS times
# shared-rates puts and gets of a shared queue beside the bare log, and of a local queue beside a group that is slow
# group-claims two members claim a group of shared queues at once, 100 times
# forwarding-cost what it costs to reach a shared queue by way of a member that does not own it
# group-machines a group on three machines, which are network namespaces: one is cut off, or gone at once; as root
# takeover how long a group of shared queues has no owner, after kill -9 and after TERM
# test    everything: unit and integration tests, then the four unmodified clients and a suite of others against the program
# simulate queue managers on a simulated clock, network and disk, for SECONDS; BULLA_SEED for one seed: tests/README.md
# past-defects puts past defects back, one at a time: the simulation has to find each within 60 s
# interop suites that others wrote for AMQP brokers, fetched and run against the program; docs/interoperability.md
# check   what to run before a commit: format, lints, unit tests, licences and sources of what is built in
# sbom    the list of what the program is made of, as CycloneDX, beside the program
# bench   the benchmarks of the crates
# measure what protection costs, by `bulla perf`, into docs/measurements; FULL=1 for every combination
# shared-faults a store in a shared log while owners, servers and their network fail, SHARED_FAULTS times
# key-rates what messages lose while their users change keys, and how fast messages are sealed anew
# timing  whether the time of a failure tells what failed: unwraps, messages, messages through the socket
# hostile ten minutes of clients that mean it no good; HOSTILE_SECONDS for another time; then hostile-rights
# hostile-rights five minutes of users with one right each, who do with it what costs others most
# rotation-kills ends changes of keys at each of their steps, ROTATION_KILLS times, under traffic
# packages what is installed elsewhere: a tarball and a Debian package, under target/packages; docs/operating/install.md
# test-packages installs, starts, upgrades and removes them in fresh Debian systems; as root, with debootstrap
# lanes   the library that accelerators open; part of build, and skipped where it can't be had
# spire   the server and the agent of SPIFFE that tests ask, which are skipped without; step-ca: the same for ACME
# fuzz    each fuzz target for FUZZ_SECONDS
#
# All of it builds in release, so that OpenSSL is compiled once. CARGO_TARGET_DIR is respected;
# whatever else is downloaded or built lands under .cache/ and in the clients' own folders.

FUZZ_SECONDS ?= 600
HOSTILE_SECONDS ?= 600
ROTATION_KILLS ?= 200
SHARED_FAULTS ?= 500
GROUP_FAULTS ?= 100
SECONDS ?= 60
# Files of tests end to end that run at once. They wait more than they compute.
E2E_AT_ONCE ?= 3
PYTEST_ARGS ?=
SUITES ?=
TARGET = $(or $(CARGO_TARGET_DIR),target)
export BULLA = $(abspath $(TARGET))/release/bulla

PYTHON = .cache/venv/bin/python
VENV = .cache/venv/ready
CLIENTS = tests/clients
RETRY = $(abspath tests/retry.sh)
RHEA = $(CLIENTS)/rhea/node_modules/.package-lock.json
GO_AMQP = .cache/go-amqp-driver
PEBBLE = .cache/pebble
SPIRE = .cache/spire/spire-server
NATS_CLI = .cache/nats/nats
NATS_CLI_VERSION = 0.5.1
STEP_CA = .cache/step-ca/step-ca
STEP_CA_VERSION = 0.30.2
NATS = .cache/nats/nats-server
NATS_VERSION = 2.15.3
JMS = $(CLIENTS)/jms/target/jms-driver-0.jar
BOUNCYCASTLE = $(CLIENTS)/bouncycastle/target/ready
OPENSSL_4 = .cache/openssl-4/openssl
KRYOPTIC = .cache/kryoptic/libkryoptic.so
# `make check test` runs unit tests once.
NOT_CHECKED = $(if $(filter check,$(MAKECMDGOALS)),--test '*')

.PHONY: run islands shared shared-rates forwarding-cost takeover group-faults group-claims group-machines build \
    test simulate past-defects interop check sbom bench timing measure hostile hostile-rights rotation-kills \
    shared-faults key-rates lanes fuzz clients nats-server spire step-ca packages test-packages \
    prerequisites test-prerequisites
.DELETE_ON_ERROR:

run: build
	$(BULLA) demo

islands: build
	for island in unprotected end-to-end one-side two-authorities; do \
	    echo "== $$island"; samples/islands/run $$island || exit 1; \
	done

shared: build $(NATS)
	samples/shared/run

shared-rates: build $(NATS)
	cargo bench --package bulla-shared --bench rates

forwarding-cost: build $(NATS) $(VENV)
	$(PYTHON) tests/shared/forwarding.py

takeover: build $(NATS) $(VENV)
	$(PYTHON) tests/shared/takeover.py

group-claims: build $(NATS) $(VENV)
	$(PYTHON) tests/shared/claims.py

group-machines: build $(NATS) $(VENV)
	$(PYTHON) tests/shared/machines.py

group-faults: build $(NATS) $(VENV)
	$(PYTHON) tests/shared/faults.py --faults $(GROUP_FAULTS)

build: prerequisites lanes
	cargo build --release -p bulla
	@tools/symbols.sh $(BULLA)

check: test-prerequisites
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo test --release --workspace --lib --bins
	tools/components.py check

# The tests of crates leave a program with the parts of a simulation: it is built once more as it is shipped. The
# example opens what the machine's own openssl is too old for.
test: test-prerequisites lanes clients
	cargo test --release --workspace $(NOT_CHECKED)
	$(if $(NOT_CHECKED),cargo test --release --workspace --doc)
	cargo build --release -p bulla -p bulla-seal --bins --example cms-decrypt
	@tools/symbols.sh $(BULLA)
	$(PYTHON) -m pytest -n $(E2E_AT_ONCE) --dist loadfile $(PYTEST_ARGS) tests/e2e

simulate: test-prerequisites
	$(if $(BULLA_SEED),,BULLA_SECONDS=$(SECONDS)) cargo test --release -p bulla --lib -- --nocapture \
	    simulation::whatever_happens

past-defects: test-prerequisites
	tests/past-defects/find.py

sbom: prerequisites
	tools/components.py sbom $(TARGET)/release/bulla.cdx.json

interop: build $(VENV)
	python3 tests/interop/run.py $(SUITES)

bench: prerequisites lanes $(NATS)
	cargo bench --workspace --bench '*'

timing: prerequisites lanes
	cargo bench -p bulla-device --bench timing
	cargo bench -p bulla-seal --bench timing
	cargo bench -p bulla --bench clock

measure: build
	tools/measure.sh $(BULLA)

shared-faults: test-prerequisites $(NATS)
	BULLA_FAULTS=$(SHARED_FAULTS) cargo test --release --package bulla-shared --test faults -- --nocapture

key-rates: build
	tools/key_rates.py rotation $(BULLA) || test $$? -eq 8
	tools/key_rates.py reseal $(BULLA) || test $$? -eq 8

hostile: build clients
	$(PYTHON) tests/hostile/hostile.py --seconds $(HOSTILE_SECONDS)
	$(PYTHON) tests/hostile/hostile.py --rights

hostile-rights: build clients
	$(PYTHON) tests/hostile/hostile.py --rights

rotation-kills: build clients
	BULLA_ROTATION_KILLS=$(ROTATION_KILLS) $(PYTHON) -m pytest -s $(PYTEST_ARGS) tests/e2e/test_rotation_kills.py

packages: build
	tools/packages.sh $(BULLA) $(TARGET)/packages

test-packages: packages
	tests/install/run.sh $(TARGET)/packages

lanes: prerequisites
	@tools/lanes.sh $(TARGET)/release/libbulla_lanes.so

fuzz: prerequisites
	cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	for target in $$(cargo +nightly fuzz list); do \
	    cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 || exit 1; \
	done

# What a fresh machine may lack for the program and, besides, for the tests; says what where it can't be installed.
prerequisites:
	@tests/prerequisites.sh build

test-prerequisites: prerequisites
	@tests/prerequisites.sh test

clients: $(VENV) $(RHEA) $(GO_AMQP) $(PEBBLE) $(JMS) $(BOUNCYCASTLE) $(OPENSSL_4) $(KRYOPTIC) $(NATS) \
    $(NATS_CLI)

nats-server: $(NATS)

# The engine of shared logs, for the tests of crates/bulla-shared.
$(NATS): | test-prerequisites
	GOBIN=$(abspath .cache/nats) $(RETRY) go install github.com/nats-io/nats-server/v2@v$(NATS_VERSION)

# The client library is built from source once and kept as a wheel by pip.
$(VENV): tests/requirements.txt | test-prerequisites
	python3 -m venv --clear .cache/venv
	$(RETRY) $(PYTHON) -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	touch $@

$(RHEA): $(CLIENTS)/rhea/package-lock.json | test-prerequisites
	cd $(CLIENTS)/rhea && $(RETRY) npm ci --no-audit --no-fund --loglevel=error
	touch $@

$(GO_AMQP): $(CLIENTS)/go-amqp/main.go $(CLIENTS)/go-amqp/go.mod $(CLIENTS)/go-amqp/go.sum | test-prerequisites
	cd $(CLIENTS)/go-amqp && $(RETRY) go build -o $(abspath $@) .

# The ACME server that tests ask: what uses it is skipped where it can't be built.
$(PEBBLE): $(CLIENTS)/pebble/go.mod $(CLIENTS)/pebble/go.sum | test-prerequisites
	-cd $(CLIENTS)/pebble && $(RETRY) go build -o $(abspath $@) github.com/letsencrypt/pebble/v2/cmd/pebble

# The agent of SPIFFE that tests ask, and its server: too much to build for each run.
spire: $(SPIRE)

$(SPIRE): $(CLIENTS)/spire/go.mod $(CLIENTS)/spire/go.sum | test-prerequisites
	cd $(CLIENTS)/spire && $(RETRY) go build -o $(dir $(abspath $@)) github.com/spiffe/spire/cmd/spire-agent \
	    github.com/spiffe/spire/cmd/spire-server

# The command line of the engine, for the test that saves and restores a log: skipped where it can't be built.
$(NATS_CLI): | test-prerequisites
	-GOBIN=$(abspath .cache/nats) $(RETRY) go install github.com/nats-io/natscli/nats@v$(NATS_CLI_VERSION)

# A second ACME server, an authority that companies run: much to build, too.
step-ca: $(STEP_CA)

$(STEP_CA): | test-prerequisites
	CGO_ENABLED=0 GOBIN=$(abspath .cache/step-ca) $(RETRY) go install \
	    github.com/smallstep/certificates/cmd/step-ca@v$(STEP_CA_VERSION)

$(JMS): $(CLIENTS)/jms/pom.xml $(wildcard $(CLIENTS)/jms/src/main/java/*.java) | test-prerequisites
	cd $(CLIENTS)/jms && $(RETRY) mvn --quiet --batch-mode package
	touch $@

$(BOUNCYCASTLE): $(CLIENTS)/bouncycastle/pom.xml | prerequisites
	cd $(CLIENTS)/bouncycastle && mvn --quiet --batch-mode package
	touch $@

# The program of the OpenSSL that Bulla is linked with, which distributions don't have yet: two minutes on two cores.
$(OPENSSL_4): Cargo.lock tests/openssl-4.sh | test-prerequisites
	tests/openssl-4.sh $@

# A software token that has ML-DSA and ML-KEM: what uses it is skipped where it can't be built, as without libclang.
$(KRYOPTIC): $(wildcard tests/kryoptic/Cargo.* tests/kryoptic/src/*.rs) $(OPENSSL_4) | test-prerequisites
	-KRYOPTIC_OPENSSL_SOURCES=$(abspath $(dir $(OPENSSL_4))) CARGO_TARGET_DIR=$(abspath $(TARGET))/kryoptic \
	    cargo build --release --locked --manifest-path tests/kryoptic/Cargo.toml && \
	    mkdir -p $(dir $@) && cp $(TARGET)/kryoptic/release/$(notdir $@) $@
