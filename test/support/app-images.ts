import { text } from 'node:stream/consumers'
import type { Client, DeployServerBody } from './client.ts'
import { docker } from './containers.ts'
import { innerEngine } from './machines-inside.ts'

// Images of an application, loaded into the engines of a deploy server's machines: there is no registry here.

/** Answers with its version and $GREETING, also at /health. */
const serve =
  'mkdir -p /tmp/w/cgi-bin; echo "$VERSION $GREETING" >/tmp/w/index.html; cp /tmp/w/index.html /tmp/w/health; exec httpd -f -p "$PORT" -h /tmp/w'

/** A command that answers with something else after each start. */
export const tellsItsStart = [
  'sh',
  '-c',
  'mkdir -p /tmp/w; cat /proc/sys/kernel/random/uuid >/tmp/w/index.html; exec httpd -f -p "$PORT" -h /tmp/w',
]

const commands = {
  v1: serve,
  v2: serve,
  v3: serve,
  crash: 'echo cannot go on; exit 3',
  silent: 'exec sleep 600',
  eater: 'exec tail /dev/zero',
  chatty: `for i in 1 2 3; do echo "line $i"; done; echo oops >&2; ${serve}`,
}
export const appTags = Object.keys(commands) as (keyof typeof commands)[]

let made: Promise<void> | null = null

/** Makes the images `demo:<tag>` on the host's engine. */
async function make(): Promise<void> {
  for (const [tag, command] of Object.entries(commands)) {
    const container = await docker.createContainer({ Image: 'busybox:latest', Cmd: ['true'] })
    const changes = [`ENV VERSION=${tag}`, `CMD ${JSON.stringify(['sh', '-c', command])}`]
    await container.commit({ repo: 'demo', tag, changes })
    await container.remove()
  }
}

/** Loads the images into the engines of all workers. */
export async function loadAppImages(client: Client, server: DeployServerBody): Promise<void> {
  made ??= make()
  await made
  for (const { machine_id } of server.workers) {
    const inner = await innerEngine(client, machine_id)
    for (const tag of appTags) await text(await inner.loadImage(await docker.getImage(`demo:${tag}`).get()))
  }
}

/** Gives images of `demo` further names in the engines of all workers: they stand for public images. */
export async function nameAppImages(
  client: Client,
  server: DeployServerBody,
  names: Record<string, keyof typeof commands>,
): Promise<void> {
  await loadAppImages(client, server)
  for (const { machine_id } of server.workers) {
    const inner = await innerEngine(client, machine_id)
    for (const [name, tag] of Object.entries(names)) {
      const [repo = '', as = ''] = name.split(':')
      await inner.getImage(`demo:${tag}`).tag({ repo, tag: as })
    }
  }
}

/** Loads busybox, on which images are built, into the engine of the worker that builds. */
export async function loadBaseImage(client: Client, { workers }: DeployServerBody): Promise<void> {
  const inner = await innerEngine(client, workers[0]?.machine_id ?? '')
  await text(await inner.loadImage(await docker.getImage('busybox:latest').get()))
}
