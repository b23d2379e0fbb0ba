# SPDX-License-Identifier: Apache-2.0
.DEFAULT_GOAL := help

# Every module of the workspace. A target runs in each of them.
MODULES := . store/pgxv5 torture bench examples cmd/reprise
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 5s

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: servers
servers: ## Install the database servers that the tests start, if one is missing
	@go run ./internal/dbserver/install

.PHONY: test
test: servers ## Run all tests; they start by themselves whatever they need
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test -timeout 20m ./...); done

.PHONY: race
race: servers ## Run all tests under the race detector
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test -race -timeout 20m ./...); done

.PHONY: failover
failover: servers ## Promote standbys of synchronous PostgreSQL pairs under load, with both drivers
	go test -count=1 -tags failover -run '^TestFailover$$' -v ./store/postgres
	cd store/pgxv5 && go test -count=1 -tags failover -run '^TestFailover$$' -v .

.PHONY: galera
galera: servers ## Run the whole conformance suite on a Galera cluster of three nodes
	go test -count=1 -tags galera -run '^TestGalera' -v ./store/mysql

.PHONY: vet
vet: ## Check formatting and run go vet
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	@set -e; for m in $(MODULES); do (cd $$m && go vet ./...); done

.PHONY: lint
lint: ## Run the linters of .golangci.yml
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 5s)
	@set -e; for m in $(MODULES); do (cd $$m && \
	  for p in $$(go list ./...); do \
	    for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	      echo "== $$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; \
	    done; \
	  done); done

.PHONY: crash
crash: ## Fail at every boundary of every database, in every way and in pairs
	cd torture && go test -count=1 -v -timeout 3h ./crash -full

.PHONY: demo
demo: ## Run the main job: real orders through the seven worst breakpoints
	go run ./cmd/reprise demo

.PHONY: bench
bench: ## Print the numbers of docs/design.md, as ratios within one run
	go run ./bench all

.PHONY: peers
peers: ## Build what bench compares with, a module apart from the workspace
	cd bench/peers && GOWORK=off go vet ./...

.PHONY: surface
surface: ## Rewrite api/*.txt after a meant change of the exported surface
	go test -run ExportedSurface . -update

.PHONY: tidy
tidy: ## Tidy every module and the workspace
	@set -e; for m in $(MODULES); do (cd $$m && go mod tidy); done; go work sync
	cd bench/peers && GOWORK=off go mod tidy
