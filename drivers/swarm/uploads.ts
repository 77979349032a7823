import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { PipeMachine, Uploads } from '../swarms.ts'
import { needDisk } from './app-folders.ts'

// An archive that comes in parts is a file on the machine's disk. Its size says how much of it is there, so that nothing
// else has to be remembered.

const folder = '/opt/apps/.uploads'
const says = 'keelson:'
/** A part whose host was killed ends soon: its input does. */
const turnWithinSec = 15
/** Files of uploads that are long over, whose removal came before their last part. */
const oldMin = 2 * 24 * 60

const begin = `
exec 2>&1
${needDisk}
mkdir -p "${folder}"
find "${folder}" -type f -mmin +${oldMin} -delete
file="${folder}/$1"
size() { stat -c %s "$file" 2>/dev/null || echo 0; }
`

const offset = `${begin}
echo "${says}$(size)"
`

// head writes no more than it may, whatever comes. On a full disk nothing of the part stays, for the sake of what else the
// worker does; its sender has sent all before it hears of that.
const append = `${begin}
exec 9>>"$file.lock"
flock -w ${turnWithinSec} 9 || { echo "another part is being sent"; exit 1; }
full=
if [ "$(size)" = "$2" ] && ! head -c "$3" >>"$file"; then
  truncate -s "$2" "$file"
  full=1
fi
cat >/dev/null
[ -z "$full" ] || exit 1
echo "${says}$(size)"
`

const digest = `${begin}
echo "${says}$([ ! -f "$file" ] || sha256sum <"$file" | cut -d ' ' -f 1)"
`

const remove = `${begin}
rm -f "$file" "$file.lock"
echo "${says}done"
`

/** Archives that come to machines in parts. */
export function makeUploads(pipe: PipeMachine): Uploads {
  async function run(machineId: string, script: string, args: string[], input?: Readable): Promise<string> {
    const stream = await pipe(machineId, ['sh', '-c', script, 'sh', ...args])
    const said = text(stream)
    said.catch(() => {}) // the input may fail first
    if (input) await pipeline(input, stream)
    else stream.end()
    const output = await said
    const last = output.trimEnd().split('\n').at(-1) ?? ''
    if (last.startsWith(says)) return last.slice(says.length)
    if (/no space left/i.test(output)) throw new MachineDiskFull(new Error(output.slice(-500)))
    throw new EngineUnavailable('The archive could not be written', new Error(output.slice(-500)))
  }

  return {
    offset: async (machineId, id) => Number(await run(machineId, offset, [id])),
    append: async (machineId, id, { offset: at, atMost, bytes }) =>
      Number(await run(machineId, append, [id, String(at), String(atMost)], bytes)),
    digest: (machineId, id) => run(machineId, digest, [id]),
    async read(machineId, id) {
      const stream = await pipe(machineId, ['cat', `${folder}/${id}`])
      stream.end()
      return Readable.from(stream)
    },
    async remove(machineId, id) {
      await run(machineId, remove, [id])
    },
  }
}
