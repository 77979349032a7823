import { mkdtempSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import Docker from 'dockerode'
import type { ContainerSpec } from '../../../drivers/containers.ts'
import { makeDockerEngine } from '../../../drivers/docker/engine.ts'
import { openHostLayers } from '../../../drivers/docker/host-layers.ts'
import { hasLayerQuotas } from '../../../drivers/docker/layer-quota.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'
import { newId } from '../../../lib/ids.ts'

// What the guest of xfs-guest.ts runs: containers that write more than they may, on an engine with quotas and on one
// without. Prints what became of them, for a test outside.

/** The log of the guest, which the test shows if there is no result. */
const began = performance.now()
const say = (words: string): void =>
  console.log(`${Math.round((performance.now() - began) / 1000)} s: ${words}`)

async function until<T>(what: string, look: () => Promise<T | false | undefined>): Promise<T> {
  say(what)
  for (;;) {
    const found = await look()
    if (found) return found
    await delay(200)
  }
}

const mib = (count: number): number => count / 1024
const spec = (script: string, mebibytes: number): ContainerSpec => ({
  id: newId(),
  tenant_id: 'tenant',
  name: 'test',
  image: 'guest',
  image_digest: null,
  command: ['sh', '-c', `${script}; sleep 3600`],
  entrypoint: [],
  cpu_cores: 1,
  memory_mib: 256,
  restart_policy: 'always',
  ports: [],
  log_cap_mib: 10,
  health_check: null,
  disk_gib: mib(mebibytes),
})
const write = (file: string, count: number): string => `dd if=/dev/zero of=${file} bs=1M count=${count}`

async function host(name: string) {
  const socketPath = `/run/${name}.sock`
  const docker = new Docker({ socketPath, host: undefined })
  await until(`${name} answers`, () => docker.ping().catch(() => undefined))
  await docker.importImage('/image.tar', { repo: 'guest', tag: 'latest' }).then((answer) => answer.resume())
  await until(`${name} has the image`, () =>
    docker
      .getImage('guest')
      .inspect()
      .catch(() => undefined),
  )
  const dockerHost = `unix://${socketPath}`
  const hostId = newId()
  const layers = await openHostLayers({
    hostId,
    dockerHost,
    folder: mkdtempSync('/tmp/layers-'),
    bytesPerSec: null,
  })
  const quotas = await hasLayerQuotas(dockerHost)
  const ports = makeHostPorts({ address: '127.0.0.1', range: [22_000, 22_100] })
  const engine = makeDockerEngine({ hostId, dockerHost, ports, layers, quotas, network: async () => 'none' })
  const inside = async (id: string, script: string): Promise<string> => {
    const pipe = await engine.pipe(id, ['sh', '-c', `exec 2>&1; ${script}`])
    pipe.end()
    let output = ''
    for await (const data of pipe) output += String(data)
    return output.trim()
  }
  /** Measures until these containers are beyond their bounds; returns all that are. */
  const beyond = (ids: string[]): Promise<string[]> =>
    until('containers are beyond their bounds', async () => {
      const full = (await layers.look(await engine.list(), new AbortController().signal)).map(({ id }) => id)
      return ids.every((id) => full.includes(id)) && full
    })
  const isFull = async (id: string): Promise<boolean> => (await engine.find(id))?.layer_full ?? false
  return { engine, quotas, inside, beyond, isFull }
}

async function tried(): Promise<object> {
  const [held, measured] = await Promise.all([host('held'), host('measured')])

  const large = spec(write('/filled', 48), 32)
  const other = spec(write('/some', 8), 32)
  const names = spec('i=0; while [ $i -lt 2200 ]; do : > /$i; i=$((i + 1)); done', 4)
  const first = await held.engine.run(large, {}, newId())
  await until('the layer is full', () => held.isFull(large.id))
  const refused = await held.inside(large.id, write('/more', 2))
  await held.engine.run(other, {}, newId())
  const goesOn = await held.inside(other.id, write('/more', 2))
  // The large one has waited longer for its look when this one has had its own.
  await held.engine.run(names, {}, newId())
  await held.inside(names.id, 'until [ -e /2199 ]; do sleep 1; done')
  const stopped = await held.beyond([names.id])
  const afterLooks = await held.engine.find(large.id)

  await held.engine.resize(large.id, { ...large, disk_gib: mib(64) })
  const afterRaise = {
    full: await held.isFull(large.id),
    wrote: await held.inside(large.id, write('/more', 16)),
  }
  await held.engine.stop(large.id, 0)
  const again = await held.engine.run({ ...large, disk_gib: mib(40) }, {}, newId())
  await until('the layer is full again', () => held.isFull(large.id))
  const afterStart = {
    same: again.engine_id === first.engine_id,
    wrote: await held.inside(large.id, write('/again', 2)),
  }

  const unheld = spec(`${write('/filled', 48)}; echo > /written`, 32)
  await measured.engine.run(unheld, {}, newId())
  await measured.inside(unheld.id, 'until [ -e /written ]; do sleep 1; done')
  const stoppedThere = await measured.beyond([unheld.id])
  return {
    quotas: [held.quotas, measured.quotas],
    refused,
    goesOn,
    stopped: {
      large: stopped.includes(large.id),
      other: stopped.includes(other.id),
      names: stopped.includes(names.id),
    },
    afterLooks: { state: afterLooks?.state, full: afterLooks?.ended_by ?? null },
    afterRaise,
    afterStart,
    unheld: { stopped: stoppedThere.includes(unheld.id), full: await measured.isFull(unheld.id) },
  }
}

await tried().then(
  (result) => console.log(`\nRESULT ${JSON.stringify(result)}`),
  (error: unknown) => console.error(error),
)
process.exit()
