# Sets `state` and `tools`, the state folder of the clone at `root` and where its tools are: by the settings, else as
# bootstrap has remembered it (script/lib/settings.ts does the same).
state=$(realpath -m "${KEELSON_STATE:-$root/.state}")
tools=${KEELSON_TOOLS:-}
[[ -n $tools || ! -f $state/tools-folder ]] || tools=$(<"$state/tools-folder")
tools=$(realpath -m "${tools:-$state/tools}")

# For the next start without the setting.
remember_tools() {
  mkdir -p "$state"
  if [[ $tools == "$state/tools" ]]; then rm -f "$state/tools-folder"; else printf '%s\n' "$tools" >"$state/tools-folder"; fi
}
