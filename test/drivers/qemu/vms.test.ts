import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { clockErrorMs } from '../../support/clocks.ts'
import { processesWith, processIds } from '../../../drivers/system/programs.ts'
import { isLong } from '../../support/long.ts'
import { testLong } from '../../support/long-tests.ts'
import { killedAfter } from '../../support/killed-worker.ts'
import { eventually } from '../../support/eventually.ts'
import {
  anotherWorker,
  clockOff,
  inMachine,
  machines,
  machineSpec,
  settings,
  start,
  withMachines,
} from '../../support/machine-hosts.ts'

// The image takes minutes to make, and a VM boots for a minute or two without KVM.
if (!isLong) console.warn('One test of VMs is skipped: it is of the long form, since it makes an image.')

const images = (): string => join(settings.folder, 'images')
const unfinished = async () =>
  (await readdir(images()).catch(() => [])).filter((name) => name.startsWith('.'))

const namespaceOf = (pid: number): Promise<string | null> => readlink(`/proc/${pid}/ns/pid`).catch(() => null)

/** The process namespace in which an image is being made, once that has begun. */
async function placeOfMaking(): Promise<string> {
  const own = await namespaceOf(process.pid)
  return eventually(async () => {
    const making = await processesWith(`${images()}/.`)
    const places = await Promise.all(making.map(({ pid }) => namespaceOf(pid)))
    return places.find((place) => place !== null && place !== own)
  })
}

async function processesIn(place: string): Promise<number[]> {
  const all = await Promise.all(
    (await processIds()).map(async (pid) => ({ pid, in: await namespaceOf(pid) })),
  )
  return all.filter((one) => one.in === place).map(({ pid }) => pid)
}

withMachines('VMs', () => {
  test('an unknown image is refused', async () => {
    await expect(machines.prepare('vm', 'no-such')).rejects.toMatchObject({ code: 'image_not_found' })
  })

  test('a build of an image that is cancelled, or whose worker is killed, leaves nothing', async () => {
    const off = new AbortController()
    const called = machines.prepare('vm', 'debian-12', { signal: off.signal })
    const first = await placeOfMaking()
    off.abort(new Error('called off'))
    await expect(called).rejects.toThrow('called off')
    expect(await processesIn(first)).toEqual([])
    expect(await unfinished()).toEqual([])

    await machines.close()
    await killedAfter(placeOfMaking, 'machine-worker.ts', [settings, 'prepare', ['vm', 'debian-12']])
    const second = await placeOfMaking()
    expect(await unfinished()).toHaveLength(1)
    await anotherWorker()
    expect(await processesIn(second)).toEqual([])
    expect(await unfinished()).toEqual([])
  })

  testLong(
    'a VM applies its settings, and is suspended, resumed and shut down',
    async () => {
      const { image_digest, least_disk_gib } = await machines.prepare('vm', 'debian-12')
      expect(await machines.prepare('vm', 'debian-12')).toMatchObject({ image_digest })
      const spec = machineSpec({
        kind: 'vm',
        image: 'debian-12',
        name: 'server',
        command: [],
        memory_mib: 512,
        root_disk_gib: least_disk_gib + 1,
        ssh_keys: ['ssh-ed25519 AAAA test'],
        user_data: '#cloud-config\nruncmd: [[sh, -c, "echo done > /root/marker"]]\n',
      })
      await start(spec)
      const record = await readFile(join(settings.folder, spec.id, 'machine.json'), 'utf8')
      expect(record).not.toContain('runcmd') // it may hold secrets
      const shows = (text: string, script: string): Promise<boolean> =>
        eventually(async () => (await inMachine(spec.id, script).catch(() => '')).includes(text))
      expect(await shows('done', 'cat /root/marker')).toBe(true)
      expect(await inMachine(spec.id, 'hostname; cat /home/debian/.ssh/authorized_keys')).toBe(
        'server\nssh-ed25519 AAAA test',
      )
      await machines.suspend(spec.id)
      const begun = Date.now()
      await machines.resume(spec)
      const tookMs = Date.now() - begun
      expect(await clockOff(spec.id)).toBeLessThan(clockErrorMs(tookMs))
      await machines.stop(spec.id, 120)
      expect(await machines.find(spec.id)).toMatchObject({ state: 'exited' })
    },
    900_000,
  )
})
