# The programs of service templates, for the tests that run these templates (test/support/template-images/): the programs
# themselves, built from Go modules or taken from Debian's packages, npm, PyPI and Maven, so that no image registry is needed.
# Gitea and the S3 gateway are in bootstrap. Expects tools.sh.

nats_version=2.10.16
# For the long form:
miniflux_version=2.3.5
pocketbase_version=0.22.21
memos_version=0.22.1
weaviate_version=1.29.0
node_red_version=4.1.15
actual_version=26.9.0
marimo_version=0.25.2
keycloak_version=26.5.6

use_template_programs() {
  [[ ${1:-} == --tests ]] || return 0
  use_template_packages
  use_go_program nats "$nats_version" "github.com/nats-io/nats-server/v2@v$nats_version"
  [[ -n ${KEELSON_TEST_LONG:-} ]] || return 0
  use_go_program miniflux "$miniflux_version" "miniflux.app/v2@v$miniflux_version"
  use_go_program pocketbase "$pocketbase_version" "github.com/pocketbase/pocketbase/examples/base@v$pocketbase_version"
  use_go_program memos "$memos_version" github.com/usememos/memos ./bin/memos
  use_go_program weaviate "$weaviate_version" "github.com/weaviate/weaviate/cmd/weaviate-server@v$weaviate_version"
  use_npm_program node-red "$node_red_version" node-red
  use_npm_program actual "$actual_version" @actual-app/sync-server better-sqlite3
  use_pip_program marimo "$marimo_version"
  use_keycloak
}

# Prometheus, Adminer with PHP, and what the image of Gitea has beside Gitea. In the long form also Java.
use_template_packages() {
  local php version
  if ! have apt-get || ((EUID != 0)); then say 'the tests of some service templates are skipped on this machine: they need root on Debian.'; return; fi
  need_lists
  php=$(apt-cache depends php-cli | sed -n 's/^ *Depends: \(php[0-9.]*\)-cli$/\1/p')
  version=2-$php
  pinned template-packages "$version" || step 'Tests: programs of service templates, unpacked' "$apt_remedy" \
    unpack_packages template-packages "$version" prometheus adminer "$php-cli" "$php-common" "$php-mysql" "$php-pgsql" \
    "$php-sqlite3" bash curl gettext-base git gosu s6
  [[ -n ${KEELSON_TEST_LONG:-} ]] || return 0
  pinned template-java 1 || step 'Tests: Java for a service template, unpacked' "$apt_remedy" \
    unpack_packages template-java 1 openjdk-17-jre-headless
}

# use_go_program TOOL VERSION PACKAGE@VERSION, or MODULE FOLDER where Go does not install by the name of the package.
use_go_program() {
  local go
  pinned "$1" "$2" && return
  find_go
  if [[ -z $go ]]; then say "the tests with $1 are skipped on this machine: put Go on the PATH, then run script/bootstrap again."; return; fi
  step "Tests: $1 $2, built with Go (minutes)" 'Check that the Go module proxy can be reached (go env GOPROXY), then run script/bootstrap again.' build_go_program "$go" "$@"
}
build_go_program() {
  local new=$tools/.new-$2
  rm -rf "$new"
  mkdir -p "$new/bin"
  if [[ -z ${5:-} ]]; then
    GOBIN=$new/bin build_with_go "$1" install "$4"
  else
    cp -r "$(GOTOOLCHAIN=local "$1" mod download -json "$4@v$3" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" "$new/source"
    chmod -R u+w "$new/source"
    build_with_go "$1" -C "$new/source" build -o "$new/bin/" "$5"
    rm -r "$new/source"
  fi
  keep "$new" "$2" "$3"
}

# use_npm_program TOOL VERSION PACKAGE [DEPENDENCY that is compiled]
use_npm_program() {
  pinned "$1" "$2" && return
  if [[ -n ${4:-} ]] && ! have g++; then say "the tests with $1 are skipped on this machine: install g++ and make, then run script/bootstrap again."; return; fi
  step "Tests: $1 $2 from npm" "$npm_remedy" install_npm_program "$@"
}
install_npm_program() {
  local new=$tools/.new-$1 node=$tools/node
  rm -rf "$new"
  mkdir -p "$new"
  # No scripts: they would look for compiled parts at hosts that are no npm registry.
  npm install --prefix "$new" --omit=dev --ignore-scripts --no-audit --no-fund "$3@$2"
  [[ -z ${4:-} ]] || (cd "$new/node_modules/$4" && node "$node/lib/node_modules/npm/node_modules/node-gyp/bin/node-gyp.js" rebuild --release --nodedir="$(realpath "$node")")
  keep "$new" "$1" "$2"
}

# use_pip_program TOOL VERSION
use_pip_program() {
  pinned "$1" "$2" && return
  need_pip
  step "Tests: $1 $2 and what it needs, from wheels" "$wheel_remedy" install_pip_program "$@"
}
install_pip_program() {
  local new=$tools/.new-$1
  rm -rf "$new"
  python3 -m pip install --quiet --root-user-action ignore --no-warn-conflicts --only-binary :all: --target "$new" "$1==$2"
  keep "$new" "$1" "$2"
}

use_keycloak() {
  pinned keycloak "$keycloak_version" && return
  if ! have mvn; then say 'the tests with Keycloak are skipped on this machine: put Maven on the PATH, then run script/bootstrap again.'; return; fi
  step "Tests: Keycloak $keycloak_version from Maven" 'Check that the Maven repository can be reached, then run script/bootstrap again.' unpack_keycloak
}
unpack_keycloak() {
  local new=$tools/.new-keycloak
  rm -rf "$new"
  mkdir -p "$new"
  (cd "$new" && mvn -q -B dependency:copy -Dartifact="org.keycloak:keycloak-quarkus-dist:$keycloak_version:tar.gz" -DoutputDirectory=.)
  tar -xzf "$new"/*.tar.gz -C "$new" --strip-components=1
  rm "$new"/*.tar.gz
  keep "$new" keycloak "$keycloak_version"
}
