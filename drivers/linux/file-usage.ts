import { stat } from 'node:fs/promises'
import { run } from '../system/programs.ts'

// What files take on disk, counted in the background: with the lowest priorities for CPU and disk, for a minute at most.

const eachWithinSec = 30
const withinMs = 2 * eachWithinSec * 1000 + 5_000

/**
 * Sums blocks. Not `du`: it fails when a file goes while it counts, and cannot stop early. A hard link counts as its part
 * of the file. What has no blocks counts as one, since the file system has room for so many files only; and so a limit
 * bounds the work.
 *
 * Deleted files take their blocks as long as a thread has them open or mapped. `find -L` asks for the files behind
 * `/proc`; those of other file systems, such as memory and attached disks, do not count.
 */
const script = `
within=$1 limit=$2 held=$3 devices=$4
shift 4
{
  timeout "$within" find "$@" -xdev \\( -type d -printf '%b 1\\n' -o -printf '%b %n\\n' \\)
  [ -z "$held" ] || timeout "$within" find -L $held -maxdepth 1 -type f -links 0 -printf '%b 1 %D %i\\n'
} 2>/dev/null | awk -v limit="$limit" -v devices="$devices" '
  BEGIN { count = split(devices, list, " "); for (at = 1; at <= count; at++) ours[list[at]] = 1 }
  NF == 4 && (!($3 in ours) || seen[$3, $4]++) { next }
  { size = $1 * 512 / ($2 > 1 ? $2 : 1); sum += size > 4096 ? size : 4096 }
  sum > limit { exit }
  END { printf "%.0f", sum }
'`

/** Which files: those below these paths, and the deleted ones that these threads hold on the same file systems. */
export interface Counted {
  paths: string[]
  threads: number[]
  /** Folders whose file systems also count for deleted files. */
  besides: string[]
}

/** The bytes of these files, or some number beyond the limit. Throws the signal's reason. */
export async function bytesOf(
  { paths, threads, besides }: Counted,
  limitBytes: number,
  signal: AbortSignal,
): Promise<number> {
  const held = threads.flatMap((thread) => [`/proc/${thread}/fd`, `/proc/${thread}/map_files`])
  const devices = await Promise.all([...paths, ...besides].map(deviceOf))
  const args = [String(eachWithinSec), String(limitBytes), held.join(' '), devices.join(' '), ...paths]
  const command = ['-n', '19', 'ionice', '-c', '3', 'sh', '-c', script, 'sh', ...args]
  return Number(
    await run('nice', command, { signal: AbortSignal.any([signal, AbortSignal.timeout(withinMs)]) }),
  )
}

const deviceOf = (path: string): Promise<string> =>
  stat(path).then(
    ({ dev }) => String(dev),
    () => '',
  )
