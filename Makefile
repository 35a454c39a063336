# Everything that this repository builds, runs and checks. `make help` lists the targets. Whatever is installed goes
# into the checkout (.engines, .clients, bin), is said, and is kept for the next time.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:

# The program's version, from the checkout where it is one.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  make up ARGS='--emulated 3'      arguments for shoal up; the same for demo"
	@echo "  make test ARGS='-run TestName'   arguments for go test"
	@echo "  make fuzz FUZZTIME=10s           time of each fuzz target (60s)"

.PHONY: build
build: ## build bin/shoal
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer (https://go.dev/dl), and put it into PATH" >&2; exit 1; }
	go build -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/shoal ./cmd/shoal

.PHONY: up
up: build ## start 3 real engines and 3 agents on this machine, until Ctrl-C
	@exec bin/shoal up $(ARGS)

.PHONY: demo
demo: build ## compare routing policies on the real engines
	@exec bin/shoal demo $(ARGS)

.PHONY: test
test: ## vet, staticcheck and all tests, with the race detector and real engines where they can be had
	@scripts/test.sh $(ARGS)

.PHONY: test-clients
test-clients: ## the official openai clients (Python and npm) against a shoal
	@scripts/clients.sh

.PHONY: figures
figures: ## measure all figures; one line each: figure NAME VALUE UNIT
	@go run ./bench/figures

.PHONY: figure-%
figure-%: ## measure one figure
	@go run ./bench/figures $*

.PHONY: bench-overhead
bench-overhead: build ## what the gateway and a hop add, against the engine asked directly
	@go run ./bench/overhead $(ARGS)

.PHONY: lab
lab: build ## path policies on a real fabric of network namespaces; needs root. LAB='...' for shoal lab run
	@exec bin/shoal lab run $(LAB)

.PHONY: sim-paper
sim-paper: build ## the ARK paper's table and figures on the simulated fabric, its own beside ours (some minutes)
	@exec bin/shoal sim fabric paper --plots docs/sim $(ARGS)

.PHONY: sim-packets
sim-packets: build ## the same packet by packet, a tenth of the bytes, 3 seeds (half an hour)
	@exec bin/shoal sim fabric paper --model packets --scale 10 --qps 1,25,30 --seeds 3 --policy ecmp,ark,least,shoal $(ARGS)

.PHONY: sim-break
sim-break: build ## what makes the gains of path policies go away (a quarter of an hour)
	@exec bin/shoal sim fabric break --plots docs/sim $(ARGS)

.PHONY: bench-transfer
bench-transfer: ## the mover beside iperf3 and mooncake-transfer-engine, where they are installed
	@go run ./bench/transfer $(ARGS)

.PHONY: transfer-10g
transfer-10g: ## 10 GiB whose sender is killed in the middle arrive with the right checksum; needs 20 GiB of disk
	@SHOAL_TRANSFER_BYTES=10737418240 go test -v -count 1 -timeout 10m -run TestAKilledSender ./internal/transfer

.PHONY: fuzz
fuzz: ## every fuzz target, FUZZTIME each
	@scripts/fuzz.sh $(or $(FUZZTIME),60s)

.PHONY: clean
clean: ## remove what was built and installed here
	rm -rf bin .engines .clients .cache .shoal
