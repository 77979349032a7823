import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { text } from 'node:stream/consumers'
import { v4 as newMark } from 'uuid'
import { BuildFailed, EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { ReadFolder } from '../image-builds.ts'
import type { AppFolders, PipeMachine } from '../swarms.ts'
import { outputOf } from './output.ts'

// Each version of a folder is whole before it gets its place, and /opt/apps/NAME is a link to the newest: a killed call
// leaves a part, which the next one removes.

const root = '/opt/apps'
/** Whether a machine that has just started has its disk, where the folder is. */
export const hasDisk = `[ -d ${root}/ ]`
/** Ends a script, with all its input, until the disk is there: a folder that it made before would hide the disk's. */
export const needDisk = `${hasDisk} || { cat >/dev/null; echo "the disk is not there yet"; exit 1; }`
const done = 'keelson: done'
const keptVersions = 3

const unpack = `
exec 2>&1
${needDisk}
base="${root}/.versions/$1"
mkdir -p "$base"
rm -rf "$base/$2".part-*
mkdir "$base/$2.part-$3"
if tar -xf - -C "$base/$2.part-$3" --no-same-owner; then
  echo "${done}"
else
  rm -rf "$base/$2.part-$3" # a full disk would stop what runs on the worker
  cat >/dev/null # its sender hears of the failure when it has sent all
fi
`

// A version that is there already is kept. An older one does not take the place of a newer one: ids grow with time.
const finish = `
exec 2>&1
${needDisk}
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
${needDisk}
rm -rf "${root}/.versions/$1/$2" "${root}/.versions/$1/$2".part-*
echo "${done}"
`

/** Folders of applications on machines. */
export function makeAppFolders(pipe: PipeMachine): AppFolders {
  async function run(machineId: string, script: string, args: string[], input?: Readable): Promise<void> {
    const stream = await pipe(machineId, ['sh', '-c', script, 'sh', ...args])
    const said = text(stream)
    said.catch(() => {}) // the connection may break first
    let failure: unknown = null
    // A failed input ends normally, so that the script ends before the caller hears of the failure. If `pipeline` cut the
    // connection, the script could make its folder after the caller has removed it.
    async function* all(its: Readable): AsyncGenerator<Buffer> {
      try {
        yield* its as AsyncIterable<Buffer>
      } catch (error) {
        failure = error
      }
    }
    if (input) await pipeline(all(input), stream)
    else stream.end()
    const output = await said
    if (failure) throw failure as Error
    if (output.trimEnd().endsWith(done)) return
    // tar gives no reason when a file ends early.
    if (/no space left|wrote only \d+ of/i.test(output))
      throw new MachineDiskFull(new Error(output.slice(-500)))
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

const mostPaths = 2000
const mostBytes = 256 * 1024

const missing = 'keelson: no folder'

const read = `
${needDisk}
cd "$1" || { echo "${missing}"; exit; }
shift
find . -maxdepth 3 -type f -not -path './node_modules/*' -not -path './.git/*' -printf 'path %P\\n' | head -n ${mostPaths}
for name in "$@"; do
  [ ! -f "$name" ] || echo "text $name $(head -c ${mostBytes} "$name" | base64 -w0)"
done
echo "${done}"
`

/** Reads small files of a folder on a machine. */
export const makeReadFolder =
  (pipe: PipeMachine): ReadFolder =>
  async (machineId, folder, names) => {
    const command = ['sh', '-c', `exec 2>/dev/null\n${read}`, 'sh', folder, ...names]
    const lines = (await outputOf(pipe, machineId, command)).split('\n')
    if (lines.includes(missing))
      throw new BuildFailed(
        'The artifact’s files are no longer on the worker: push it again',
        'artifact_gone',
      )
    if (!lines.includes(done)) throw new EngineUnavailable('The artifact’s files could not be read')
    const paths = lines.filter((line) => line.startsWith('path ')).map((line) => line.slice(5))
    const texts = lines
      .filter((line) => line.startsWith('text '))
      .map((line) => line.slice(5).split(' '))
      .map(([name = '', base64 = '']) => [name, Buffer.from(base64, 'base64').toString()] as const)
    return { paths, texts: Object.fromEntries(texts) }
  }
