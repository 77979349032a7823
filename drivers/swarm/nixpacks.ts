import { asking } from '../docker/errors.ts'
import { BuildFailed, EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { Nixpacks } from '../image-builds.ts'
import type { PipeMachine } from '../swarms.ts'
import { needDisk } from './app-folders.ts'
import { outputOf } from './output.ts'

// Nixpacks reads a tenant's files, so it runs where those run: in a container of the machine's engine, without a network.
// Its Dockerfile needs further files of its own beside those of the artifact. The artifact stays as it is: the build gets
// a folder of hard links to it.

const root = '/opt/apps/.nixpacks'
const says = { missing: 'keelson: no folder', ended: 'keelson: ended ', made: 'keelson: made ' } as const

// What an artifact calls .nixpacks must not be written through its link.
const plan = `
exec 2>&1
${needDisk}
work="${root}/$1" files=$2 image=$3 plan=$4
[ -d "$files/" ] || { echo "${says.missing}"; exit; }
rm -rf "$work" && mkdir -p "$work" && cp -al "$files/." "$work/" && rm -rf "$work/.nixpacks" || exit
nixpacks() {
  docker run --rm --network none --memory 256m --pids-limit 64 --cap-drop ALL --security-opt no-new-privileges \\
    --volume "$files:/app:ro" --volume "$work:/out" --entrypoint nixpacks "$image" "$@" --json-plan "$plan" </dev/null
}
nixpacks build /app --out /out
code=$?
echo "${says.ended}$code"
[ $code = 0 ] || exit
printf '${says.made}'
base64 -w0 "$work/.nixpacks/Dockerfile"
printf ' '
nixpacks plan /app 2>/dev/null | base64 -w0
echo
`

const remove = `exec rm -rf "${root}/$1"`

/** What the engine says of a container that it could not start. */
const isNotStarted = (code: number): boolean => code >= 125 && code <= 127

/** Nixpacks in the machines' engines. */
export function makeNixpacks(pipe: PipeMachine): Nixpacks {
  return {
    plan: (machineId, { id, folder, image, base_image }, signal) =>
      asking(async () => {
        const wanted = JSON.stringify(base_image === null ? {} : { buildImage: base_image })
        const command = ['sh', '-c', plan, 'sh', id, folder, image, wanted]
        const output = (await outputOf(pipe, machineId, command)).split(/\r?\n/)
        signal?.throwIfAborted()
        const after = (mark: string) => output.find((line) => line.startsWith(mark))?.slice(mark.length)
        const said = output.filter((line) => line.trim() && !line.startsWith('keelson: '))
        if (output.includes(says.missing))
          throw new BuildFailed(
            'The artifact’s files are no longer on the worker: push it again',
            'artifact_gone',
          )
        const code = Number(after(says.ended) ?? -1)
        if (code !== 0) throw failureOf(code, said, image)
        const [dockerfile = '', planned = ''] = (after(says.made) ?? '').split(' ').map(fromBase64)
        if (!dockerfile || !planned)
          throw new EngineUnavailable('Nixpacks was interrupted', new Error(said.join('\n').slice(-500)))
        return { folder: `${root}/${id}`, text: dockerfile, build_args: variablesOf(planned), said }
      }, signal),

    remove: async (machineId, id) => {
      await outputOf(pipe, machineId, ['sh', '-c', remove, 'sh', id])
    },
  }
}

const fromBase64 = (value: string): string => Buffer.from(value, 'base64').toString()

/** Its Dockerfile takes the variables of its plan as arguments. */
function variablesOf(planned: string): Record<string, string> {
  const { variables = {} } = JSON.parse(planned) as { variables?: Record<string, string> }
  return variables
}

function failureOf(code: number, said: string[], image: string): Error {
  const words = said.join('\n')
  if (/no space left on device/i.test(words)) return new MachineDiskFull()
  if (code < 0) return new EngineUnavailable('Nixpacks was interrupted', new Error(words.slice(-500)))
  if (/unable to generate a build plan/i.test(words))
    return new BuildFailed('Nixpacks recognises nothing in the artifact', 'nothing_recognised')
  const why = (isNotStarted(code) ? said.find((line) => /error/i.test(line)) : undefined) ?? said.at(-1) ?? ''
  if (isNotStarted(code))
    return new BuildFailed(
      `Nixpacks could not be started from the operator’s image ${image}: ${why.slice(0, 300)}`,
      'builder_unavailable',
    )
  return new BuildFailed(`Nixpacks failed: ${why.slice(0, 300)}`)
}
