import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { text } from 'node:stream/consumers'
import { v4 as newMark } from 'uuid'
import { EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { AppFolders, PipeMachine } from '../swarms.ts'

// Each version of a folder is whole before it gets its place, and /opt/apps/NAME is a link to the newest: a killed call
// leaves a part, which the next one removes.

const root = '/opt/apps'
const done = 'keelson: done'
const keptVersions = 3

const unpack = `
exec 2>&1
base="${root}/.versions/$1"
mkdir -p "$base"
rm -rf "$base/$2".part-*
mkdir "$base/$2.part-$3"
tar -xf - -C "$base/$2.part-$3" --no-same-owner && echo "${done}"
`

// A version that is there already is kept. An older one does not take the place of a newer one: ids grow with time.
const finish = `
exec 2>&1
set -e
base="${root}/.versions/$1"
if [ -d "$base/$2" ]; then rm -rf "$base/$2.part-$3"; else mv -T "$base/$2.part-$3" "$base/$2"; fi
now=$(readlink "${root}/$1" || true)
if ! [ "\${now##*/}" \\> "$2" ]; then
  ln -sfn ".versions/$1/$2" "${root}/.$1.$3"
  mv -T "${root}/.$1.$3" "${root}/$1"
fi
ls -1 "$base" | grep -v part- | sort | head -n -${keptVersions} | while read -r old; do rm -rf "$base/$old"; done
echo "${done}"
`

const remove = `
exec 2>&1
rm -rf "${root}/.versions/$1/$2" "${root}/.versions/$1/$2".part-*
echo "${done}"
`

/** Folders of applications on machines. */
export function makeAppFolders(pipe: PipeMachine): AppFolders {
  async function run(machineId: string, script: string, args: string[], input?: Readable): Promise<void> {
    const stream = await pipe(machineId, ['sh', '-c', script, 'sh', ...args])
    const said = text(stream)
    said.catch(() => {}) // the input may fail first
    if (input) await pipeline(input, stream)
    else stream.end()
    const output = await said
    if (output.trimEnd().endsWith(done)) return
    if (/no space left/i.test(output)) throw new MachineDiskFull(new Error(output.slice(-500)))
    throw new EngineUnavailable('The folder could not be written', new Error(output.slice(-500)))
  }

  return {
    async put(machineId, name, version, tar) {
      const attempt = newMark()
      await run(machineId, unpack, [name, version, attempt], tar)
      return {
        finish: async () => {
          await run(machineId, finish, [name, version, attempt])
          return `${root}/${name}`
        },
      }
    },
    remove: (machineId, name, version) => run(machineId, remove, [name, version]),
  }
}
