import { buffer, text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import type { ContainerScripts, LabelledContainer } from '../copies.ts'
import { asking, unless } from '../docker/errors.ts'
import { endMarked } from '../docker/marked.ts'
import { EngineUnavailable, InstanceNotRunning } from '../errors.ts'
import type { DialMachine, PipeMachine } from '../swarms.ts'
import { engineOf } from './dial.ts'
import { endedFirst, markName } from './task-commands.ts'

const absent = 'keelson: no such container'
const errorsAtMost = 4 * 1024 ** 2
/** How a shell says that a program ended by SIGPIPE. */
const pipeClosed = 141
const broke = 'The connection into the container broke'

/** Through which the data of a copy passes: below the folder of the container's shared memory, which each container has. */
const fifoOf = (mark: string): string => `/dev/shm/keelson-script-${mark}`

const find = `
said="/run/keelson-script-$2"
rm -f "$said.exit" "$said.errors" "$said.cut" "$said.size" "$said.output"
container=$(docker ps --quiet --filter "label=$1" | head -n 1)
run() { docker exec -i -e "${markName}=$2" "$container" /bin/sh -c "$3" 2>>"$said.errors"; }
`

const redirects = { input: '<', output: '>' } as const

// The machine's own client, because a connection to its engine does not survive the end of the input. What it says and how it
// ends are in files, since the stream has only the output. `dd` counts what is compressed.
//
// Data that is compressed or decompressed passes through a FIFO in the container instead of the client: the client and two
// processes of the engine would copy it, which took a quarter of the CPU time of a dump. The container could put a link in the
// FIFO's place, so only `dd` opens it, which follows none.
const open = `${find}
running=$container
[ -z "$4" ] || running=$(docker inspect --format '{{if .State.Pid}}{{.State.Pid}}{{end}}' "$container" 2>/dev/null)
if [ -z "$running" ]; then
  echo '${absent}' >"$said.errors"
  echo 1 >"$said.exit"
  exit 0
fi
if [ -n "$4" ]; then
  fifo="/proc/$running/root$5"
  rm -f "$fifo"
  (umask 0 && mkfifo "$fifo") 2>>"$said.errors" || { echo 1 >"$said.exit"; exit 0; }
fi
case $4 in
output)
  { dd bs=256K iflag=fullblock,nofollow if="$fifo" 2>"$said.size" || echo 1 >"$said.cut"; } | zstd -q -c 2>>"$said.errors" &
  passing=$!
  run "$@" </dev/null >/dev/null
  code=$?
  # Ends the wait for a script that has not begun to write.
  dd if=/dev/null of="$fifo" oflag=nofollow,nonblock conv=nocreat,notrunc 2>/dev/null
  rm -f "$fifo"
  if [ $code = 0 ]; then
    wait $passing || code=1
    [ ! -e "$said.cut" ] || code=1
  else
    kill $passing 2>/dev/null
  fi
  ;;
input)
  exec 3<&0
  # A script that does not read to the end is no fault of the input.
  passes() { "$@" 2>>"$said.errors"; ended=$?; [ $ended = 0 ] || [ $ended = ${pipeClosed} ] || echo 1 >"$said.cut"; }
  passes zstd -q -d -c <&3 | passes dd bs=256K status=none of="$fifo" oflag=nofollow conv=nocreat,notrunc &
  run "$@" </dev/null 3<&-
  code=$?
  # Ends the wait for a script that has not begun to read.
  dd if="$fifo" of=/dev/null iflag=nofollow,nonblock count=0 2>/dev/null
  rm -f "$fifo"
  wait
  [ ! -e "$said.cut" ] || code=1
  ;;
*)
  run "$@"
  code=$?
  ;;
esac
echo $code >"$said.exit"
`

const result = `
said="/run/keelson-script-$1"
cat "$said.exit" 2>/dev/null || echo none
echo "$(sed -n 's/ byte.*//p' "$said.size" 2>/dev/null)"
tail -c ${errorsAtMost} "$said.errors" 2>/dev/null
rm -f "$said.exit" "$said.errors" "$said.cut" "$said.size"
`

/** Says how the script ended, the size of its output, and both outputs. */
const read = `${find}
if [ -z "$container" ]; then
  echo absent
  exit 0
fi
run "$@" </dev/null >"$said.output"
echo "$? $(stat -c %s "$said.output")"
cat "$said.output"
tail -c ${errorsAtMost} "$said.errors"
rm -f "$said.output" "$said.errors"
`

const filterOf = ({ label: { name, value } }: LabelledContainer): string => `${name}=${value}`

/** Runs scripts in containers of machines, with streams. */
export const makeContainerScripts = (dial: DialMachine, pipe: PipeMachine): ContainerScripts => ({
  async open(container, script, mark, { zstd } = { zstd: null }) {
    const through = zstd ? `exec ${redirects[zstd]}${fifoOf(mark)}\n` : ''
    const inside = endedFirst(`${through}${script}`)
    const command = ['sh', '-c', open, 'sh', filterOf(container), mark, inside, zstd ?? '', fifoOf(mark)]
    return {
      stream: await pipe(container.machine_id, command),
      async ended() {
        const looking = await pipe(container.machine_id, ['sh', '-c', result, 'sh', mark])
        looking.end()
        const [first = '', size = '', ...rest] = (await text(looking)).split('\n')
        const errors = rest.join('\n')
        if (errors.includes(absent)) throw new InstanceNotRunning(container.label.value)
        if (!/^\d+$/.test(first)) throw new EngineUnavailable(broke)
        return { exit_code: Number(first), errors, output_bytes: size === '' ? null : Number(size) }
      },
    }
  },

  async read(container, script, mark) {
    const command = ['sh', '-c', read, 'sh', filterOf(container), mark, endedFirst(script)]
    const stream = await pipe(container.machine_id, command)
    stream.end()
    const all = await buffer(stream)
    const begins = all.indexOf('\n') + 1
    const said = all.toString('utf8', 0, begins).trim()
    if (said === 'absent') throw new InstanceNotRunning(container.label.value)
    const [code = Number.NaN, size = Number.NaN] = said.split(' ').map(Number)
    const ends = begins + size
    if (!(ends <= all.length)) throw new EngineUnavailable(broke)
    return {
      exit_code: code,
      output: all.toString('utf8', begins, ends),
      errors: all.toString('utf8', ends),
    }
  },

  end: (container, mark) =>
    asking(async () => {
      const docker = engineOf<Docker>(dial, container.machine_id)
      const filters = { label: [filterOf(container)], status: ['running'] }
      for (const { Id } of await docker.listContainers({ filters }))
        await unless([404, 409], endMarked(docker.getContainer(Id), `${markName}=${mark}`))
    }),
})
