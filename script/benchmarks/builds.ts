import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { pack } from 'tar-stream'
import type { ContainerEngine } from '../../drivers/containers.ts'
import { median, type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

// An application of three files and one step, built by the platform and by hand in the same machine, in turn. Each build
// has a file of its own, so that no step is taken from the cache.

const builds = 7
const dockerfile =
  'FROM busybox\nWORKDIR /app\nCOPY . .\nRUN sha256sum * >sums\nCMD exec httpd -f -p "$PORT" -h /app\n'

interface Inside {
  /** The deploy server. */
  id: string
  machineId: string
  engine: Pick<ContainerEngine, 'pipe'>
}

/** Builds by the platform beside `docker build` by hand. */
export async function buildRows(stack: Stack, { id, machineId, engine }: Inside): Promise<Row[]> {
  const path = `/api/v1/deploy-servers/${id}`
  const byHand = async (command: string): Promise<void> => {
    const stream = await engine.pipe(machineId, ['sh', '-c', `exec 2>&1; ${command} && echo built`])
    stream.end()
    const said = await text(stream)
    if (!said.includes('built')) throw new Error(`a build by hand failed: ${said.slice(-500)}`)
  }
  const [ours, theirs]: [number[], number[]] = [[], []]
  for (let round = 0; round <= builds; round++) {
    const content_b64 = (await archive()).toString('base64')
    await stack.finish('POST', `${path}/artifacts`, { name: 'sample', content_b64 })
    const took = await timed(() =>
      stack.finish('POST', `${path}/builds`, { artifact: 'sample', image: 'sample' }),
    )
    const folder = '/tmp/by-hand'
    await byHand(
      `rm -rf ${folder}; cp -rL /opt/apps/sample ${folder}; head -c 16 /dev/urandom >${folder}/own`,
    )
    const tag = `127.0.0.1:5000/by-hand:${round}`
    const bare = await timed(() => byHand(`DOCKER_BUILDKIT=1 docker build -q -t ${tag} ${folder}`))
    if (round === 0) continue // it makes the registry and the builder's first state
    ours.push(took)
    theirs.push(bare)
  }
  return [
    { what: 'build of a sample application, with its push', unit: 'ms', figures: ours },
    { what: '`docker build` in the same machine, without a push', unit: 'ms', figures: theirs },
    { what: 'more, at p50', unit: 'ms', figures: [median(ours) - median(theirs)] },
  ]
}

async function archive(): Promise<Buffer> {
  const tar = pack()
  tar.entry({ name: 'Dockerfile' }, dockerfile)
  tar.entry({ name: 'index.html' }, 'hello')
  tar.entry({ name: 'own' }, randomBytes(16))
  tar.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of tar) chunks.push(Buffer.from(chunk as Uint8Array))
  return gzipSync(Buffer.concat(chunks))
}
