import { Readable } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { zstdDecompress } from 'node:zlib'
import { pack } from 'tar-stream'
import { EngineUnavailable } from '../errors.ts'
import type { PipeMachine, SwarmStates, SwarmStatePosition } from '../swarms.ts'

// What a manager knows of its Swarm is in a folder of its engine: certificates, snapshots, and a log to which it appends
// until it is 64 MB long. The log is encrypted, so it does not compress, and is read from where the last reading ended.

const data = '/var/lib/machine'
/** The engine takes it for its own before it starts (images/machine/machine-init). */
const placed = `${data}/swarm-copy`
const logs = 'raft/wal-v3-encrypted'
const snapshots = 'raft/snap-v3-encrypted'

/** The most of a log that one piece has. */
const pieceBytes = 8 * 1024 ** 2
/** What is read again, to see that the log has only grown: an engine that was killed may write its end anew. */
const overlapBytes = 4096
/** An entry may end with zeros, which were not read. More of them are no entry. */
const padBytes = 4096

const beginning: SwarmStatePosition = { log: '', offset: 0, end: Buffer.alloc(0), snapshot: '', changed: '' }

// Prints a line about what follows: files as a tar, and a part of a log, compressed because zeros follow its end.
const read = `
set -e
cd ${data}/docker/swarm
newest=$(ls ${logs} | grep '[.]wal$' | tail -n 1)
changed="$newest/$(stat -c %y "${logs}/$newest" | tr -d ' ')"
if [ "$changed" = "$4" ]; then echo same; exit; fi
log=$1
if [ -z "$log" ]; then log=$(ls ${logs} | grep '[.]wal$' | head -n 1); fi
if [ ! -e "${logs}/$log" ]; then echo gone; exit; fi
next=$(ls ${logs} | grep '[.]wal$' | grep -A 1 -x "$log" | tail -n 1)
files=/run/swarm-state.$$
trap 'rm -f $files' EXIT
news=$(cd ${snapshots} 2>/dev/null && ls | grep '[.]snap$' | while read -r name; do [ "$name" \\> "$3" ] && echo "${snapshots}/$name"; done || true)
tar -cf $files $(ls -d docker-state.json state.json certificates 2>/dev/null || true) $news
snapshot=$(ls ${snapshots} 2>/dev/null | grep '[.]snap$' | tail -n 1 || true)
echo "state $(stat -c %s $files) $log $next $changed \${snapshot:--}"
cat $files
tail -c +$(($2 + 1)) "${logs}/$log" | head -c ${pieceBytes} | zstd -q -1 -c
`

const put = `
exec 2>&1
set -e
part="${placed}.part-$1"
rm -rf "${placed}".part-*
mkdir -m 700 "$part"
tar -xf - --ignore-zeros -C "$part" --no-same-owner
[ -e "$part/whole" ] || { echo "the copy is cut off"; exit 1; }
mkdir -p "$part/${logs}" "$part/${snapshots}"
for log in "$part"/log/*; do
  [ -d "$log" ] || continue
  cat "$log"/* >"$part/${logs}/\${log##*/}"
  truncate -s +${padBytes} "$part/${logs}/\${log##*/}"
done
rm -rf "$part/log" "$part/whole" "${placed}"
mv -T "$part" "${placed}"
sync -f "${placed}"
kill -TERM "$(cat /run/docker.pid)"
echo "keelson: done"
`

const forget = `
exec 2>&1
set -e
rm -rf "${placed}" "${placed}".part-* ${data}/docker/swarm
kill -TERM "$(cat /run/docker.pid)" || true # it may have ended
echo "keelson: done"
`

/** Copies of what managers know of their Swarms. */
export const makeSwarmStates = (pipe: PipeMachine): SwarmStates => ({
  async read(machineId, from) {
    const { log, offset, end, snapshot, changed } = from ?? beginning
    const at = Math.max(0, offset - end.length)
    const asked = [log, String(at), snapshot, changed]
    const stream = await pipe(machineId, ['sh', '-c', read, 'sh', ...asked])
    stream.end()
    const output = await buffer(stream)
    const headEnd = output.indexOf('\n')
    const [said, size = '', ...names] = output.subarray(0, headEnd).toString().split(' ')
    if (said === 'same') return null
    if (said === 'gone') return 'lost'
    if (said !== 'state') throw new EngineUnavailable('The state of the Swarm could not be read')
    const [name = '', next = '', newChanged = '', newSnapshot = ''] = names
    const filesEnd = headEnd + 1 + Number(size)
    const files = output.subarray(headEnd + 1, filesEnd)
    const part = await unzstd(output.subarray(filesEnd))
    if (!part.subarray(0, end.length).equals(end)) return 'lost'
    const known = part.subarray(0, lengthWithoutZeros(part))
    const isCut = part.length === pieceBytes && part.length - known.length < overlapBytes
    // The next log begins when this one is full, and this one is not written any more.
    const isOver = !isCut && next !== name
    const grown = known.subarray(end.length)
    const to: SwarmStatePosition = {
      log: isOver ? next : name,
      offset: isOver ? 0 : offset + grown.length,
      end: isOver ? Buffer.alloc(0) : Buffer.from(known.subarray(-overlapBytes)),
      snapshot: newSnapshot === '-' ? '' : newSnapshot,
      changed: isCut || isOver ? '' : newChanged, // not before all is read
    }
    const piece = [files, await tarOf(`log/${name}/${String(offset).padStart(12, '0')}`, grown)]
    return { piece, to, more: isCut || isOver }
  },

  put: (machineId, mark, copy) => run(pipe, machineId, [put, mark], Readable.from(withEnd(copy))),

  forget: (machineId) => run(pipe, machineId, [forget, '']),
})

/** Ends with a mark: a copy that breaks off between two pieces looks whole. */
async function* withEnd(copy: Readable): AsyncGenerator<Buffer> {
  yield* copy as AsyncIterable<Buffer>
  yield tarOf('whole', Buffer.alloc(0))
}

async function run(
  pipe: PipeMachine,
  machineId: string,
  [script, mark]: [string, string],
  input?: Readable,
): Promise<void> {
  const stream = await pipe(machineId, ['sh', '-c', script, 'sh', mark])
  const said = text(stream)
  said.catch(() => {}) // the connection may break first
  if (input) await pipeline(input, stream)
  else stream.end()
  const output = await said
  if (!output.trimEnd().endsWith('keelson: done'))
    throw new EngineUnavailable('The state of the Swarm could not be written', new Error(output.slice(-500)))
}

const unzstd = promisify(zstdDecompress)

function lengthWithoutZeros(bytes: Buffer): number {
  let length = bytes.length
  while (length > 0 && bytes[length - 1] === 0) length--
  return length
}

async function tarOf(name: string, bytes: Buffer): Promise<Buffer> {
  const files = pack()
  files.entry({ name }, bytes)
  files.finalize()
  return buffer(files)
}
