# Each word sets up what it needs, and nothing that is there already.
.PHONY: help demo demo-dht test prove bench lint types docs setup compiled interpreted
.DEFAULT_GOAL := help
bin := .venv/bin

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: export URL := $(URL)
demo: ## crawl a site (URL=https://... or the Python documentation) and search it in the browser
	@scripts/venv
	@$(bin)/python scripts/compile --check >/dev/null 2>&1 || $(bin)/python scripts/compile --clean
	@$(bin)/python scripts/demo $${URL:+"$$URL"} || test $$? = 130

demo-dht: ## crawl a private DHT on this machine, and search its torrents in the browser
	@scripts/venv dev
	@$(bin)/python scripts/compile --check >/dev/null 2>&1 || $(bin)/python scripts/compile --clean
	@$(bin)/python scripts/demo-dht || test $$? = 130

test: lint types setup compiled ## lint, types and all tests, as in CI
	scripts/test-interpreted
	scripts/test

prove: setup compiled ## the tests, with the full counts, sizes and soaks
	LYCOSA_PROVE=1 scripts/test -m "prove or not prove"
	$(bin)/python bench/frontier.py --only lycosa --phase cycle --urls 100000000

bench: ## compare with other crawlers; writes docs/benchmarks.md
	@scripts/venv dev bench
	@$(bin)/python scripts/compile
	@scripts/packages nginx:nginx-light redis-server:redis-server microsocks:microsocks
	@$(bin)/python scripts/docs-site >/dev/null
	@failed=0; $(bin)/python bench/run.py --write || failed=$$?; \
	$(bin)/python bench/books.py --write || failed=$$?; \
	$(bin)/python bench/frontier.py --urls 1000000 --urls 10000000 --write || failed=$$?; \
	$(bin)/python bench/shared.py --write || failed=$$?; \
	$(bin)/python bench/proxies.py --write || failed=$$?; \
	$(bin)/python bench/gateway.py --write || failed=$$?; \
	$(bin)/python bench/goodput.py --write || failed=$$?; \
	$(bin)/python bench/dht.py --write || failed=$$?; \
	$(bin)/python bench/dht_crawl.py --write || failed=$$?; \
	$(bin)/python bench/dht_crawlers.py --write || failed=$$?; \
	$(bin)/python bench/records.py --write || failed=$$?; \
	$(bin)/python bench/search_load.py --write || failed=$$?; exit $$failed

lint: ## ruff, import contracts, shellcheck where it is installed
	@scripts/venv dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/lint-imports --no-logo 2>&1 || { $(bin)/lint-imports; exit 1; }
	@if command -v shellcheck >/dev/null; then shellcheck scripts/axe scripts/venv scripts/packages scripts/test scripts/test-interpreted .ci/run; fi

types: ## mypy, strict
	@scripts/venv dev
	$(bin)/mypy

docs: ## write what the documents take from the code: commands, the life of a URL, limits, pictures
	@scripts/venv
	$(bin)/python scripts/docs-commands
	$(bin)/python scripts/docs-frontier
	$(bin)/python scripts/docs-pictures

compiled: ## compile the hot modules with mypyc: the frontier becomes a third faster
	@scripts/venv dev
	@$(bin)/python scripts/compile

interpreted: ## remove the compiled modules
	@scripts/venv
	@$(bin)/python scripts/compile --clean

setup:
	@scripts/venv dev
	@scripts/packages nginx:nginx-light wget:wget chromium:chromium chromedriver:chromium-driver strace:strace \
		redis-server:redis-server spin:spin gcc:gcc \
		psql:postgresql mariadbd:mariadb-server searchd:sphinxsearch tinyproxy:tinyproxy-bin squid:squid microsocks:microsocks danted:dante-server \
		curl:curl zstdcat:zstd aria2c:aria2 rtorrent:rtorrent script:bsdutils transmission-daemon:transmission-daemon ip:iproute2
	@scripts/packages --backports valkey-server:valkey-server || echo "The tests on Valkey are skipped; in CI they fail."
	@scripts/axe || echo "The tests with axe-core are skipped; in CI they fail."
	@$(bin)/python scripts/docs-site >/dev/null
