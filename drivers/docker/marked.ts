import type Docker from 'dockerode'
import { runScript } from './exec.ts'

// Commands whose processes have a mark in their environment, which what they start inherits.

// A second between the signals, some for what ends late, and the time that the reading of /proc takes.
const scriptEndsMs = 10_000

/**
 * Sends SIGHUP, and SIGKILL a second later, to each process with the mark, also if the command's first process has ended
 * or it has left the command's session; and to what is in that session without the mark. A process may start another
 * while /proc is read, so this is repeated until none is left. The script uses only shell built-ins and `sleep`.
 */
const endScript = `
mark=$1
leader=
signal() {
  how=$1
  found=
  for dir in /proc/[0-9]*; do
    read -r stat <"$dir/stat" || continue
    set -- \${stat##*) }
    [ "$1" = Z ] && continue
    parent=$2 session=$4 marked=
    while read -r line || [ -n "$line" ]; do
      case $line in *"$mark"*) marked=1; break ;; esac
    done <"$dir/environ"
    [ -n "$marked" ] && [ "$parent" = 0 ] && leader=\${dir#/proc/}
    [ -n "$leader" ] && [ "$session" = "$leader" ] && marked=1
    [ -n "$marked" ] && kill "-$how" "\${dir#/proc/}" && found=1
  done 2>/dev/null
}
signal HUP
[ -n "$found" ] || exit 0
sleep 1 2>/dev/null
for round in 1 2 3 4 5 6; do
  signal KILL
  [ -n "$found" ] || exit 0
  [ "$round" -lt 3 ] || sleep 1 2>/dev/null
done
exit 0
`

/**
 * Ends all processes of a command by a variable of their environment: `NAME=value`. Needs /bin/sh in the image, and that
 * the container's user may read the environment of the processes and signal them. One that has neither the variable nor
 * the command's session is not found. Gives up after some seconds.
 */
export const endMarked = (container: Docker.Container, variable: string): Promise<void> =>
  runScript(container, endScript, variable, scriptEndsMs)
