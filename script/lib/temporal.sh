# Temporal's development server for script/bootstrap, and its tests. Expects tools.sh and `docker_answers`.

temporal_version=1.5.1
# KEELSON_TEMPORAL_IMAGE: another one, or your own registry.
temporal_image=${KEELSON_TEMPORAL_IMAGE:-temporalio/temporal:$temporal_version}
# For the next clone of this user.
temporal_kept=${XDG_CACHE_HOME:-$HOME/.cache}/keelson/temporal-$temporal_version

temporal_is_there() { [[ -n ${KEELSON_TEMPORAL_ADDRESS:-} ]] || have temporal || pinned temporal "$temporal_version"; }

# In this order: the setting, a `temporal` on the PATH, what another clone has kept, an image where a registry answers, and only
# then a build, which takes minutes.
use_temporal() {
  temporal_is_there && return
  if temporal_from_clone; then return; fi
  if ! from_image Temporal temporal "$temporal_image" copy_temporal; then
    find_go
    [[ -n $go ]] || die 'Temporal is missing: put `temporal` or Go on the PATH, or set KEELSON_TEMPORAL_ADDRESS to a server; then run script/bootstrap again.'
    step "Temporal $temporal_version, built with Go (minutes)" 'Check that the Go module proxy can be reached (go env GOPROXY), or set KEELSON_TEMPORAL_ADDRESS; then run script/bootstrap again.' build_temporal "$go"
  fi
  keep_temporal || say "Temporal is not kept for other clones: $temporal_kept cannot be written"
}
build_temporal() {
  local new=$tools/.new-temporal
  rm -rf "$new"
  mkdir -p "$new/bin"
  # Go checks every module against its public checksum database. The tag is that of Temporal's own builds.
  GOBIN=$new/bin build_with_go "$1" install -tags disable_grpc_modules "github.com/temporalio/cli/cmd/temporal@v$temporal_version"
  keep "$new" temporal "$temporal_version"
}

keep_temporal() {
  local new
  # Beside its place, so that a move of one step completes it and no clone finds half a program.
  mkdir -p "${temporal_kept%/*}" && new=$(mktemp -d "$temporal_kept.XXXXXX") || return
  # Another clone may keep it at the same time: the first one does.
  cp "$tools/temporal/bin/temporal" "$new/" && mv -T "$new" "$temporal_kept" 2>/dev/null || rm -rf "$new"
  [[ -x $temporal_kept/temporal ]]
}
temporal_from_clone() {
  local new=$tools/.new-temporal
  "$temporal_kept/temporal" --version >/dev/null 2>&1 || return 1
  rm -rf "$new"
  mkdir -p "$new/bin" && cp "$temporal_kept/temporal" "$new/bin/" && keep "$new" temporal "$temporal_version" &&
    say "Temporal $temporal_version, as another clone has kept it"
}

copy_temporal() {
  local new=$tools/.new-temporal container program
  rm -rf "$new"
  mkdir -p "$new/bin" || return
  docker image inspect "$temporal_image" >/dev/null 2>&1 || docker pull "$temporal_image" || return
  program=$(docker inspect -f '{{index .Config.Entrypoint 0}}' "$temporal_image") || return
  [[ $program == /* ]] || program=/usr/local/bin/$program
  container=$(docker create "$temporal_image") || return
  docker cp -L "$container:$program" "$new/bin/temporal" || { docker rm "$container"; return 1; }
  docker rm "$container" || return
  "$new/bin/temporal" --version && keep "$new" temporal "$temporal_version"
}

# Beside the rest of bootstrap, which takes as long.
begin_temporal() {
  temporal_is_there && return
  find_go # before others need it, too
  begin temporal use_temporal
}
