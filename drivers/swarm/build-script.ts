import { hasDisk } from './app-folders.ts'

// What runs in a machine to build an image. Its input ends when its host wants no more of it or was killed; the build
// then ends too. One build at a time has the lock, until the host has pushed its image.

const folder = '/run/keelson-builds'
/** The folder of a build's own files while it runs. */
export const scratch = (id: string): string => `${folder}/${id}`
export const says = {
  waits: 'keelson: waits',
  turn: 'keelson: turn',
  ended: 'keelson: ended ',
  missing: 'keelson: no folder',
} as const

const takeTurn = `
exec 2>&1
mkdir -p ${folder}
exec 9>${folder}/lock
flock -n 9 || { echo "${says.waits}"; flock 9; }
echo "${says.turn}"
`

/** Holds the lock until its input ends. */
export const holdTurn = `${takeTurn}
exec cat >/dev/null
`

/**
 * Arguments: the build's id, its folder of files, its time limit in seconds, and those of `docker build`. The input begins
 * with the files and secrets of the build, and a line `go`. Secrets are in the environment alone, never on a disk.
 * Ends with `ended CODE`.
 */
export const buildScript = `${takeTurn}
work="${folder}/$1" context=$2 limit=$3
shift 3
rm -rf "$work" && mkdir "$work" || exit 1
what=
while read -r what name value; do
  case $what in
    file) printf %s "$value" | base64 -d >"$work/$name" ;;
    secret) value=$(printf %s "$value" | base64 -d; echo x); export "KEELSON_SECRET_$name=\${value%x}" ;;
    go) break ;;
  esac
done
if [ "$what" = go ] && [ -d "$context/" ]; then
  (
    trap 'kill -TERM $! 2>/dev/null' TERM
    # timeout ends the builder also when it is told to end itself, and kills one that does not.
    DOCKER_BUILDKIT=1 timeout --kill-after=10 "$limit" docker build --progress=plain "$@" "$context/" </dev/null 9>&- &
    wait $!
    code=$?
    wait $! # the first wait ends with the signal
    echo "${says.ended}$code"
  ) &
  turn=$!
  cat >/dev/null
  kill -TERM $turn 2>/dev/null
  wait $turn
elif [ "$what" = go ] && ${hasDisk}; then
  echo "${says.missing}"
fi
rm -rf "$work"
`

/** Waits until a build whose input has ended is over, and removes what is left if it was killed. Arguments: its id. */
export const endScript = `
n=0
while [ -d "${folder}/$1" ] && [ $n -lt 100 ]; do sleep 0.2; n=$((n + 1)); done
rm -rf "${folder}/$1"
`

/** Arguments: how many bytes of the results of steps to keep. */
export const prune = `
exec docker builder prune --force --all --keep-storage "$1" 2>&1
`
