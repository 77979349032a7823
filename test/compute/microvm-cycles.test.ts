import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { clockErrorMs } from '../support/clocks.ts'
import { shell } from '../support/client.ts'
import { closeConsoles } from '../support/console.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { runInside } from '../support/inside.ts'
import { isLong } from '../support/long.ts'
import { clockOff, countedBy, countsOn, inSequence, linesOf, outputOf } from '../support/microvms.ts'
import { randomOf } from '../support/random.ts'
import { withRootDisk } from '../support/root-disks.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// A microVM that is suspended and resumed repeatedly, at random moments, loses no work. Only its clock shows the
// suspension: disk, output and connections are unaffected.

const port = 7
/** Accepts one connection only, returns what it is sent, and ends with the connection. */
const echo = `exec nc -l -p ${port} -e sh -c 'while read -r n; do echo $n >>/heard; echo $n; done'`

/**
 * Counts over one connection that it never reopens: each number is synced to disk, returned by the neighbour, and then
 * printed.
 */
const counting = (neighbour: string) => `
mkfifo /to /from
nc ${neighbour} ${port} </to >/from &
exec 3>/to 4</from
n=0
while :; do
  n=$((n+1))
  echo $n >>/numbers
  sync /numbers
  echo $n >&3
  read -r answer <&4 || { echo 'the connection has ended' >&2; exit 1; }
  [ "$answer" = $n ] || { echo "$answer came back for $n" >&2; exit 1; }
  echo $n
  sleep 0.05
done`

const numbersIn = (text: string): number[] => text.trim().split('\n').map(Number)

const [cycles, seeds] = isLong ? [10, [1, 2, 3]] : [3, [1]]

let tenant: TestTenant

describeHosts('a microVM that is suspended and resumed', () => {
  beforeAll(async () => {
    tenant = await makeTenant()
  })
  afterAll(async () => {
    closeConsoles()
    await removeTenants()
    await closeFurther()
  })

  test.each(seeds)(
    `seed %i: keeps its connection and clock over ${cycles} cycles, says each number once, has a clean disk`,
    async (seed) => {
      const random = randomOf(seed)
      const subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
      const nics = [{ subnet_id: subnet }]
      await open([second])
      const made = await tenant.containers.make(shell(echo, { nics, restart_policy: 'never' }))
      await open([first])
      const command = ['sh', '-c', counting(addressOf(made as Member))]
      const { id, operation } = await tenant.microvms.create({ command, nics, restart_policy: 'never' })
      await operation.success()
      await countsOn(tenant, id)

      for (let cycle = 0; cycle < cycles; cycle++) {
        await delay(random() * 2_000)
        await (await tenant.microvms.suspend(id)).operation.success()
        await delay(random() * 2_000)
        const begun = Date.now()
        await (await tenant.microvms.resume(id)).operation.success()
        const tookMs = Date.now() - begun
        expect(await clockOff(tenant, id)).toBeLessThan(clockErrorMs(tookMs))
        await countsOn(tenant, id)
      }

      expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', restart_count: 0 })
      expect(await tenant.containers.get(made.id)).toMatchObject({ status: 'running', restart_count: 0 })
      expect(await outputOf(tenant, id, 'dmesg | grep -iE "(EXT4|I/O|blk).*error" || true')).toBe('')
      const said = await countedBy(tenant, id)
      expect(said).toEqual(inSequence(said))
      expect((await linesOf(tenant, id)).filter(({ stream }) => stream === 'stderr')).toEqual([])
      const heard = numbersIn(await runInside(second.engine, `keelson-${made.id}`, 'cat /heard'))
      expect(heard).toEqual(inSequence(heard))
      expect(heard.length).toBeGreaterThanOrEqual(said.length)

      await (await tenant.microvms.stop(id, { grace_sec: 5 })).operation.success()
      await withRootDisk(id, async (disk) => {
        expect(await disk.faults()).toBe('')
        const written = numbersIn(await disk.read('/numbers'))
        expect(written).toEqual(inSequence(written))
        expect(written.length).toBeGreaterThanOrEqual(heard.length)
      })
    },
  )
})
